"""The time that the records span which a plan delivers again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.broker.logs.batch_headers import BatchTimes, LogPosition
from acktrail.group_changes.planning.plan import PartitionPlan, ResetPlan

__all__ = ["with_times"]

_MOST: Final = 500
"""Share partitions: each costs up to two fetches of one record batch."""


def with_times(admin: ShareGroupAdmin, plan: ResetPlan, *, most: int = _MOST) -> ResetPlan:
    """`plan`, not sealed, with first and last timestamps, read from the batches that hold the first and last record
    delivered again. Where more than `most` share partitions have some, the others say that they were not looked up.

    Raises:
        Unreachable, RetryableError: a broker did not answer.
    """
    rows = [row for row in plan.partitions if row.impact is not None and row.impact.again_first is not None]
    if not rows:
        return plan
    chosen, left_out = {row.key for row in rows[:most]}, {row.key for row in rows[most:]}
    times = admin.batch_times({p for row in rows[:most] for p in _positions(row)})
    reason = f"not looked up: more than {most} share partitions"
    return replace(
        plan,
        partitions=tuple(
            _timed(row, times)
            if row.key in chosen
            else replace(row, times_reason=reason if row.key in left_out else None)
            for row in plan.partitions
        ),
    )


def _positions(row: PartitionPlan) -> tuple[LogPosition, ...]:
    impact = row.impact
    offsets = () if impact is None else (impact.again_first, impact.again_last)
    return tuple(LogPosition(topic=row.topic, partition=row.partition, offset=o) for o in offsets if o is not None)


def _timed(row: PartitionPlan, times: Mapping[LogPosition, BatchTimes]) -> PartitionPlan:
    found = [times.get(position) for position in _positions(row)]
    first, last = (found[0], found[-1]) if found else (None, None)
    if first is None or last is None:
        return replace(row, times_reason="the broker does not tell when its records were written")
    return replace(row, first_record_ms=first.first_ms, last_record_ms=last.latest_ms)
