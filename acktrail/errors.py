"""Errors, by what the caller can do about them.

=================  ==================================================  ====
error              what to do                                          exit
=================  ==================================================  ====
InputError         fix the input                                       2
ConfigurationError fix the configuration                               3
RetryableError     try again later                                     4
OutcomeUnknown     verify before anything else                         5
QualityGateFailed  correct the data that broke a critical expectation  6
PartlyDone         look which parts of a change were refused           7
=================  ==================================================  ====

Every error has its data as attributes; the message is built from them, and `hint` is the next step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar


class AcktrailError(Exception):
    """Root of every error acktrail raises on purpose. `message` is one line, `hint` what the caller can do, `data` the
    subject (topic, partition, offset, byte position and so on)."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "", data: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.data: dict[str, object] = dict(data or {})

    @property
    def with_hint(self) -> str:
        """Message and hint, one line."""
        return self.message + (f"; {self.hint}" if self.hint else "")

    def __reduce__(self) -> tuple[Any, ...]:
        """Spark workers hand errors to the driver by pickle."""
        return Exception.__new__, (type(self), self.message), self.__dict__


class InputError(AcktrailError):
    """The input is wrong; the caller fixes it and calls again."""

    exit_code = 2


class WrongType(InputError, TypeError):
    """An argument of a Python call that has the wrong type; nothing was sent."""


class WrongValue(InputError, ValueError):
    """An argument of a Python call that has the right type, and a value that no call can take; nothing was sent."""


class MalformedRecord(InputError):
    """Bytes that are no record. `part` is ``key`` or ``value`` of a record, or ``batch``; `position` the byte index in
    it, `fault` what is wrong there."""

    def __init__(self, message: str, *, part: str, position: int) -> None:
        super().__init__(f"{message} ({part}, byte {position})", data={"part": part, "position": position})
        self.fault, self.part, self.position = message, part, position


class UnsupportedRecord(InputError):
    """A record type or value version that no specification defines. `number` is the type or version seen."""

    def __init__(self, message: str, *, part: str, number: int) -> None:
        super().__init__(f"{message} {number}", data={"part": part, "number": number})
        self.part, self.number = part, number


class MalformedFile(InputError):
    """A file of records that cannot be read. `line` counts from 1, or is None where lines mean nothing."""

    def __init__(self, message: str, *, file: str, line: int | None = None, hint: str = "") -> None:
        where = file if line is None else f"{file}, line {line}"
        super().__init__(f"{where}: {message}", hint=hint, data={"file": file, "line": line})
        self.file, self.line = file, line


class RowsRefused(InputError):
    """A sink cannot write some rows; others are not affected. Where that is tolerated, they become dead letters."""


def near_names(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Those of the `known` names that `name` may be a misspelling of, the nearest first."""
    from difflib import get_close_matches

    return get_close_matches(name, known, n=most)


class UnknownName(InputError):
    """A group, topic, partition or table that does not exist. `nearest` are the closest of the names `known`, or those
    that are given."""

    def __init__(self, kind: str, name: str, *, known: Iterable[str] = (), nearest: Sequence[str] = ()) -> None:
        nearest = nearest or near_names(name, known)
        hint = f"did you mean {', '.join(repr(n) for n in nearest)}?" if nearest else ""
        super().__init__(f"unknown {kind} {name!r}", hint=hint, data={"kind": kind, "name": name})
        self.kind, self.name, self.nearest = kind, name, tuple(nearest)


class NothingMatches(InputError):
    """A filter that none of the names `known` matches. `kind` is what they name: ``group``, ``rule``."""

    def __init__(self, kind: str, patterns: Iterable[str], known: Iterable[str]) -> None:
        given, names = [*patterns], sorted(set(known))
        near = (name for pattern in given for name in near_names(pattern.strip("*?"), names))
        nearest = list(dict.fromkeys(near))[:3]
        word = "nearest" if nearest else "for instance"
        shown = f"; {word}: {', '.join(map(repr, nearest or names[:3]))}" if names else ""
        text = f"no {kind} matches {', '.join(map(repr, given))} ({len(names)} known{shown})"
        super().__init__(text, data={"kind": kind, "patterns": given, "nearest": nearest})


class NotAShareGroup(InputError):
    """A group of another type has this id. `group_type` is Kafka's word: ``consumer``, ``classic``, ``streams``."""

    def __init__(self, group_id: str, group_type: str) -> None:
        super().__init__(
            f"{group_id!r} is a {group_type} group, not a share group",
            hint="acktrail describes only share groups; kafka-groups.sh --list shows the type of every group",
            data={"kind": "share group", "name": group_id, "group_type": group_type},
        )
        self.group_id, self.group_type = group_id, group_type


class ChangeRefused(InputError):
    """A rule forbids the change; nothing was sent. `rule` is the rule's name."""

    def __init__(self, rule: str, message: str, *, hint: str = "", data: Mapping[str, object] | None = None) -> None:
        super().__init__(f"{message} [{rule}]", hint=hint, data={"rule": rule, **(data or {})})
        self.rule = rule


class PlanStale(ChangeRefused):
    """The cluster changed since the plan was made, or the plan is not the one that was shown. Make a new plan."""


class ConfigurationError(AcktrailError):
    """The configuration is wrong; the operator fixes it."""

    exit_code = 3


class NotNamed(ConfigurationError):
    """Neither an argument nor the environment names the cluster, or the tables."""


class InvalidConfiguration(ConfigurationError):
    """Values of configuration keys that are wrong, all of them: `errors` has the texts by key."""

    def __init__(self, errors: Mapping[str, Sequence[str]], *, hint: str = "") -> None:
        texts = [text for each in errors.values() for text in each]
        more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
        super().__init__(texts[0] + more, hint=hint, data={"errors": {key: list(each) for key, each in errors.items()}})
        self.errors = {key: tuple(each) for key, each in errors.items()}


class NotAuthorized(ConfigurationError):
    """A missing ACL: `operation` on `resource` (for example READ on topic `__share_group_state`)."""

    def __init__(self, operation: str, resource: str, *, hint: str = "") -> None:
        super().__init__(
            f"not authorized: {operation} on {resource} is missing",
            hint=hint or f"grant {operation} on {resource} to this principal",
            data={"operation": operation, "resource": resource},
        )
        self.operation, self.resource = operation, resource


class DamagedTables(ConfigurationError):
    """A table cannot be read, or lost something. `table` is None where the storage does not name it; `file` is relative
    to the table, None where no single file is damaged."""

    def __init__(
        self,
        message: str,
        *,
        hint: str,
        table: str | None,
        file: str | None = None,
        data: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message, hint=hint, data={"table": table, "file": file, **(data or {})})
        self.table, self.file = table, file


class NoTables(ConfigurationError):
    """Nothing at the root is a table: it is misspelt, not mounted, or no export wrote there yet."""


class ForeignCluster(ConfigurationError):
    """The tables were written from another cluster, or from another incarnation of the state topic."""


class MissingDependency(ConfigurationError):
    """Something acktrail needs is not installed (Java, an extra, a file)."""


class RetryableError(AcktrailError):
    """Nothing was changed; the same call may succeed later."""

    exit_code = 4


class Unreachable(RetryableError):
    """No broker answered at `address`."""

    def __init__(self, address: str, *, reason: str = "", hint: str = "") -> None:
        super().__init__(
            f"no Kafka broker answered at {address}" + (f": {reason}" if reason else ""),
            hint=hint or "check the address, the listener's security protocol and the network",
            data={"address": address},
        )
        self.address = address


class ConcurrentCommit(RetryableError):
    """Another writer committed to the table first; this writer's rows are not in it."""


class LeaseLost(RetryableError):
    """Another worker has the lease; this one must stop what it does under it and stand by."""


class NotAllAnswered(RetryableError):
    """Everything else was done; requests without a response are recorded as unknown. `summary` is what was done."""

    def __init__(self, message: str, *, summary: Any, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.summary = summary


class LogChanged(RetryableError):
    """The leader of a partition changed while its log was read: it may be another log. Start again from the last
    commit, where the log is compared with the stored records."""


class GroupNotEmpty(RetryableError):
    """The group has members, and only an empty group can be changed. `members` are their client ids, where known."""

    def __init__(self, group_id: str, *, members: Sequence[str] = ()) -> None:
        who = f": {', '.join(repr(member) for member in members)}" if members else ""
        super().__init__(
            f"group {group_id!r} has members{who}",
            hint="stop its consumers and try again; a killed one counts until its session ends (45 s by default)",
            data={"group_id": group_id, "members": list(members)},
        )
        self.group_id, self.members = group_id, tuple(members)


class ChangeInProgress(RetryableError):
    """Another change of the same group, or (`group_id` empty) the same change, is not finished, or its outcome was not
    verified. `plan_id` names it."""

    def __init__(self, group_id: str, *, plan_id: str, hint: str) -> None:
        what = f"group {group_id!r} is being changed by {plan_id}" if group_id else f"plan {plan_id} is not finished"
        super().__init__(what, hint=hint, data={"group_id": group_id, "plan": plan_id})
        self.group_id, self.plan_id = group_id, plan_id


class PartlyDone(AcktrailError):
    """Some parts of a change were done and others refused: the rows say which."""

    exit_code = 7


class OutcomeUnknown(AcktrailError):
    """A change was sent and its outcome is not known: verify before doing anything else."""

    exit_code = 5


class QualityGateFailed(AcktrailError):
    """A critical expectation failed. `failures` are (suite, expectation, unexpected count); the message names the first
    of them."""

    exit_code = 6
    named: ClassVar[int] = 3

    def __init__(self, failures: Sequence[tuple[str, str, int]], *, hint: str = "") -> None:
        shown = [f"{suite}: {name} ({count} unexpected)" for suite, name, count in failures[: self.named]]
        shown += [f"and {len(failures) - self.named} more"] if len(failures) > self.named else []
        super().__init__(f"{len(failures)} critical expectation(s) failed: {'; '.join(shown)}", hint=hint)
        self.failures = tuple(failures)
