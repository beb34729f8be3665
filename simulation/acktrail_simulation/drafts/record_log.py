"""A partition's log of drafted records, in memory: appended to, cut off by a crash, thinned out by a cleaner."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from acktrail.model.records import RecordAt

RecordT = TypeVar("RecordT")


@dataclass(slots=True, kw_only=True)
class RecordLog(Generic[RecordT]):
    """Records by ascending offset; the offsets between them were cleaned, or belong to user records."""

    partition: int = 0
    records: tuple[RecordAt[RecordT], ...] = ()
    end_offset: int = 0

    def append(self, record: RecordT) -> int:
        """Add a record; its offset."""
        record_at = RecordAt(partition=self.partition, offset=self.end_offset, record=record)
        self.records = (*self.records, record_at)
        self.end_offset += 1
        return record_at.offset

    def append_others(self, count: int) -> None:
        """Append `count` user records."""
        self.end_offset += count

    def keep(self, records: Iterable[RecordAt[RecordT]]) -> int:
        """A cleaner leaves nothing but `records`, where they were; how many went."""
        before = len(self.records)
        self.records = tuple(records)
        return before - len(self.records)

    def cut(self, end_offset: int) -> RecordLog[RecordT]:
        """The log as a crash leaves it that came when its end was `end_offset`."""
        kept = tuple(record_at for record_at in self.records if record_at.offset < end_offset)
        return RecordLog(partition=self.partition, records=kept, end_offset=min(end_offset, self.end_offset))
