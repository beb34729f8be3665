"""Changes to share groups: what is asked for, and the outcome of each part of it. A change is sent once. A part that
the coordinator certainly did not do is REFUSED and may be sent again; a part whose outcome is UNKNOWN must be verified
before anything else is done. A part that the response leaves out was NOT_ATTEMPTED, which is a failure: brokers of
release 4.1 drop the error of the whole request that way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from acktrail.errors import OutcomeUnknown, PartlyDone
from acktrail.kafka.client.error_codes import NONE, ErrorScope, Outcome, error_for

__all__ = ["ChangeResult", "ConfigsChange", "ErrorScope", "NewStartOffset", "Outcome", "raise_unless_done"]
_KINDS: Final = {Outcome.NOT_ATTEMPTED: "not attempted", Outcome.REFUSED: "refused", Outcome.UNKNOWN: "not known"}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class NewStartOffset:
    """Where a share partition is to start. `start_offset` >= 0: Kafka takes any number, -1 as "not initialized"."""

    topic: str
    partition: int
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigsChange:
    """Configuration of one group to set, by name; None: back to the broker's default."""

    group_id: str
    configs: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeResult:
    """The outcome of one part: a group, a topic of a group, or a share partition. `error_code` is Kafka's, None where
    it gave none; `error` its name with the broker's message; `advice` what to do.
    """

    group_id: str
    outcome: Outcome
    topic: str | None = None
    partition: int | None = None
    topic_id: str | None = None
    error_code: int | None = NONE
    error: str | None = None
    error_scope: ErrorScope | None = None
    advice: str = ""


def raise_unless_done(results: Sequence[ChangeResult], *, operation: str) -> None:
    """Pass when every part was done. `operation` is the ACL operation the change needs on the group.

    Raises OutcomeUnknown when the outcome of a part is not known, or a part was not attempted; PartlyDone when some
    parts were done, others refused; the error of the first part (`error_for`) when nothing was changed.
    """
    failed = [result for result in results if result.outcome is not Outcome.DONE]
    if not failed:
        return
    first = failed[0]
    counts = f"{len(failed)} of {len(results)} failed, first {_name(first)}: {_KINDS[first.outcome]}"
    text = f"{counts} ({first.error})" if first.error else counts
    data = {"failed": len(failed), "asked": len(results)}
    if any(result.outcome in (Outcome.UNKNOWN, Outcome.NOT_ATTEMPTED) for result in failed):
        raise OutcomeUnknown(text, hint=first.advice, data=data)
    if len(failed) < len(results):
        raise PartlyDone(text, hint=first.advice, data=data)
    is_about_topic = first.topic is not None and first.error_scope is ErrorScope.PART
    kind, name = ("topic", first.topic or "") if is_about_topic else ("group", first.group_id)
    words = (first.error or "").partition(": ")[2] or None
    error = error_for(first.error_code or NONE, words, operation=operation, kind=kind, name=name)
    error.hint = first.advice or error.hint
    raise error


def _name(result: ChangeResult) -> str:
    if result.topic is None:
        return f"group {result.group_id!r}"
    where = result.topic if result.partition is None else f"{result.topic}:{result.partition}"
    return f"{where!r} of group {result.group_id!r}"
