"""What Kafka's error codes say about a change: whether it may have happened all the same, and what to do."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from acktrail.broker.changes import ErrorScope, Outcome
from acktrail.broker.client.error_codes import COORDINATOR_LOADING, MOVED_COORDINATOR, NONE

__all__ = ["SAFE_TO_SEND_AGAIN", "advice_for", "outcome_of"]

SAFE_TO_SEND_AGAIN: Final = MOVED_COORDINATOR | {COORDINATOR_LOADING, 27}
"""On the whole request: the coordinator did nothing (14, 15, 16, REBALANCE_IN_PROGRESS)."""

_RUN_AGAIN: Final = "nothing was changed: run it again"
_DEFECT: Final = "nothing was changed; the request is wrong: report it as a defect"
_VERIFY: Final = "verify before anything else; the broker's log may say why"

_ADVICE: Final = MappingProxyType(
    {
        3: "the topic or partition is not there (any more): make a new plan",
        14: f"the coordinator is still loading; {_RUN_AGAIN}",
        15: f"there is no coordinator right now; {_RUN_AGAIN}",
        16: f"the coordinator moved; {_RUN_AGAIN}",
        17: "nothing was changed: correct the topic's name",
        24: "nothing was changed: the group id is empty or not allowed",
        27: f"the group is rebalancing; {_RUN_AGAIN}",
        29: "grant {operation} on the topic to this principal",
        30: "grant {operation} on the group to this principal",
        31: "grant {operation} on the cluster to this principal",
        35: "this release does not serve the request, or the feature share.version is off",
        40: "nothing was changed: correct the value; the broker's words say which",
        42: _DEFECT,
        44: "nothing was changed: a policy of the cluster forbids it",
        68: "stop the group's consumers; one that was killed counts until its session ends (45 s by default)",
        69: "there is no such share group: `acktrail groups list` shows those that are",
        74: "another leader epoch is in force: make a new plan",
        89: f"the quota is used up; {_RUN_AGAIN} later",
        100: "the topic is not there (any more): make a new plan",
        124: "a newer state epoch is in force: somebody else reset it: make a new plan",
    }
)
"""For every code after which nothing was changed. Any other code leaves the outcome open."""

_OPEN: Final = MappingProxyType(
    {
        56: f"the broker's disk failed; {_VERIFY}",
        7: f"a broker did not answer another in time; {_VERIFY}",
        13: f"a broker lost its connection to another; {_VERIFY}",
    }
)
_OPEN_ON_A_PART: Final = SAFE_TO_SEND_AGAIN
"""On one partition these come from the share coordinator after tries of which an earlier one may have arrived."""


def outcome_of(code: int, scope: ErrorScope) -> Outcome:
    """What an error code says about one part of a change. A code that no table names leaves it unknown."""
    if code == NONE:
        return Outcome.DONE
    if code not in _ADVICE or (scope is ErrorScope.PART and code in _OPEN_ON_A_PART):
        return Outcome.UNKNOWN
    return Outcome.REFUSED


def advice_for(code: int, scope: ErrorScope, operation: str) -> str:
    """What to do about it; `operation` is the ACL operation that the change needs where it was refused."""
    if outcome_of(code, scope) is Outcome.UNKNOWN:
        return _OPEN.get(code, _VERIFY)
    return _ADVICE.get(code, "").format(operation=operation)
