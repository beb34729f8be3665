"""What the plan of every kind of change has: a value that a person reads, with a hash over all of it; its notices about
the plan, a group, a topic or a share partition, and the error for refusals. Plans as text that is refused after an
edit, as rows of ``reset_plans``, and as rows of what they say about each share partition.

A plan is a frozen dataclass, and a file its plain data: one that was edited is found out by its shape first, then by
its hash.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

from acktrail import __version__
from acktrail.change.collection.facts import ClusterFacts, GroupFacts, PartitionOffsets
from acktrail.change.planning.impact import Clamp, CountUnit, Impact
from acktrail.errors import AcktrailError, ChangeRefused, GroupNotEmpty, MalformedFile, NotAuthorized, PlanStale
from acktrail.model.share_partition import STATE_TOPIC
from acktrail.plain_data import fingerprint, to_json_value
from acktrail.plain_tables import few
from acktrail.times import instant_text

PLAN_FORMAT: Final = "acktrail-plan"
PLAN_VERSION: Final = 1
_NUMBER: Final = re.compile(r"(?<![\w.:-])\d{1,19}(?![\w-]|[.:]\d)")
"""A whole number that is no part of a name or a time."""
DAY_MS: Final = 86_400_000
_CLOCK_SKEW_MS: Final = 300_000
"""How far clocks of two machines may differ before a plan counts as from the future."""
PLAN_AGAIN: Final = "make a new plan: acktrail change plan reset"
_TOTALS: Final = ("partitions", "delivered_again", "skipped", "acknowledgements_forgotten", "archived_forgotten")
_COPIED: Final = (
    *("group_id", "topic", "topic_id", "partition", "log_start_offset", "log_end_offset", "start_offset"),
    *("wanted_offset", "target_offset", "clamp"),
)
_IMPACT: Final = (
    *("to_deliver", "hidden_ahead", "delivered_again", "passed_again", "skipped", "acknowledgements_known"),
    *("archived_known", "passed_acknowledged", "passed_archived"),
)


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
    """`rule` names it. It is about the whole plan, a group, a topic (of every group or one), or a share partition."""

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
    """Notices of one rule whose texts differ in their numbers alone: `text` has the least and the greatest of each."""

    severity: Severity
    rule: str
    text: str
    subjects: tuple[str, ...]

    @property
    def about(self) -> str:
        """A few of the subjects, the others counted; empty for the whole plan."""
        return few(self.subjects)


def by_rule(notices: Iterable[Notice]) -> tuple[AlikeNotices, ...]:
    """Notices, grouped; a group is where its first one was."""
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
    """The text between whose `words` stand the numbers of several texts."""
    ends = [(min(column, key=int), max(column, key=int)) for column in zip(*numbers, strict=True)]
    spans = [least if int(least) == int(most) else f"{least} to {most}" for least, most in ends]
    return "".join(word + span for word, span in zip(words, [*spans, ""], strict=True))


def refusals_among(notices: Iterable[Notice]) -> tuple[Notice, ...]:
    """The notices that forbid something."""
    return tuple(notice for notice in notices if notice.severity is Severity.REFUSAL)


class RefusedParts:
    """Which share partitions refusals are about, and the first about each, its topic in its group, its topic, its group
    or the whole plan: constant time each."""

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
    """By severity, then by what they are about, then by rule."""
    order = list(Severity)

    def rank(notice: Notice) -> tuple[int, str, str, int, str]:
        partition = -1 if notice.partition is None else notice.partition
        return order.index(notice.severity), notice.group_id or "", notice.topic or "", partition, notice.rule

    return tuple(sorted(notices, key=rank))


def refusal_error(
    refusals: Sequence[Notice],
    groups: Iterable[GroupFacts],
    *,
    operation: str = "READ",
    kind: type[ChangeRefused] = ChangeRefused,
    hint: str = "",
) -> AcktrailError:
    """The error for the first of `refusals`; its message counts the others. Members are `GroupNotEmpty` (try again;
    `groups` have their names), a missing right is `NotAuthorized` (the ACL `operation`), anything else is a `kind`,
    which has the rule's name."""
    first = refusals[0]
    more = f" (and {len(refusals) - 1} more)" if len(refusals) > 1 else ""
    error: AcktrailError
    if first.rule == "group_not_empty":
        members = next((group.members for group in groups if group.group_id == first.group_id), ())
        error = GroupNotEmpty(first.group_id or "", members=members)
    elif first.rule == "unauthorized_group":
        error = NotAuthorized(operation, f"group {first.group_id!r}")
    elif first.rule == "unauthorized_topic":
        error = NotAuthorized(operation, f"topic {first.topic!r}")
    elif first.rule == "hidden_topic":
        error = NotAuthorized("DESCRIBE", f"the topic with id {first.topic}")
    elif first.rule == "state_unreadable" and first.topic is None:  # a missing right alone makes all of it unreadable
        error = NotAuthorized("READ", f"topic {STATE_TOPIC}")
        error.hint = f"{error.hint}, or give --without-state"
    else:
        return kind(first.rule, f"{first.subject}: {first.text}{more}".removeprefix(": "), hint=hint)
    error.message = f"{error.message} [{first.rule}]{more}"
    error.data = {**error.data, "rule": first.rule}
    return error


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan(PartitionOffsets):
    """One share partition: what is there now, where it is to start, and what that does.

    `wanted_offset` is what the strategy says, `target_offset` after clamping (`clamp` says why); None: it is refused,
    and a notice says why. Numbers of records as in `Impact`.
    """

    wanted_offset: int | None
    target_offset: int | None
    clamp: Clamp | None
    impact: Impact | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over the share partitions that are not refused. None: at least one of them is not known, or all are refused.
    `acknowledgements_known` and `archived_known` are lower bounds. For `passed_unknown` records below start offsets the
    history is incomplete. `unit`: offsets where at least one share partition counts them."""

    groups: int
    partitions: int
    refused_partitions: int
    unit: CountUnit
    to_deliver: int | None
    hidden_ahead: int | None
    delivered_again: int | None
    skipped: int | None
    acknowledgements_forgotten: int | None
    archived_forgotten: int | None
    in_flight_discarded: int | None
    acknowledgements_known: int | None
    archived_known: int | None
    passed_unknown: int | None


SUMMED: Final = tuple(each.name for each in fields(Totals) if each.type == "int | None")
"""Those that are sums of numbers of an `Impact`."""
NO_TOTALS: Final = Totals(groups=0, partitions=0, refused_partitions=0, unit=CountUnit.RECORDS, **dict.fromkeys(SUMMED))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePlan:
    """The plan of a change of `kind`, for what the cluster was when it was made. `strategy` is what it does in a few
    words. `groups` are those that it changes, `partitions` the share partitions whose start offsets it changes, each
    none where it changes something else; `undoes` is the plan that it takes back. `plan_hash` covers every other field.
    """

    kind: str
    plan_id: str
    created_at_ms: int
    created_by: str
    requested_by: str = ""
    reason: str = ""
    cluster: ClusterFacts
    strategy: str
    undoes: str | None = None
    groups: tuple[GroupFacts, ...] = ()
    partitions: tuple[PartitionPlan, ...] = ()
    totals: Totals = NO_TOTALS
    notices: tuple[Notice, ...] = ()
    format: str = PLAN_FORMAT
    version: int = PLAN_VERSION
    acktrail_version: str = __version__
    plan_hash: str = ""

    @property
    def cluster_id(self) -> str:
        return self.cluster.cluster_id

    @property
    def release(self) -> str:
        return self.cluster.release

    @property
    def group_ids(self) -> tuple[str, ...]:
        return tuple(group.group_id for group in self.groups)

    @property
    def refusals(self) -> tuple[Notice, ...]:
        return refusals_among(self.notices)


def forgotten(plan: ChangePlan) -> tuple[str, str]:
    """How many acknowledgements, and how many archived records, a plan forgets."""
    totals, impacts = plan.totals, [row.impact for row in plan.partitions if row.impact is not None]
    known = [impact.known_since_ms for impact in impacts if impact.known_since_ms is not None]
    since = f", known from {instant_text(min(known))} on" if known else ""

    def number(exact: int | None, least: int | None) -> str:
        return (f"at least {least}{since}" if least else "unknown") if exact is None else str(exact)

    return (
        number(totals.acknowledgements_forgotten, totals.acknowledgements_known),
        number(totals.archived_forgotten, totals.archived_known),
    )


def delivered(plan: ChangePlan) -> tuple[str, str]:
    """How many records a plan delivers, and how many of them again; offsets where it counts those."""

    def number(count: int | None) -> str:
        if count and plan.totals.unit is CountUnit.OFFSETS:
            return f"{count} offsets (control records and removed ones count, but are not delivered)"
        return "unknown" if count is None else str(count)

    return number(plan.totals.to_deliver), number(plan.totals.delivered_again)


def cost(plan: ChangePlan) -> str:
    """What a plan does to records, in a few words; ``unknown`` for a number that is not known."""
    skipped = "unknown" if plan.totals.skipped is None else plan.totals.skipped
    (_, again), (_, archived) = delivered(plan), forgotten(plan)
    return f"loses {skipped}, repeats {again.partition(' (')[0]}, revives {archived.partition(',')[0]} poison"


PlanT = TypeVar("PlanT", bound=ChangePlan)


def plan_json(plan: ChangePlan) -> str:
    """A plan as the text of a file."""
    return json.dumps(to_json_value(plan), indent=1, ensure_ascii=True) + "\n"


def read_text(file: Path, *, hint: str) -> str:
    """The text of `file`. Raises MalformedFile: it cannot be read, or is no text."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        why = f"cannot be read ({type(error).__name__})"
        raise MalformedFile(why, file=str(file), hint="check the path") from error
    except UnicodeDecodeError as error:
        raise MalformedFile("is no text", file=str(file), hint=hint) from error


def write_text(text: str, file: Path) -> None:
    """Write ASCII `text` to `file`, whole or not at all. Raises MalformedFile: the file cannot be written."""
    import tempfile

    try:
        with tempfile.NamedTemporaryFile("w", encoding="ascii", dir=file.absolute().parent, delete=False) as part:
            part.write(text)
        Path(part.name).replace(file)
    except OSError as error:
        why = f"cannot be written ({type(error).__name__})"
        raise MalformedFile(why, file=str(file), hint="check the path") from error


def check_age(created_at_ms: int, *, now_ms: int, longest_ms: int = DAY_MS) -> None:
    """Refuse a plan from the future, or one that is too old. Raises PlanStale: `from_the_future` or `too_old`."""
    created_at = instant_text(created_at_ms)
    if created_at_ms > now_ms + _CLOCK_SKEW_MS:
        text = f"the plan says it was made at {created_at}, and it is {instant_text(now_ms)}"
        raise PlanStale("from_the_future", text, hint="check the clocks of both machines")
    if now_ms - created_at_ms > longest_ms:
        raise PlanStale("too_old", f"the plan was made at {created_at}", hint=PLAN_AGAIN)


def plan_row(plan: ChangePlan) -> dict[str, Any]:
    """The row of a plan of any kind."""
    row = {
        "plan_id": plan.plan_id,
        "plan_hash": plan.plan_hash,
        "kind": plan.kind,
        "created_at": dt.datetime.fromtimestamp(plan.created_at_ms / 1000, dt.UTC),
        "created_by": plan.created_by,
        "requested_by": plan.requested_by or None,
        "reason": plan.reason or None,
        "release": plan.release,
        "strategy": plan.strategy,
        "group_ids": list(plan.group_ids),
        "refusals": len(plan.refusals),
        "plan": plan_json(plan),
    }
    return {**row, "undoes": plan.undoes, **{name: getattr(plan.totals, name) for name in _TOTALS}}


def partition_rows(plan: ChangePlan) -> list[dict[str, Any]]:
    """One row for each share partition: where it is to start, what that does, whether a refusal is about it, and its
    notices."""
    refused = RefusedParts(plan.refusals)
    texts: dict[tuple[str | None, str | None, int | None], list[str]] = defaultdict(list)
    for notice in plan.notices:
        texts[notice.place].append(f"{notice.severity.value}: {notice.text}")
    rows = []
    for part in plan.partitions:
        row: dict[str, Any] = {"refused": part.key in refused, "notices": texts.get(part.key, [])}
        row |= {name: getattr(part, name) for name in _COPIED}
        rows.append(row | {name: getattr(part.impact, name, None) for name in _IMPACT})
    return rows


def hash_of(plan: ChangePlan) -> str:
    """The hash that `plan` should have: over all fields but `plan_hash`."""
    data = to_json_value(plan)
    del data["plan_hash"]
    return fingerprint(data)


def with_hash(plan: PlanT) -> PlanT:
    """`plan` with the hash over its other fields."""
    return replace(plan, plan_hash=hash_of(plan))
