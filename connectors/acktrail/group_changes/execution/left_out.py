"""What an attempt does not send of its plan, and why: a row for each share partition. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from acktrail.group_changes.lifecycle.change_status import Status
from acktrail.group_changes.planning.notices import Notice, Severity
from acktrail.group_changes.planning.plan import PartitionPlan, ResetPlan

_Key = tuple[str, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """One share partition that was not sent. `rule` forbids it (`not_reached`: another group failed before), `text`
    says why."""

    group_id: str
    topic: str
    topic_id: str | None
    partition: int
    target_offset: int | None
    rule: str
    text: str

    @property
    def subject(self) -> str:
        """What it is about, for people."""
        return f"{self.group_id} {self.topic}:{self.partition}"


def left_out(
    plan: ResetPlan, sent: Collection[_Key], done: Collection[_Key], moved: Sequence[Notice]
) -> tuple[LeftOut, ...]:
    """Every share partition of `plan` that is neither `sent` nor `done` before, with the first refusal about it: of
    those that the plan has, then of those in `moved`."""
    reasons = _Reasons([*plan.refusals, *moved])
    kept = {*sent, *done}
    return tuple(_left_out(row, reasons.about(row.key)) for row in plan.partitions if row.key not in kept)


def not_reached(rows: Iterable[PartitionPlan], why: Mapping[str, str]) -> tuple[LeftOut, ...]:
    """The share partitions `rows`, whose groups (by id) were not sent because of `why`."""
    return tuple(_left_out(row, ("not_reached", why[row.group_id])) for row in rows)


def execution_row(one: LeftOut, status: Status) -> dict[str, Any]:
    """Its row of ``reset_executions``, without attempt and time."""
    return {
        "group_id": one.group_id,
        "topic": one.topic,
        "topic_id": one.topic_id,
        "partition": one.partition,
        "target_offset": one.target_offset,
        "status": status.value,
        "error": f"{one.rule}: {one.text}",
    }


def _left_out(row: PartitionPlan, reason: tuple[str, str]) -> LeftOut:
    rule, text = reason
    return LeftOut(
        group_id=row.group_id,
        topic=row.topic,
        topic_id=row.topic_id,
        partition=row.partition,
        target_offset=row.target_offset,
        rule=rule,
        text=text,
    )


class _Reasons:
    """The first refusal about a share partition, its topic, its group or the whole plan: constant time each."""

    def __init__(self, notices: Iterable[Notice]) -> None:
        self._by: dict[tuple[str | None, str | None, int | None], Notice] = {}
        for notice in notices:
            if notice.severity is Severity.REFUSAL:
                self._by.setdefault((notice.group_id, notice.topic, notice.partition), notice)

    def about(self, key: _Key) -> tuple[str, str]:
        group, topic, _ = key
        for place in (key, (None, topic, None), (group, None, None), (None, None, None)):
            found = self._by.get(place)
            if found is not None:
                return found.rule, found.text
        return "no_target", "there is no target"
