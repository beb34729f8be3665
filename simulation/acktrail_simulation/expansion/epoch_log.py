"""The log of one partition, with the offset at which each leader epoch began."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from acktrail.errors import InputError
from acktrail_simulation.expansion.expansion_messages import KeyedRecord


@dataclass(slots=True, kw_only=True)
class EpochLog:
    """`epochs` and `starts`: leader epochs, ascending, and their first offsets. Records below `log_start` are gone, but
    stay in `records` so that an offset is an index."""

    records: list[KeyedRecord] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    log_start: int = 0

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return len(self.records)

    def begin(self, epoch: int) -> None:
        """A leader begins with `epoch`.

        Raises:
            InputError: it is not above the current one.
        """
        if self.epochs and epoch <= self.epochs[-1]:
            raise InputError(f"leader epoch {epoch} does not follow {self.epochs[-1]}")
        self.epochs.append(epoch)
        self.starts.append(self.end_offset)

    def append(self, records: Iterable[KeyedRecord]) -> None:
        """Add records with the current leader epoch."""
        self.records.extend(records)

    def delete_all(self) -> None:
        """Retention, or DeleteRecords, takes every record."""
        self.log_start = self.end_offset

    def end_of_epoch(self, epoch: int) -> int:
        """The offset after the last record of `epoch` and those before it (``OffsetsForLeaderEpoch``)."""
        after = bisect_right(self.epochs, epoch)
        return self.starts[after] if after < len(self.starts) else self.end_offset

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the record at `offset`."""
        return self.epochs[bisect_right(self.starts, offset) - 1]

    def end_of_run(self, offset: int, most: int) -> int:
        """The end of the records from `offset` on that have one leader epoch, at most `most` of them."""
        after = bisect_right(self.starts, offset)
        end = self.starts[after] if after < len(self.starts) else self.end_offset
        return min(end, offset + most)
