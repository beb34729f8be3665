"""A migration as a kind of change: a reset plan of the target, with what the source had of each share partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from acktrail.change.change_kind import ChangeKind
from acktrail.change.collection.facts import sum_known
from acktrail.change.execution.reset_kind import ResetChange
from acktrail.change.planning.change_plan import PartitionPlan
from acktrail.change.planning.notices import RefusedParts
from acktrail.change.planning.reset_plan import ResetPlan
from acktrail.plain_tables import table
from acktrail_plugins.migration.migration_request import Migration
from acktrail_plugins.migration.source_states import CarriedState

_ROWS_SHOWN: Final = 60
_HEADERS: Final = (
    *("GROUP", "SOURCE", "PARTITION", "SOURCE-START", "TARGET", "NEW-OFFSET"),
    *("SOURCE-DONE", "ACKS-LOST", "SOURCE-ARCHIVED", "IN-FLIGHT", "NOTE"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationPlan(ResetPlan):
    """`carried` is what the source had of each of `partitions`, in their order; the impact of these is about the target
    alone."""

    migration: Migration
    carried: tuple[CarriedState, ...]


class _MigrationChange(ResetChange):
    plan_type: type[ResetPlan] = MigrationPlan

    def text(self, plan: ResetPlan) -> str:
        """A table of the first share partitions, and the sums of those that are not refused."""
        assert isinstance(plan, MigrationPlan)
        rows = [_row(*each) for each in zip(plan.partitions, plan.carried, strict=True)]
        more = [f"... {len(rows) - _ROWS_SHOWN} more; every one is in --json"] if len(rows) > _ROWS_SHOWN else []
        return "\n".join([table(_HEADERS, rows[:_ROWS_SHOWN]), *more, _sums(plan), "on the target alone:"])


def _row(row: PartitionPlan, carried: CarriedState) -> tuple[object, ...]:
    target = "refused" if row.target_offset is None else row.target_offset
    again = _number(carried.delivered_again, carried.delivered_again_most)
    counts = (carried.acknowledged, carried.archived, carried.in_flight)
    return (
        *(row.group_id, carried.topic, row.partition, carried.start_offset, row.topic, target, again, *counts),
        carried.reason or "",
    )


def _number(exact: int | None, most: int | None) -> object:
    return exact if exact is not None or most is None else f"<={most}"


def _sums(plan: MigrationPlan) -> str:
    """Over the share partitions that are not refused; unknown where one of them is."""
    refused = RefusedParts(plan.refusals)
    rows = zip(plan.partitions, plan.carried, strict=True)
    known = [carried for row, carried in rows if row.key not in refused]
    again, most = (
        sum_known(getattr(one, name) for one in known) for name in ("delivered_again", "delivered_again_most")
    )
    inexact = sum(one.delivered_again is None for one in known)
    names = ("acknowledged", "archived", "in_flight")
    acknowledged, archived, in_flight = (_text(sum_known(getattr(one, name) for one in known)) for name in names)
    unknown = f" (not known exactly of {inexact})" if inexact else ""
    lines = (
        f"carried: {len(known)} start offset(s)",
        f"finished on the source, delivered again: {_text(_number(again, most))}{unknown}",
        f"  acknowledged on the source:            {acknowledged}",
        f"  archived on the source:                {archived}",
        f"in flight on the source, counts dropped: {in_flight}",
    )
    return "\n".join(lines)


def _text(number: object) -> str:
    return "unknown" if number is None else str(number)


MIGRATION: ChangeKind[Any] = _MigrationChange()
