"""The times and the number of the records that a plan delivers, from the record batches of the logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from acktrail.broker.admin import ShareGroupAdmin, client_of
from acktrail.broker.logs import Batch, BatchKind, LogPosition, LogStretch, read_batch_times, read_batches
from acktrail.group_changes.collection.records_below_start import passed_range
from acktrail.group_changes.planning.notices import Notice, Severity, by_severity
from acktrail.group_changes.planning.plan import PartitionPlan, RecordCounts, ResetPlan, with_totals
from acktrail.model.delivery import TERMINAL_STATES

_MOST_TIMED: Final = 500
"""Share partitions: each costs up to two fetches of one record batch."""
_MOST_LOGS: Final = 64
_MOST_OFFSETS: Final = 100_000
_MOST_BYTES: Final = 4 << 20
"""For all logs together."""

Span = tuple[int, int]
"""First and last offset, inclusive."""

_OFFSETS_ONLY: Final = Notice(
    Severity.INFO,
    "offsets_not_records",
    "totals count offsets: control records of transactions and what compaction removed are among them and are "
    "never delivered, records of aborted transactions only to groups that read uncommitted ones",
)
_NOTHING: Final = RecordCounts(to_deliver=0, to_deliver_aborted=0, delivered_again=0, delivered_again_aborted=0)


def with_times(admin: ShareGroupAdmin, plan: ResetPlan) -> ResetPlan:
    """`plan`, not sealed, with first and last timestamps, read from the batches that hold the first and last record
    delivered again. Where too many share partitions have some, the others say that they were not looked up. Raises
    Unreachable, RetryableError: a broker did not answer."""
    wanted = {
        row.key: [
            LogPosition(topic=row.topic, partition=row.partition, offset=offset)
            for offset in (row.impact.again_first, row.impact.again_last)
            if offset is not None
        ]
        for row in plan.partitions
        if row.impact is not None and row.impact.again_first is not None
    }
    chosen = list(wanted)[:_MOST_TIMED]
    times = (
        read_batch_times(client_of(admin), {position for key in chosen for position in wanted[key]}) if chosen else {}
    )
    found = {key: (times.get(wanted[key][0]), times.get(wanted[key][-1])) for key in chosen}

    def timed(row: PartitionPlan) -> PartitionPlan:
        if row.key not in wanted:
            return row
        if row.key not in found:
            return replace(row, times_reason=f"not looked up: more than {_MOST_TIMED} share partitions")
        first, last = found[row.key]
        if first is None or last is None:
            return replace(row, times_reason="the broker does not return the times of its records")
        return replace(row, first_record_ms=first.first_ms, last_record_ms=last.latest_ms)

    return replace(plan, partitions=tuple(timed(row) for row in plan.partitions))


def with_records(admin: ShareGroupAdmin, plan: ResetPlan) -> ResetPlan:
    """`plan`, not sealed, with the records of share partitions whose logs are short enough to be looked through from
    their targets on. Where some are not, a notice says that its totals count offsets. Raises Unreachable,
    RetryableError: a broker did not answer."""
    stretches = [stretch for row in plan.partitions if (stretch := _stretch(row)) is not None]
    longest: dict[tuple[str, int], LogStretch] = {}
    for stretch in sorted(stretches, key=lambda stretch: stretch.first_offset):
        longest.setdefault((stretch.topic, stretch.partition), stretch)
    read = {}
    if 0 < len(longest) <= _MOST_LOGS:
        read = read_batches(client_of(admin), longest.values(), most_bytes=_MOST_BYTES // len(longest))
    batches = {(stretch.topic, stretch.partition): found for stretch, found in read.items()}
    rows = tuple(replace(row, records=_counted(row, batches)) for row in plan.partitions)
    counted = with_totals(replace(plan, partitions=rows))
    if counted.totals.records is not None or not counted.totals.to_deliver:
        return counted
    return replace(counted, notices=by_severity([*counted.notices, _OFFSETS_ONLY]))


def _counted(row: PartitionPlan, batches: Mapping[tuple[str, int], Sequence[Batch]]) -> RecordCounts | None:
    if row.impact is not None and row.impact.to_deliver == 0:
        return _NOTHING
    found = batches.get((row.topic, row.partition))
    return None if found is None or _stretch(row) is None else counts_of(row, found)


def counts_of(row: PartitionPlan, batches: Sequence[Batch]) -> RecordCounts | None:
    """The records among `batches` that are delivered from the target of `row` on, and those delivered again. None: an
    edge lies within a batch with gaps, so that only its records would show it."""
    if row.target_offset is None or row.log_end_offset is None:
        return None
    ahead = _count(batches, [(row.target_offset, row.log_end_offset - 1)])
    again = _count(batches, _done_spans(row, row.target_offset, row.log_end_offset - 1))
    if ahead is None or again is None:
        return None
    is_known = row.impact is not None and row.impact.delivered_again is not None
    return RecordCounts(
        to_deliver=ahead[BatchKind.DATA],
        to_deliver_aborted=ahead[BatchKind.ABORTED],
        delivered_again=again[BatchKind.DATA] if is_known else None,
        delivered_again_aborted=again[BatchKind.ABORTED] if is_known else None,
    )


def _stretch(row: PartitionPlan) -> LogStretch | None:
    first, end = row.target_offset, row.log_end_offset
    if first is None or end is None or not 0 < end - first <= _MOST_OFFSETS:
        return None
    return LogStretch(topic=row.topic, partition=row.partition, first_offset=first, end_offset=end)


def _done_spans(row: PartitionPlan, first: int, last: int) -> list[Span]:
    """What the group was done with from `first` to `last`: below its start offset, and finished in its state."""
    passed = passed_range(row, row.target_offset)
    spans = [] if passed is None else [passed]
    for begin, end, state, _ in row.state.batches if row.state is not None else ():
        span = (max(begin, first, row.recorded_start or 0), min(end, last))
        if state in TERMINAL_STATES and span[0] <= span[1]:
            spans.append(span)
    return spans


def _count(batches: Sequence[Batch], spans: Sequence[Span]) -> dict[BatchKind, int] | None:
    """Records by kind in disjoint `spans`; None: they cannot be counted by batches alone."""
    found = dict.fromkeys(BatchKind, 0)
    for first, last in spans:
        for batch in batches:
            begin, end = max(first, batch.first_offset), min(last, batch.last_offset)
            if (begin, end) == (batch.first_offset, batch.last_offset):
                found[batch.kind] += batch.records
            elif begin <= end:
                if batch.records != batch.last_offset - batch.first_offset + 1:
                    return None
                found[batch.kind] += end - begin + 1
    return found
