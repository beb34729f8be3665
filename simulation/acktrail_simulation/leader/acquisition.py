"""How a share-partition leader acquires fetched records for a member (Kafka: ``SharePartition.acquire``).

Whole record batches are acquired, up to the limits as far as batches allow: a limit is met in the middle of a batch
only in mode ``record_limit``, for what was handed out before, and inside gaps that a leader loaded. What was read from
the log decides where acquired batches begin and end; offsets without a record in them are for the member to report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from acktrail.model.batches import DeliveryState
from acktrail_simulation.leader.group_settings import ShareGroupSettings
from acktrail_simulation.leader.in_flight import InFlightBatch, InFlightState, acquired
from acktrail_simulation.leader.partition_log import RecordBatch
from acktrail_simulation.leader.share_partition_cache import SharePartitionCache


class AcquireMode(IntEnum):
    """``ShareAcquireMode`` (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquiredRecords:
    """Records acquired for a member: offsets, both inclusive, and the number of the attempt."""

    first_offset: int
    last_offset: int
    delivery_count: int

    @property
    def count(self) -> int:
        return self.last_offset - self.first_offset + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """Who fetches and how much. `most_records` may be exceeded to end with a batch; `batch_size` is the size from which
    newly acquired records are returned as several batches.
    """

    member_id: str
    most_records: int
    batch_size: int
    now_ms: int
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


def acquire(
    cache: SharePartitionCache,
    settings: ShareGroupSettings,
    limits: FetchLimits,
    fetch_offset: int,
    fetched: Sequence[RecordBatch],
) -> tuple[AcquiredRecords, ...]:
    """Acquire what is available of `fetched`, which was read at `fetch_offset`; ascending, disjoint."""
    if not fetched or limits.most_records <= 0 or fetched[-1].last_offset < cache.start_offset:
        return ()
    last, most = _limits(cache, settings, limits, fetch_offset, fetched[-1].last_offset)
    if most <= 0:
        return ()
    first = fetched[0].base_offset
    _archive_vanished(cache, fetch_offset, first)
    base = _aligned(cache, first)
    if last < min(first, base):
        # A full leader, and what was due again is compacted away: Kafka 4.4 fails such a fetch (inconsistent range).
        return ()
    overlapping = cache.beginning_within(min(first, base), last)
    taking = _Acquisition(cache=cache, settings=settings, limits=limits, fetched=fetched, last=last, most=most)
    if overlapping:
        taking.take_again(base, overlapping)
    else:
        taking.take_new(base, last)
    return tuple(taking.result)


def _limits(
    cache: SharePartitionCache, settings: ShareGroupSettings, limits: FetchLimits, fetch_offset: int, last: int
) -> tuple[int, int]:
    """The last offset to acquire and the most records. A leader that is full still hands out below its end offset."""
    most = min(limits.most_records, settings.max_record_locks - cache.in_flight_records)
    if most <= 0 and fetch_offset <= cache.end_offset:
        return min(last, cache.end_offset), min(limits.most_records, cache.end_offset - fetch_offset + 1)
    return last, most


def _archive_vanished(cache: SharePartitionCache, fetch_offset: int, base: int) -> None:
    """Available records that a fetch did not find any more were compacted away."""
    if fetch_offset >= base:
        return
    floor = cache.floor(fetch_offset)
    begin = floor.first_offset if floor is not None and floor.last_offset >= fetch_offset else fetch_offset
    vanished = cache.beginning_within(begin, base - 1)
    if cache.archive(vanished, fetch_offset, base - 1, DeliveryState.AVAILABLE):
        cache.looks_for_available = True


def _aligned(cache: SharePartitionCache, base: int) -> int:
    """Where acquisition begins: at the cached batch that holds `base`; never below the start when nothing is held
    there.
    """
    floor = cache.floor(base)
    if floor is None:
        return max(base, cache.start_offset)
    return floor.first_offset if floor.last_offset >= base else base


@dataclass(slots=True, kw_only=True)
class _Acquisition:
    """One acquisition in progress: at most `most` records, none above `last`."""

    cache: SharePartitionCache
    settings: ShareGroupSettings
    limits: FetchLimits
    fetched: Sequence[RecordBatch]
    last: int
    most: int
    result: list[AcquiredRecords] = field(default_factory=list)

    @property
    def left(self) -> int:
        return self.most - sum(found.count for found in self.result)

    @property
    def is_record_limited(self) -> bool:
        return self.limits.mode is AcquireMode.RECORD_LIMIT

    @property
    def first_fetched(self) -> int:
        return self.fetched[0].base_offset

    def take_again(self, base: int, overlapping: Sequence[InFlightBatch]) -> None:
        """What was handed out before and is available again, the loaded gaps between, and what follows."""
        position = base
        for batch in overlapping:
            if self.left > 0 and self.cache.active_gap_start is not None:
                if position < batch.first_offset:
                    self.take_new(position, batch.first_offset - 1)
                position = batch.last_offset + 1
            if self.left <= 0 or not self._take_batch(batch):
                break
        following = overlapping[-1].last_offset + 1
        if self.left > 0 and following <= self.last:
            self.take_new(following, self.last)
        if self.result:
            self.cache.gap_moved(self.result[-1].last_offset + 1)

    def take_new(self, first: int, last: int) -> None:
        """Records that no batch of the cache covers yet, up to the end of the record batch in which the limit lies."""
        cache, most = self.cache, self.left
        if not cache.batches:
            first = max(first, cache.end_offset)
        end = last
        if most < last - first + 1:
            end = _end_of_batch_with(self.fetched, first + most - 1)
            if cache.active_gap_start is not None:
                end = min(end, last)
        last_acquired = self._add(first, end, most)
        if cache.batches[0].first_offset == first:
            cache.start_offset = first
        cache.end_offset = max(cache.end_offset, end)
        cache.gap_moved((last_acquired if self.is_record_limited else end) + 1)

    def _add(self, first: int, end: int, most: int) -> int:
        """Put `first` to `end` into the cache and the result, split by batch size; returns the last acquired offset."""
        if self.is_record_limited:
            last_acquired = min(end, first + most - 1)
            batch = self._acquire_new(first, end)
            if last_acquired < end:
                self._give_back(batch, last_acquired)
            self._add_result(first, last_acquired, 1)
            return last_acquired
        for begin, stop in _in_batches_of(self.limits.batch_size, self.fetched, first, end):
            self._acquire_new(begin, stop)
            self._add_result(begin, stop, 1)
        return end

    def _acquire_new(self, first: int, last: int) -> InFlightBatch:
        fresh = self._acquired(InFlightState(state=DeliveryState.AVAILABLE, delivery_count=0))
        batch = InFlightBatch(first_offset=first, last_offset=last, whole=fresh)
        self.cache.put(batch)
        return batch

    def _give_back(self, batch: InFlightBatch, last_acquired: int) -> None:
        """Keep the batch's offsets above the limit available."""
        for offset in batch.split():
            if offset > last_acquired:
                batch.put(offset, InFlightState(state=DeliveryState.AVAILABLE, delivery_count=0))
        self.cache.looks_for_available = True

    def _take_batch(self, batch: InFlightBatch) -> bool:
        """Take the available records of a cached batch; returns whether to continue with the next one.

        Records with many attempts come alone: not together with those taken before, and nothing after them.
        """
        throttled = self._is_throttled(batch)
        before = len(self.result)
        if throttled and before:
            self.most = 0
            return False
        limited = self.is_record_limited and batch.size > self.left
        partly = throttled or limited or not batch.lies_within(self.first_fetched, self.last)
        if batch.by_offset is None and batch.held_at(batch.first_offset).state is not DeliveryState.AVAILABLE:
            return True
        if partly or batch.by_offset is not None:
            batch.split()
            self._take_offsets(batch)
        else:
            held = self._acquired(batch.held_at(batch.first_offset))
            batch.put(batch.first_offset, held)
            self._add_result(batch.first_offset, batch.last_offset, held.delivery_count)
        if throttled and len(self.result) > before:
            self.most = 0
            return False
        return True

    def _is_throttled(self, batch: InFlightBatch) -> bool:
        return any(
            held.state is DeliveryState.AVAILABLE and held.delivery_count >= self.settings.throttle_from
            for _, _, held in batch.parts(self.first_fetched, self.last)
        )

    def _take_offsets(self, batch: InFlightBatch) -> None:
        """Available offsets one by one, returned as ranges with equal count. Records with many attempts come in smaller
        numbers with every attempt; a record in its last attempt comes alone.
        """
        counts: dict[int, int] = {}
        limited = self.left if self.is_record_limited else None
        throttled: int | None = None
        throttle_from, limit = self.settings.throttle_from, self.settings.delivery_count_limit
        last_attempt = limit if limit > 2 else None
        for offset, _, held in tuple(batch.parts(self.first_fetched, self.last)):
            if held.state is not DeliveryState.AVAILABLE:
                continue
            if counts and held.delivery_count + 1 == last_attempt:
                break
            if throttled is None and held.delivery_count >= throttle_from:
                throttled = max(1, batch.size >> (held.delivery_count - throttle_from + 1))
            now_held = self._acquired(held)
            batch.put(offset, now_held)
            counts[offset] = now_held.delivery_count
            if len(counts) in (limited, throttled) or now_held.delivery_count == last_attempt:
                break
        self._add_ranges(counts)

    def _add_ranges(self, counts: dict[int, int]) -> None:
        first = before = None
        for offset, count in counts.items():
            if first is None or before is None or offset != before + 1 or count != counts[before]:
                if first is not None and before is not None:
                    self._add_result(first, before, counts[before])
                first = offset
            before = offset
        if first is not None and before is not None:
            self._add_result(first, before, counts[before])

    def _acquired(self, held: InFlightState) -> InFlightState:
        expires_ms = self.limits.now_ms + self.settings.record_lock_duration_ms
        return acquired(held, self.limits.member_id, lock_expires_ms=expires_ms)

    def _add_result(self, first: int, last: int, delivery_count: int) -> None:
        self.result.append(AcquiredRecords(first_offset=first, last_offset=last, delivery_count=delivery_count))


def _end_of_batch_with(fetched: Sequence[RecordBatch], offset: int) -> int:
    """The last offset of the record batch that holds `offset`; `offset` itself where none does."""
    return next((b.last_offset for b in fetched if b.base_offset <= offset <= b.last_offset), offset)


def _in_batches_of(size: int, fetched: Sequence[RecordBatch], first: int, end: int) -> list[tuple[int, int]]:
    """`first` to `end` cut where a record batch begins, as soon as `size` records are together."""
    found = []
    if end - first + 1 > size:
        for batch in fetched:
            if batch.base_offset > end:
                break
            if batch.base_offset - first >= size:
                found.append((first, batch.base_offset - 1))
                first = batch.base_offset
    return [*found, (first, end)]
