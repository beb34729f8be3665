"""The window a share-partition leader works in: its batches, start and end offset, and how the start moves.

Everything below `start_offset` is done with. The start moves over leading terminal records and only in memory; it is
written with the next change. `end_offset` is the last offset handed out, inclusive; with an empty cache it is the next
one to fetch. (Kafka: ``SharePartition``.)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from acktrail.model.batches import DeliveryState, StateBatch
from acktrail_simulation.leader.in_flight import InFlightBatch, InFlightState, archived


@dataclass(frozen=True, slots=True, kw_only=True)
class GapWindow:
    """Gaps that the loaded batches leave are records that were handed out and never settled: from `gap_start` to
    `end_offset` they are to be fetched again. Gaps that appear later hold no records.
    """

    end_offset: int
    gap_start: int


@dataclass(slots=True, kw_only=True)
class SharePartitionCache:
    """`looks_for_available`: something below the end may be available again."""

    start_offset: int
    end_offset: int
    batches: list[InFlightBatch] = field(default_factory=list)
    looks_for_available: bool = False
    gap: GapWindow | None = None

    @classmethod
    def loaded(cls, start_offset: int, batches: Sequence[StateBatch]) -> SharePartitionCache:
        """What a new leader begins with.

        Raises:
            ValueError: for a batch below the start offset or with its ends exchanged: Kafka's leader fails to load it.
        """
        cache = cls(start_offset=start_offset, end_offset=start_offset)
        position, gap_start = start_offset, None
        for batch in batches:
            if batch.first_offset < start_offset or batch.last_offset < batch.first_offset:
                raise ValueError(f"no leader loads {batch}")
            if gap_start is None and batch.first_offset > position:
                gap_start = position
            position = batch.last_offset + 1
            held = InFlightState(state=DeliveryState(batch.delivery_state), delivery_count=batch.delivery_count)
            cache.put(InFlightBatch(first_offset=batch.first_offset, last_offset=batch.last_offset, whole=held))
        if cache.batches:
            cache.looks_for_available = True
            cache.end_offset = cache.batches[-1].last_offset
            if gap_start is not None:
                cache.gap = GapWindow(end_offset=cache.end_offset, gap_start=gap_start)
            cache.advance()
        return cache

    @property
    def is_past_all(self) -> bool:
        """Whether nothing at or above the start offset is held."""
        return not self.batches or self.start_offset > self.batches[-1].last_offset

    @property
    def in_flight_records(self) -> int:
        """Offsets between start and end, in any state."""
        return self.end_offset - self.start_offset + 1 if self.batches else 0

    @property
    def delivery_complete_count(self) -> int:
        """Terminal records at or above the start offset."""
        return sum(
            max(0, last - max(first, self.start_offset) + 1)
            for batch in self.batches
            for first, last, held in batch.parts()
            if held.is_terminal
        )

    @property
    def active_gap_start(self) -> int | None:
        """Where the loaded gaps begin that are still to be fetched; None when that is over."""
        if self.gap is None or self.gap.end_offset != self.end_offset:
            return None
        return self.gap.gap_start

    def gap_moved(self, offset: int) -> None:
        """What lies below `offset` was fetched again; past the loaded end there is nothing left to fetch again."""
        if self.gap is None:
            return
        within = self.gap.end_offset == self.end_offset and offset <= self.gap.end_offset
        self.gap = GapWindow(end_offset=self.gap.end_offset, gap_start=offset) if within else None

    def put(self, batch: InFlightBatch) -> None:
        """Add a batch; one with the same first offset is replaced."""
        index = bisect_left(self.batches, batch.first_offset, key=_first)
        same = index < len(self.batches) and self.batches[index].first_offset == batch.first_offset
        self.batches[index : index + same] = [batch]

    def floor(self, offset: int) -> InFlightBatch | None:
        """The last batch that begins at or below `offset`."""
        index = bisect_right(self.batches, offset, key=_first)
        return self.batches[index - 1] if index else None

    def beginning_within(self, first: int, last: int) -> list[InFlightBatch]:
        """Batches that begin at `first` to `last`."""
        begin, end = bisect_left(self.batches, first, key=_first), bisect_right(self.batches, last, key=_first)
        return self.batches[begin:end]

    def next_fetch_offset(self) -> int:
        """Where to read the log next: the first available record, or gap to be fetched again, else past the end."""
        if self.looks_for_available and not self.is_past_all:
            found = self._first_available()
            if found is not None:
                return found
        self.looks_for_available = False
        return self.end_offset if self.is_past_all else self.end_offset + 1

    def archive(self, batches: Iterable[InFlightBatch], first: int, last: int, state: DeliveryState) -> bool:
        """Archive what is in `state` at offsets `first` to `last` of `batches`; whether there was any."""
        found = False
        for batch in batches:
            if batch.first_offset > last:
                break
            if not batch.lies_within(first, last) and batch.by_offset is None:
                if batch.held_at(batch.first_offset).state is not state:
                    continue
                batch.split()
            for begin, _, held in tuple(batch.parts(first, last)):
                if held.state is state:
                    batch.put(begin, archived(held))
                    found = True
        return found

    def log_start_moved(self, offset: int) -> None:
        """The user's log now begins at `offset`: available records and loaded gaps below are gone, acquired records
        stay until their lock ends. Nothing is written.

        Kafka 4.4's leader forgets the gaps: it keeps reading below the log start and delivers nothing more.
        """
        if offset <= self.start_offset:
            return
        if not self.batches:
            self.start_offset = self.end_offset = offset
            return
        if self.archive(self.batches, self.start_offset, offset - 1, DeliveryState.AVAILABLE):
            self.looks_for_available = True
        self.start_offset = offset
        if self.gap is not None and self.gap.gap_start < offset:
            self.gap_moved(offset)
        self.end_offset = max(self.end_offset, offset)

    def advance(self) -> bool:
        """Move the start over leading terminal records and drop whole batches below it; returns whether it may have
        moved.

        An acquired or available record, one to be fetched again, or the end of what is held stops it. It never goes
        back; Kafka 4.4's does, or fails to move, where the log start passed a batch that is still held.
        """
        last = self._last_done() if self._start_is_done() else None
        if last is None:
            return False
        if last == self.batches[-1].last_offset:
            self.start_offset = self.end_offset = max(self.start_offset, last + 1)
            self.batches.clear()
            return True
        index = bisect_right(self.batches, last, key=_first) - 1
        if last == self.batches[index].last_offset:
            following, gap_start = self.batches[index + 1].first_offset, self.active_gap_start
            following = following if gap_start is None else min(following, gap_start)
            self.start_offset = max(self.start_offset, following)
            index += 1
        else:
            self.start_offset = max(self.start_offset, last + 1)
        del self.batches[:index]
        return True

    def _first_available(self) -> int | None:
        gap_start = self.active_gap_start
        for batch in self.batches:
            if gap_start is not None:
                if batch.first_offset > gap_start:
                    return gap_start
                gap_start = max(batch.last_offset + 1, gap_start)
            for first, _, held in batch.parts():
                if held.state is DeliveryState.AVAILABLE:
                    return first
        return None

    def _start_is_done(self) -> bool:
        at = self.floor(self.start_offset)
        return at is not None and at.held_at(min(self.start_offset, at.last_offset)).is_terminal

    def _last_done(self) -> int | None:
        """The last offset of the terminal records that lead; gaps between batches do not stop it."""
        gap_start, last = self.active_gap_start, None
        for batch in self.batches:
            if gap_start is not None and batch.last_offset >= gap_start:
                return last
            for _, end, held in batch.parts():
                if not held.is_terminal:
                    return last
                last = end
        return last


def _first(batch: InFlightBatch) -> int:
    return batch.first_offset
