"""What a migration carries from its source, and what it cannot, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acktrail.plain_tables import table

if TYPE_CHECKING:
    from acktrail.change.collection.facts import CarriedState
    from acktrail.change.planning.change_plan import PartitionPlan
    from acktrail.change.planning.reset_plan import CarriedTotals, ResetPlan

_ROWS_SHOWN: Final = 60
_HEADERS: Final = (
    *("GROUP", "SOURCE", "PARTITION", "SOURCE-START", "TARGET", "NEW-OFFSET"),
    *("SOURCE-DONE", "ACKS-LOST", "SOURCE-ARCHIVED", "IN-FLIGHT", "NOTE"),
)


def carried_text(plan: ResetPlan) -> str:
    """A table of the first share partitions, and the sums of those that are not refused."""
    rows = [_row(row, row.carried) for row in plan.partitions if row.carried is not None]
    more = [f"... {len(rows) - _ROWS_SHOWN} more; every one is in --json"] if len(rows) > _ROWS_SHOWN else []
    sums = [] if plan.carried is None else [_sums(plan.carried)]
    return "\n".join([table(_HEADERS, rows[:_ROWS_SHOWN]), *more, *sums])


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


def _sums(totals: CarriedTotals) -> str:
    again = _number(totals.delivered_again, totals.delivered_again_most)
    unknown = f" (not known exactly of {totals.unknown})" if totals.unknown else ""
    lines = (
        f"carried: {totals.partitions} start offset(s)",
        f"finished on the source, delivered again: {'unknown' if again is None else again}{unknown}",
        f"  acknowledged on the source:            {_text(totals.acknowledgements_lost)}",
        f"  archived on the source:                {_text(totals.archived_again)}",
        f"in flight on the source, counts dropped: {_text(totals.in_flight)}",
    )
    return "\n".join(lines)


def _text(number: int | None) -> str:
    return "unknown" if number is None else str(number)
