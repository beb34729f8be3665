"""Notices: what a plan says about all of it, a group, a topic or a share partition; and the error for refusals."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from acktrail.change.plan.snapshot_facts import GroupFacts
from acktrail.errors import AcktrailError, ChangeRefused, GroupNotEmpty, NotAuthorized
from acktrail.model.acls import Acl
from acktrail.model.share_partition import STATE_TOPIC
from acktrail.text_tables import few

_NUMBER: Final = re.compile(r"(?<![\w.:-])\d{1,19}(?![\w-]|[.:]\d)")
"""A whole number that is no part of a name or a time."""


class Severity(StrEnum):
    """How much a notice matters, the worst first. A refusal forbids what it is about."""

    REFUSAL = "refusal"
    SERIOUS = "serious"
    WARNING = "warning"
    INFO = "info"


Found = tuple[Severity, str, str]
"""Severity, rule and text of a notice."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A statement of a plan by the `rule` with this name. It is about the whole plan, a group, a topic (of every group
    or one), or a share partition."""

    severity: Severity
    rule: str
    text: str
    group_id: str | None = None
    topic: str | None = None
    partition: int | None = None

    @property
    def place(self) -> tuple[str | None, str | None, int | None]:
        return self.group_id, self.topic, self.partition

    @property
    def subject(self) -> str:
        """What it is about, for people; empty for the whole plan."""
        topic = self.topic if self.partition is None else f"{self.topic}:{self.partition}"
        return " ".join(part for part in (self.group_id, topic) if part)


@dataclass(frozen=True, slots=True)
class AlikeNotices:
    """Notices of one rule whose texts differ in their numbers only. `text` has the lowest and the highest of each
    number, and how many notices they are; these are no totals."""

    severity: Severity
    rule: str
    text: str
    subjects: tuple[str, ...]

    @property
    def about(self) -> str:
        """A few of the subjects, the others counted; empty for the whole plan."""
        return few(self.subjects)


def by_rule(notices: Iterable[Notice]) -> tuple[AlikeNotices, ...]:
    """Group notices of one rule; each group stands where its first notice was."""
    found: dict[tuple[Severity, str, tuple[str, ...]], list[tuple[Notice, list[str]]]] = {}
    for notice in notices:
        words, numbers = _NUMBER.split(notice.text), _NUMBER.findall(notice.text)
        found.setdefault((notice.severity, notice.rule, tuple(words)), []).append((notice, numbers))
    return tuple(
        AlikeNotices(severity, rule, _spanned(words, [numbers for _, numbers in alike]), subjects)
        for (severity, rule, words), alike in found.items()
        for subjects in [tuple(notice.subject for notice, _ in alike if notice.subject)]
    )


def _spanned(words: Sequence[str], numbers: Sequence[Sequence[str]]) -> str:
    """Return the text between whose `words` the numbers of several texts stand."""
    ends = [(min(column, key=int), max(column, key=int)) for column in zip(*numbers, strict=True)]
    spans = [least if int(least) == int(most) else f"{least} to {most}" for least, most in ends]
    joined = "".join(word + span for word, span in zip(words, [*spans, ""], strict=True))
    return f"in each of {len(numbers)}: {joined}" if spans and len(numbers) > 1 else joined


def refusals_among(notices: Iterable[Notice]) -> tuple[Notice, ...]:
    """Return the notices that forbid something."""
    return tuple(notice for notice in notices if notice.severity is Severity.REFUSAL)


def unsaid(said: Iterable[Notice], now: Iterable[Notice]) -> list[Notice]:
    """Return the notices of `now` that were not `said`, without those that are only good to know."""
    known = {(one.severity, one.rule, one.place) for one in said}
    found = (one for one in now if one.severity is not Severity.INFO)
    return [one for one in found if (one.severity, one.rule, one.place) not in known]


class RefusedParts:
    """The share partitions that refusals are about, each with the first refusal about it, its topic in its group, its
    topic, its group or the whole plan. A lookup takes constant time."""

    def __init__(self, notices: Iterable[Notice]) -> None:
        self._first: dict[tuple[str | None, str | None, int | None], Notice] = {}
        for notice in refusals_among(notices):
            self._first.setdefault(notice.place, notice)

    def about(self, part: tuple[str, str, int]) -> Notice | None:
        group_id, topic, _ = part
        places = (part, (group_id, topic, None), (None, topic, None), (group_id, None, None), (None, None, None))
        return next((self._first[place] for place in places if place in self._first), None)

    def __contains__(self, part: tuple[str, str, int]) -> bool:
        return self.about(part) is not None


def by_severity(notices: Iterable[Notice]) -> tuple[Notice, ...]:
    """Sort by severity, then by subject, then by rule."""
    order = list(Severity)

    def rank(notice: Notice) -> tuple[int, str, str, int, str]:
        partition = -1 if notice.partition is None else notice.partition
        return order.index(notice.severity), notice.group_id or "", notice.topic or "", partition, notice.rule

    return tuple(sorted(notices, key=rank))


def refusal_error(
    refusals: Sequence[Notice],
    groups: Iterable[GroupFacts],
    *,
    rights: Iterable[Acl] = (),
    kind: type[ChangeRefused] = ChangeRefused,
    hint: str = "",
) -> AcktrailError:
    """Return the error for the first of `refusals`; its message counts the others. Members are `GroupNotEmpty` (try
    again; `groups` have their names), a missing right is `NotAuthorized` (the one of `rights`, which the change needs;
    READ where it is not among them), anything else is a `kind`, which has the rule's name."""
    first = refusals[0]
    more = f" (and {len(refusals) - 1} more)" if len(refusals) > 1 else ""
    error: AcktrailError
    if first.rule == "group_not_empty":
        members = next((group.members for group in groups if group.group_id == first.group_id), ())
        error = GroupNotEmpty(first.group_id or "", members=members)
    elif first.rule == "unauthorized_group":
        error = NotAuthorized(_operation(rights, "group", first.group_id), f"group {first.group_id!r}")
    elif first.rule == "unauthorized_topic":
        error = NotAuthorized(_operation(rights, "topic", first.topic), f"topic {first.topic!r}")
    elif first.rule == "hidden_topic":
        error = NotAuthorized("DESCRIBE", f"the topic with id {first.topic}")
    elif first.rule == "state_unreadable" and first.topic is None:  # only a missing right makes all of it unreadable
        error = NotAuthorized("READ", f"topic {STATE_TOPIC}")
        error.hint = f"{error.hint}, or give --without-state"
    else:
        return kind(first.rule, f"{first.subject}: {first.text}{more}".removeprefix(": "), hint=hint)
    error.message = f"{error.message} [{first.rule}]{more}"
    error.data = {**error.data, "rule": first.rule}
    return error


def _operation(rights: Iterable[Acl], kind: str, name: str | None) -> str:
    return next((acl.operation for acl in rights if (acl.kind, acl.name) == (kind, name)), "READ")
