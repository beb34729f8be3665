"""Whether Kafka still has the log that was stored: a disk can be lost, and an unclean election truncates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from acktrail.broker.descriptions import LogOffsets
from acktrail.broker.state.partition_buffer import Opening
from acktrail.connect.contract import StoredLog
from acktrail.wire.raw_record import RawRecord, record_fingerprint

ReadRecords = Callable[[Mapping[int, int]], Mapping[int, RawRecord | None]]
"""Reads the record at one offset of each of some partitions; None: there is none."""


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


def opening_of(resumed: Resumption, *, is_verified: bool = False) -> Opening:
    """Continue in the same log."""
    return Opening(
        next_offset=resumed.next_offset,
        offset_shift=resumed.stored.offset_shift,
        leader_epoch=resumed.now.leader_epoch,
        is_verified=is_verified,
    )


def openings(resumed: Mapping[int, Resumption], read: ReadRecords) -> dict[int, Opening]:
    """Compare the last stored record of each partition with what Kafka has at its offset, and where they differ find
    the first offset that differs: there the new log begins.

    Cost: one record a partition where nothing changed; about 20 where the log is another one.
    """
    asked = {number: each.next_offset - 1 for number, each in resumed.items() if not each.is_shorter}
    found = read(asked) if asked else {}
    return {number: _opening(each, found.get(number), read) for number, each in resumed.items()}


def _opening(resumed: Resumption, last: RawRecord | None, read: ReadRecords) -> Opening:
    if not resumed.is_shorter:
        stored = resumed.stored.fingerprint(resumed.next_offset - 1)
        if stored is None or (last is not None and stored == _fingerprint(last)):
            return opening_of(resumed, is_verified=True)
    first = _first_difference(resumed, read)
    return Opening(
        next_offset=first,
        offset_shift=resumed.position + 1 - first,
        leader_epoch=resumed.now.leader_epoch,
        is_break=True,
    )


def _first_difference(resumed: Resumption, read: ReadRecords) -> int:
    """The first offset of Kafka's log whose record is not the stored one. Before it both logs are the same: these
    records are not exported twice."""
    low, high = resumed.start, min(resumed.next_offset, resumed.end)
    while low < high:
        middle = (low + high) // 2
        if _is_same(resumed, middle, read):
            low = middle + 1
        else:
            high = middle
    return low


def _is_same(resumed: Resumption, offset: int, read: ReadRecords) -> bool:
    stored = resumed.stored.fingerprint(offset)
    record = read({resumed.partition: offset})[resumed.partition]
    return stored is not None and record is not None and stored == _fingerprint(record)


def _fingerprint(record: RawRecord) -> int:
    return record_fingerprint(record.offset, record.timestamp_ms, record.key, record.value)
