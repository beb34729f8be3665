"""The times of the records that a plan delivers, and which offsets are none, from the record batches of the logs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from acktrail.change.collection.facts import PartitionFacts, Snapshot
from acktrail.change.planning.change_plan import PartitionPlan
from acktrail.change.planning.reset_plan import ResetPlan
from acktrail.change.planning.strategies import resolve
from acktrail.change.request.reset_request import ResetRequest
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.kafka.logs import Batch, BatchKind, LogPosition, LogStretch, read_batch_times, read_batches
from acktrail.model.offset_ranges import Span, joined

_MOST_TIMED: Final = 500
"""Share partitions: each costs up to two fetches of one record batch."""
_MOST_LOGS: Final = 64
_MOST_OFFSETS: Final = 100_000
_MOST_BYTES: Final = 4 << 20
"""For all logs together."""
_ISOLATION: Final = "share.isolation.level"
_READ_UNCOMMITTED: Final = "read_uncommitted"
_Key = tuple[str, str, int]
"""Group, topic, partition."""
_Place = tuple[str, int]
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
    hidden = hidden_in(admin, stretches)
    rows = tuple(replace(facts, hidden=hidden.get(facts.key)) for facts in snapshot.partitions)
    return replace(snapshot, partitions=rows)


def hidden_in(admin: ShareGroupAdmin, stretches: Mapping[_Key, LogStretch]) -> dict[_Key, tuple[Span, ...] | None]:
    """The offsets of each share partition's stretch of its log that are no records of its group, as `hidden_offsets`
    has them; None also where the log is too long. Raises as `with_hidden`."""
    batches = _read(admin, stretches.values())
    depends = {place for place, found in batches.items() if not _DEPENDS.isdisjoint(batch.kind for batch in found)}
    groups = {group for group, topic, partition in stretches if (topic, partition) in depends}
    levels = {one.group_id: (one.configs or {}).get(_ISOLATION) for one in admin.group_configs(sorted(groups))}
    hidden: dict[_Key, tuple[Span, ...] | None] = {}
    for key, stretch in stretches.items():
        read = batches.get(key[1:])
        if read is not None:
            hidden[key] = hidden_offsets(read, stretch.first_offset, stretch.end_offset - 1, levels.get(key[0]))
    return hidden


def _read(admin: ShareGroupAdmin, stretches: Iterable[LogStretch]) -> dict[_Place, Sequence[Batch]]:
    """The record batches of each log, over all its stretches; without those that are too long, or cannot be read."""
    by_log: dict[_Place, LogStretch] = {}
    for one in stretches:
        known = by_log.get((one.topic, one.partition), one)
        first, end = min(known.first_offset, one.first_offset), max(known.end_offset, one.end_offset)
        by_log[one.topic, one.partition] = replace(one, first_offset=first, end_offset=end)
    short = {place: one for place, one in by_log.items() if one.end_offset - one.first_offset <= _MOST_OFFSETS}
    asked = [one for one in short.values() if one.first_offset < one.end_offset] if len(by_log) <= _MOST_LOGS else []
    read = read_batches(client_of(admin), asked, most_bytes=_MOST_BYTES // len(asked)) if asked else {}
    is_empty = {place: () for place, one in short.items() if one.first_offset >= one.end_offset}
    return {**is_empty, **{(one.topic, one.partition): found for one, found in read.items()}}


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


def _stretch(request: ResetRequest, facts: PartitionFacts) -> LogStretch | None:
    """The log from the start offset or the target on, whichever is first."""
    log_start, end = facts.log_start_offset, facts.log_end_offset
    target = resolve(request.strategy, facts, request.out_of_range).target
    if target is None or log_start is None or end is None:
        return None
    first = min(target, max(facts.recorded_start or 0, log_start))
    return LogStretch(topic=facts.topic, partition=facts.partition, first_offset=first, end_offset=end)
