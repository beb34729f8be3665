"""The times of the records that a plan delivers, and which offsets are none, from the record batches of the logs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from acktrail.broker.admin import ShareGroupAdmin, client_of
from acktrail.broker.logs import Batch, BatchKind, LogPosition, LogStretch, read_batch_times, read_batches
from acktrail.group_changes.collection.facts import PartitionFacts, Snapshot
from acktrail.group_changes.planning.plan import PartitionPlan, ResetPlan
from acktrail.group_changes.planning.strategies import resolve
from acktrail.group_changes.request.reset_request import ResetRequest
from acktrail.model.record_counts import Span, joined

_MOST_TIMED: Final = 500
"""Share partitions: each costs up to two fetches of one record batch."""
_MOST_LOGS: Final = 64
_MOST_OFFSETS: Final = 100_000
_MOST_BYTES: Final = 4 << 20
"""For all logs together."""
_ISOLATION: Final = "share.isolation.level"
_READ_UNCOMMITTED: Final = "read_uncommitted"
_DEPENDS: Final = frozenset({BatchKind.ABORTED, BatchKind.OPEN})
"""What only a read_uncommitted group gets, now."""


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


def with_hidden(admin: ShareGroupAdmin, request: ResetRequest, snapshot: Snapshot) -> Snapshot:
    """`snapshot` with `hidden` for every share partition whose log is short enough to be looked through, from where
    the group or `request` begins. Raises Unreachable, RetryableError: a broker did not answer."""
    stretches = {facts.key: found for facts in snapshot.partitions if (found := _stretch(request, facts)) is not None}
    longest: dict[tuple[str, int], LogStretch] = {}
    for stretch in sorted(stretches.values()):
        longest.setdefault((stretch.topic, stretch.partition), stretch)
    short = [one for one in longest.values() if one.end_offset - one.first_offset <= _MOST_OFFSETS]
    asked = [one for one in short if one.first_offset < one.end_offset] if len(longest) <= _MOST_LOGS else []
    read = read_batches(client_of(admin), asked, most_bytes=_MOST_BYTES // len(asked)) if asked else {}
    read |= {one: () for one in short if one.first_offset >= one.end_offset}
    batches = {(stretch.topic, stretch.partition): found for stretch, found in read.items()}
    levels = _isolation_levels(admin, snapshot, batches)

    def hidden(facts: PartitionFacts) -> tuple[Span, ...] | None:
        stretch, found = stretches.get(facts.key), batches.get((facts.topic, facts.partition))
        if stretch is None or found is None:
            return None
        return hidden_offsets(found, stretch.first_offset, stretch.end_offset - 1, levels.get(facts.group_id))

    return replace(snapshot, partitions=tuple(replace(facts, hidden=hidden(facts)) for facts in snapshot.partitions))


def hidden_offsets(batches: Sequence[Batch], first: int, last: int, level: str | None) -> tuple[Span, ...] | None:
    """The offsets from `first` to `last` that are no records of a group with the isolation `level`. None: it depends on
    a level that is not known, or on how a transaction will end."""
    kinds = {batch.kind for batch in batches if batch.last_offset >= first}
    if kinds & _DEPENDS and (level is None or (level != _READ_UNCOMMITTED and BatchKind.OPEN in kinds)):
        return None
    unseen = {BatchKind.CONTROL} if level == _READ_UNCOMMITTED else {BatchKind.CONTROL, BatchKind.ABORTED}
    spans = joined(_unseen(batches, first, last, unseen))
    return joined((max(begin, first), min(end, last)) for begin, end in spans)


def _unseen(batches: Sequence[Batch], first: int, last: int, unseen: Collection[BatchKind]) -> Iterator[Span]:
    at = first
    for batch in batches:
        yield at, batch.first_offset - 1
        if batch.kind in unseen:
            yield batch.first_offset, batch.last_offset
        else:
            yield from batch.gaps
        at = batch.last_offset + 1
    yield at, last


def _isolation_levels(
    admin: ShareGroupAdmin, snapshot: Snapshot, batches: Mapping[tuple[str, int], Sequence[Batch]]
) -> dict[str, str | None]:
    """The isolation level of the groups that it matters to; one that may not be read is not known."""
    depends = {place for place, found in batches.items() if not _DEPENDS.isdisjoint(batch.kind for batch in found)}
    groups = {facts.group_id for facts in snapshot.partitions if (facts.topic, facts.partition) in depends}
    return {found.group_id: (found.configs or {}).get(_ISOLATION) for found in admin.group_configs(sorted(groups))}


def _stretch(request: ResetRequest, facts: PartitionFacts) -> LogStretch | None:
    """The log from the start offset or the target on, whichever is first."""
    log_start, end = facts.log_start_offset, facts.log_end_offset
    target = resolve(request.strategy, facts, request.out_of_range).target
    if target is None or log_start is None or end is None:
        return None
    first = min(target, max(facts.recorded_start or 0, log_start))
    return LogStretch(topic=facts.topic, partition=facts.partition, first_offset=first, end_offset=end)
