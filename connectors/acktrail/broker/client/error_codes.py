"""What Kafka's error codes mean to a caller: names, what may be tried again, and the error to raise."""

from __future__ import annotations

from typing import Final, NoReturn

from kafka.errors import kafka_errors

from acktrail.errors import (
    AcktrailError,
    ConfigurationError,
    GroupNotEmpty,
    InputError,
    NotAuthorized,
    RetryableError,
    UnknownName,
)

__all__ = [
    "COORDINATOR_LOADING",
    "GROUP_AUTHORIZATION_FAILED",
    "GROUP_ID_NOT_FOUND",
    "LOOK_AGAIN",
    "MOVED_COORDINATOR",
    "NONE",
    "NON_EMPTY_GROUP",
    "REQUEST_TIMED_OUT",
    "TOPIC_AUTHORIZATION_FAILED",
    "UNANSWERED",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "error_for",
    "error_name",
    "error_text",
    "raise_for",
]

NONE: Final = 0
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
REQUEST_TIMED_OUT: Final = 7
COORDINATOR_LOADING: Final = 14
TOPIC_AUTHORIZATION_FAILED: Final = 29
GROUP_AUTHORIZATION_FAILED: Final = 30
CLUSTER_AUTHORIZATION_FAILED: Final = 31
NON_EMPTY_GROUP: Final = 68
GROUP_ID_NOT_FOUND: Final = 69

MOVED_COORDINATOR: Final = frozenset({15, 16})
"""COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: ask who it is, then ask again."""

LOOK_AGAIN: Final = frozenset({5, 6, 9, 13, 72, 74, 75, 78})
"""The leader moved or is not ready: fetch metadata, then ask again."""

_AUTHORIZATION: Final = frozenset(
    {TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED}
)
_UNKNOWN: Final = frozenset({UNKNOWN_TOPIC_OR_PARTITION, GROUP_ID_NOT_FOUND, 100})
_REFUSED_INPUT: Final = frozenset({17, 24, 40, 42, 44})
_UNSUPPORTED: Final = 35
UNANSWERED: Final = frozenset({REQUEST_TIMED_OUT, COORDINATOR_LOADING}) | MOVED_COORDINATOR
"""No coordinator answered for a group: its state is not known."""

_TRY_LATER: Final = frozenset({REQUEST_TIMED_OUT, COORDINATOR_LOADING, 89}) | MOVED_COORDINATOR | LOOK_AGAIN


def error_name(code: int) -> str:
    """Kafka's name of an error code, for example ``GROUP_ID_NOT_FOUND``."""
    kind = kafka_errors.get(code)
    return kind.message if kind is not None and kind.message else f"ERROR_{code}"


def error_text(code: int, message: str | None = None) -> str | None:
    """Name and the broker's own words; None when `code` is none."""
    if code == NONE:
        return None
    return f"{error_name(code)}: {message}" if message else error_name(code)


def raise_for(code: int, message: str | None, *, operation: str, kind: str, name: str) -> NoReturn:
    """Raise what a caller can act on for an error `code` that Kafka gave for `kind` (group, topic ...) `name`.

    `operation` is the ACL operation that the request needs.

    Raises:
        NotAuthorized, UnknownName, InputError, ConfigurationError, RetryableError, AcktrailError: by the code.
    """
    raise error_for(code, message, operation=operation, kind=kind, name=name)


def error_for(code: int, message: str | None, *, operation: str, kind: str, name: str) -> AcktrailError:
    """The error that `raise_for` raises."""
    text = error_text(code, message)
    subject = f"{kind} {name!r}" if name else kind
    data = {"error_code": code, "kind": kind, "name": name}
    if code in _AUTHORIZATION:
        return NotAuthorized(operation, _resource(code, kind, name))
    if code in _UNKNOWN:
        return UnknownName(kind, name)
    if code == NON_EMPTY_GROUP:
        return GroupNotEmpty(name)
    if code in _REFUSED_INPUT:
        return InputError(f"{subject} was refused: {text}", hint="check the name", data=data)
    if code == _UNSUPPORTED:
        return ConfigurationError(
            f"this cluster does not serve share groups: {text}",
            hint="Kafka 4.2 or later has them on; on 4.1 set the feature share.version to 1",
            data=data,
        )
    if code in _TRY_LATER:
        return RetryableError(f"{subject} cannot be asked right now: {text}", hint="try again", data=data)
    return AcktrailError(f"Kafka refused {subject}: {text}", hint="see the broker's log", data=data)


def _resource(code: int, kind: str, name: str) -> str:
    """What the missing ACL is on; an answer about a group can lack a right on its topics."""
    if code == CLUSTER_AUTHORIZATION_FAILED:
        return "the cluster"
    if code == TOPIC_AUTHORIZATION_FAILED and kind != "topic":
        return f"the topics of {kind} {name}"
    return f"{kind} {name}"
