"""What Kafka's error codes mean to a caller: when to ask again, what to raise, whether a change happened."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

from kafka.errors import kafka_errors

from acktrail import errors
from acktrail.text_parsing import parse_toml

NONE: Final = 0
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
LEADER_NOT_AVAILABLE: Final = 5
REQUEST_TIMED_OUT: Final = 7
COORDINATOR_LOADING: Final = 14
COORDINATOR_NOT_AVAILABLE: Final = 15
NOT_COORDINATOR: Final = 16
REBALANCE_IN_PROGRESS: Final = 27
TOPIC_AUTHORIZATION_FAILED: Final = 29
GROUP_AUTHORIZATION_FAILED: Final = 30
CLUSTER_AUTHORIZATION_FAILED: Final = 31
UNSUPPORTED_VERSION: Final = 35
NON_EMPTY_GROUP: Final = 68
GROUP_ID_NOT_FOUND: Final = 69
THROTTLING_QUOTA_EXCEEDED: Final = 89
UNKNOWN_TOPIC_ID: Final = 100

MOVED_COORDINATOR: Final = frozenset({COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR})
"""Find the coordinator again, then repeat the request."""
ASK_AGAIN: Final = MOVED_COORDINATOR | {COORDINATOR_LOADING}
"""The coordinator moved, is being elected, or loads."""
SAFE_TO_SEND_AGAIN: Final = ASK_AGAIN | {REBALANCE_IN_PROGRESS}
"""As the error of a whole change: the coordinator did nothing."""
UNANSWERED: Final = ASK_AGAIN | {REQUEST_TIMED_OUT}
"""No coordinator answered for a group: its state is not known."""
LOOK_AGAIN: Final = frozenset({LEADER_NOT_AVAILABLE, 6, 9, 13, 72, 74, 75, 78})
"""The leader moved or is not ready: fetch metadata, then repeat the request."""
_AUTHORIZATION: Final = frozenset(
    {TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED}
)
_UNKNOWN: Final = frozenset({UNKNOWN_TOPIC_OR_PARTITION, GROUP_ID_NOT_FOUND, UNKNOWN_TOPIC_ID})
_REFUSED_INPUT: Final = frozenset({17, 24, 40, 42, 44})
_TRY_LATER: Final = UNANSWERED | LOOK_AGAIN | {THROTTLING_QUOTA_EXCEEDED}


def error_text(code: int, message: str | None = None) -> str | None:
    """Kafka's name (for example ``GROUP_ID_NOT_FOUND``) and the broker's own message; None when `code` is none."""
    if code == NONE:
        return None
    kind = kafka_errors.get(code)
    name = kind.message if kind is not None and kind.message else f"ERROR_{code}"
    return f"{name}: {message}" if message else name


def error_for(code: int, message: str | None, *, operation: str, kind: str, name: str) -> errors.AcktrailError:
    """The error to raise for an error `code` that Kafka gave for `kind` (group, topic ...) `name`. `operation` is the
    ACL operation that the request needs."""
    text = error_text(code, message)
    subject = f"{kind} {name!r}" if name else kind
    data = {"error_code": code, "kind": kind, "name": name}
    if code in _AUTHORIZATION:
        # A response about a group can lack a right on its topics.
        topics = "the topics of " if code == TOPIC_AUTHORIZATION_FAILED and kind != "topic" else ""
        is_cluster = code == CLUSTER_AUTHORIZATION_FAILED
        return errors.NotAuthorized(operation, "the cluster" if is_cluster else f"{topics}{kind} {name}")
    if code in _UNKNOWN:
        return errors.UnknownName(kind, name)
    if code == NON_EMPTY_GROUP:
        return errors.GroupNotEmpty(name)
    if code in _REFUSED_INPUT:
        return errors.InputError(f"{subject} was refused: {text}", hint="check the name", data=data)
    if code == UNSUPPORTED_VERSION:
        return errors.ConfigurationError(
            f"this cluster does not serve share groups: {text}",
            hint="set the feature share.version to 1 (kafka-features.sh); new clusters of Kafka 4.2 and later have it",
            data=data,
        )
    if code in _TRY_LATER:
        return errors.RetryableError(f"{subject} is not available right now: {text}", hint="try again", data=data)
    return errors.AcktrailError(f"Kafka refused {subject}: {text}", hint="see the broker's log", data=data)


def librdkafka_error(error: Any, *, operation: str, kind: str, name: str) -> errors.AcktrailError:
    """The same for a ``KafkaError`` of confluent-kafka. Codes below 0 are librdkafka's own: no answer in time, no
    connection."""
    if error.code() < 0:
        return errors.RetryableError(f"{kind} {name!r} is not available right now: {error.str()}", hint="try again")
    return error_for(error.code(), error.str(), operation=operation, kind=kind, name=name)


class Outcome(StrEnum):
    """What became of one part of a change. Refused: nothing was changed here; not attempted: the response does not
    mention it; unknown: it may have been done: verify before anything else."""

    DONE = "done"
    REFUSED = "refused"
    NOT_ATTEMPTED = "not_attempted"
    UNKNOWN = "unknown"


class ErrorScope(StrEnum):
    """Where an error stood in the response: on the whole request, where it counts for every part, or on a part; or that
    the part is not in the response, or that there is none."""

    TOP = "top"
    PART = "part"
    ABSENT = "absent"
    NO_ANSWER = "no_answer"


@cache
def _advice(after: str) -> Mapping[str, str]:
    """What to do by error code: ``unchanged`` has every code after which nothing was changed, ``open`` some others."""

    text = files(__package__).joinpath("change_advice.toml").read_text("utf-8")
    return MappingProxyType(parse_toml(text)[after])


def outcome_of(code: int, scope: ErrorScope) -> Outcome:
    """What an error code means for one part of a change; unknown for every code without an advice. On one part the
    codes of ``SAFE_TO_SEND_AGAIN`` leave it open: they come from the share coordinator after several tries, and an
    earlier one may have arrived."""
    if code == NONE:
        return Outcome.DONE
    is_open = str(code) not in _advice("unchanged") or (scope is ErrorScope.PART and code in SAFE_TO_SEND_AGAIN)
    return Outcome.UNKNOWN if is_open else Outcome.REFUSED


def advice_for(code: int, scope: ErrorScope, operation: str) -> str:
    """What to do about it; `operation` is the ACL operation that the change needs where it was refused."""
    if outcome_of(code, scope) is Outcome.UNKNOWN:
        return _advice("open").get(str(code), _advice("open")["other"])
    return _advice("unchanged").get(str(code), "").format(operation=operation)
