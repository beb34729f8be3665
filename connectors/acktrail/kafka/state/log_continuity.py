"""Where the reading of a partition of the state topic begins. Kafka may not have the log any more that was stored: a
disk can be lost, and an unclean election truncates.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from acktrail.connect.source_batches import StoredLog
from acktrail.format.wire.raw_record import RawRecord, record_fingerprint
from acktrail.kafka.descriptions import LogOffsets

ReadRecords = Callable[[Mapping[int, int]], Mapping[int, RawRecord | None]]
"""Reads the record at one offset of each of some partitions; None: there is none."""


class Opening(NamedTuple):
    """Where the reading of a partition begins. `next_offset` is Kafka's offset to read next, `offset_shift` is added to
    Kafka's offsets. `is_break`: the log is another one than the one that was read before. `is_verified`: the log was
    compared with the stored records, and `leader_epoch` is to be stored even when nothing is read.
    """

    next_offset: int
    offset_shift: int = 0
    leader_epoch: int | None = None
    is_break: bool = False
    is_verified: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """One partition that was read before up to `position` (an offset of the tables), and its log as it is `now`."""

    partition: int
    position: int
    stored: StoredLog
    now: LogOffsets

    @property
    def next_offset(self) -> int:
        """Kafka's offset that would be read next in the log that was stored."""
        return self.position - self.stored.offset_shift

    @property
    def start(self) -> int:
        return self.now.log_start_offset or 0

    @property
    def end(self) -> int:
        return self.now.high_watermark or 0

    @property
    def is_shorter(self) -> bool:
        """The log ends before what is stored: it is another one."""
        return self.next_offset > self.end

    @property
    def needs_comparison(self) -> bool:
        """A leader never loses records during its epoch: the log is compared only where the epoch changed or is not
        known, and where Kafka has not pruned all stored records."""
        has_same_leader = self.now.leader_epoch is not None and self.now.leader_epoch == self.stored.leader_epoch
        return self.is_shorter or (not has_same_leader and self.start < self.next_offset)

    def in_same_log(self, *, is_verified: bool = False) -> Opening:
        """Continue in the same log."""
        epoch = self.now.leader_epoch
        return Opening(self.next_offset, self.stored.offset_shift, epoch, is_verified=is_verified)

    def differs(self, offset: int, found: RawRecord | None) -> bool:
        """Whether the stored record at Kafka's `offset` is another one than the `found` one."""
        stored = self.stored.fingerprint(offset)
        if stored is None or found is None:
            return True
        return stored != record_fingerprint(found.offset, found.timestamp_ms, found.key, found.value)


def openings(resumed: Mapping[int, Resumption], read: ReadRecords) -> dict[int, Opening]:
    """Compare the last stored record of each partition with what Kafka has at its offset, and where they differ find
    the first offset that differs: there the new log begins.

    Cost: one record a partition where nothing changed; about 20 where the log is another one.
    """
    asked = {number: each.next_offset - 1 for number, each in resumed.items() if not each.is_shorter}
    found = read(asked) if asked else {}
    return {number: _opening(each, found.get(number), read) for number, each in resumed.items()}


def _opening(resumed: Resumption, last: RawRecord | None, read: ReadRecords) -> Opening:
    before = resumed.next_offset - 1
    if not resumed.is_shorter and (resumed.stored.fingerprint(before) is None or not resumed.differs(before, last)):
        return resumed.in_same_log(is_verified=True)

    def differs(offset: int) -> bool:
        return resumed.differs(offset, read({resumed.partition: offset})[resumed.partition])

    # Before the first difference both logs are the same: these records are not exported twice.
    offsets = range(resumed.start, max(resumed.start, min(resumed.next_offset, resumed.end)))
    first = resumed.start + bisect_left(offsets, x=True, key=differs)
    return Opening(first, resumed.position + 1 - first, resumed.now.leader_epoch, is_break=True)
