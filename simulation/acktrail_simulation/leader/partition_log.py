"""The user's topic partition, as far as a share group sees it: batches of records at offsets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from acktrail_simulation.error_codes import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBatch:
    """Offsets `base_offset` to `last_offset`, both inclusive. `removed`: those that compaction took out of it."""

    base_offset: int
    last_offset: int
    timestamp_ms: int = 0
    size_bytes: int = 100
    removed: frozenset[int] = frozenset()


@dataclass(slots=True, kw_only=True)
class UserPartitionLog:
    """Batches in offset order; what lies below `start_offset` is gone. There are no transactions.

    `fault`: what every read fails with for now (KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE).
    """

    start_offset: int = 0
    batches: list[RecordBatch] = field(default_factory=list)
    end_offset: int = 0
    fault: ErrorCode = ErrorCode.NONE

    def append(self, records: int, *, timestamp_ms: int = 0, size_bytes: int = 100) -> RecordBatch:
        """Append one batch of `records` records."""
        batch = RecordBatch(
            base_offset=self.end_offset,
            last_offset=self.end_offset + records - 1,
            timestamp_ms=timestamp_ms,
            size_bytes=size_bytes,
        )
        self.batches.append(batch)
        self.end_offset += records
        return batch

    def delete_before(self, offset: int) -> None:
        """Retention, or DeleteRecords: the start moves; a batch that straddles it is still read whole."""
        self.start_offset = max(self.start_offset, min(offset, self.end_offset))
        self.batches = [batch for batch in self.batches if batch.last_offset >= self.start_offset]

    def compact(self, offsets: Iterable[int]) -> None:
        """The cleaner removes records; a batch without records disappears."""
        gone = frozenset(offsets)
        left = [_without(batch, gone) for batch in self.batches]
        self.batches = [b for b in left if len(b.removed) < b.last_offset - b.base_offset + 1]

    def read(self, offset: int, *, max_bytes: int) -> tuple[RecordBatch, ...] | None:
        """Batches from the one with `offset`, or the next one, up to `max_bytes` but at least one. None: `offset` is
        out of range.
        """
        if not self.start_offset <= offset <= self.end_offset:
            return None
        found: list[RecordBatch] = []
        size = 0
        for batch in self.batches:
            if batch.last_offset < offset:
                continue
            size += batch.size_bytes
            if found and size > max_bytes:
                break
            found.append(batch)
        return tuple(found)

    def offset_since(self, timestamp_ms: int) -> int:
        """The first offset of a batch that is not older, or the end."""
        return next((b.base_offset for b in self.batches if b.timestamp_ms >= timestamp_ms), self.end_offset)


def _without(batch: RecordBatch, gone: frozenset[int]) -> RecordBatch:
    removed = batch.removed | {o for o in gone if batch.base_offset <= o <= batch.last_offset}
    return RecordBatch(
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        timestamp_ms=batch.timestamp_ms,
        size_bytes=batch.size_bytes,
        removed=removed,
    )
