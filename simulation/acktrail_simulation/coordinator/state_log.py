"""One state partition's log, in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from acktrail.format.wire.raw_record import RawRecord
from acktrail.format.wire.state_record import encode
from acktrail.model.records import RecordAt, StateRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRecord:
    """A record with its offset and the broker's time of its append."""

    offset: int
    timestamp_ms: int
    record: StateRecord


@dataclass(slots=True, kw_only=True)
class CoordinatorLog:
    """Records at dense offsets; those below `start_offset` were pruned."""

    state_partition: int = 0
    start_offset: int = 0
    entries: list[LoggedRecord] = field(default_factory=list)

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self.entries[-1].offset + 1 if self.entries else self.start_offset

    def append(self, record: StateRecord, *, timestamp_ms: int) -> int:
        """Add a record; its offset."""
        offset = self.end_offset
        self.entries.append(LoggedRecord(offset=offset, timestamp_ms=timestamp_ms, record=record))
        return offset

    def delete_before(self, offset: int) -> int:
        """Move the start to `offset`, as DeleteRecords does; how many records went."""
        kept = [entry for entry in self.entries if entry.offset >= offset]
        gone = len(self.entries) - len(kept)
        self.start_offset = max(self.start_offset, min(offset, self.end_offset))
        self.entries = kept
        return gone

    def cut(self, end_offset: int) -> CoordinatorLog:
        """The log as it was when its end was `end_offset`: what a crash at that moment leaves."""
        kept = [entry for entry in self.entries if entry.offset < end_offset]
        return CoordinatorLog(state_partition=self.state_partition, start_offset=self.start_offset, entries=kept)

    def placed(self) -> tuple[RecordAt[StateRecord], ...]:
        """The records with their addresses."""
        return tuple(
            RecordAt(partition=self.state_partition, offset=entry.offset, record=entry.record) for entry in self.entries
        )

    def raw(self) -> Iterator[RawRecord]:
        """The records as bytes, as Kafka 4.2 and later write them."""
        for entry in self.entries:
            key, value = encode(entry.record)
            yield RawRecord(
                state_partition=self.state_partition,
                offset=entry.offset,
                timestamp_ms=entry.timestamp_ms,
                key=key,
                value=value,
            )
