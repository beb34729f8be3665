"""Where the reading of a partition of the state topic begins, how far it is, and the batches that are ready. Kafka may
not have the log any more that was stored: a disk can be lost, and an unclean election truncates.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.connect.source_batches import (
    LOG_REPLACED,
    PRUNED,
    PRUNED_BEFORE_FIRST_EXPORT,
    LogSpan,
    SourceBatch,
    StoredLog,
    state_source_partition,
)
from acktrail.format.columns.schemas.table_schemas import STATE_RECORDS
from acktrail.format.wire.raw_record import DecodeStatus, RawRecord, record_fingerprint
from acktrail.kafka.descriptions import LogOffsets
from acktrail.kafka.state.state_topic import StateTopic

_DECODED: Final = pa.scalar(DecodeStatus.DECODED.value)
_NO_RECORDS: Final = STATE_RECORDS.empty_table()

ReadRecords = Callable[[Mapping[int, int]], Mapping[int, RawRecord | None]]
"""Reads the record at one offset of each of some partitions; None: there is none."""


class _Gap(NamedTuple):
    """Offsets, both ends inclusive, that cannot be read, and the reason (``connect.source_batches``)."""

    first_offset: int
    last_offset: int
    reason: str


class Opening(NamedTuple):
    """Where the reading of a partition begins. `next_offset` is Kafka's offset to read next; None: nothing was ever
    read. `offset_shift` is added to Kafka's offsets. `is_break`: the log is another one than the one that was read
    before. `is_verified`: the log was compared with the stored records, and `leader_epoch` is to be stored even when
    nothing is read.
    """

    next_offset: int | None
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


class PartitionBuffer:
    """Decoded records and gaps of one partition of `topic` (whose log is as it is `now`), between consumer and source
    task.

    `next_offset` is the offset to read next; `end_offset` (exclusive) is where the reading stops, None: never.
    Both are Kafka's; batches have the opening's `offset_shift` added.
    """

    def __init__(self, topic: StateTopic, now: LogOffsets, opening: Opening, end_offset: int | None) -> None:
        self.partition = now.partition
        self.next_offset = opening.next_offset or 0
        self.end_offset = end_offset
        self.leader_epoch = opening.leader_epoch
        self._source_partition = state_source_partition(topic.cluster_id, topic.topic_id, now.partition)
        self._shift = opening.offset_shift
        self._topic_id = topic.topic_id
        self._log_start_offset = now.log_start_offset or 0
        self._log_end_offset = now.high_watermark or 0
        self._waiting: deque[pa.Table | _Gap | int] = deque([self.next_offset] if opening.is_verified else [])
        """A number: the log was compared with the stored one up to this offset."""
        if opening.is_break:
            self._waiting.append(_Gap(self.next_offset - 1, self.next_offset - 1, LOG_REPLACED))
        self.skip_to(self._log_start_offset, PRUNED_BEFORE_FIRST_EXPORT if opening.next_offset is None else PRUNED)

    @property
    def is_read(self) -> bool:
        """Everything up to the end has been read; batches may still wait."""
        return self.end_offset is not None and self.next_offset >= self.end_offset

    @property
    def is_ready(self) -> bool:
        """``pop`` has a batch."""
        return bool(self._waiting)

    def put(self, records: pa.Table) -> None:
        """Add consecutive records (``STATE_RECORDS``, at least one) that were read."""
        self._waiting.append(records)
        self.reach(_offset(records, -1) + 1)

    def reach(self, offset: int) -> None:
        """The log was read up to `offset`: between the last record and it there is none."""
        self.next_offset = max(self.next_offset, offset)
        self._log_end_offset = max(self._log_end_offset, offset)

    def skip_to(self, log_start_offset: int, reason: str = PRUNED) -> None:
        """The log begins at `log_start_offset` now; unread offsets before it are a gap."""
        self._log_start_offset = log_start_offset
        if log_start_offset > self.next_offset:
            self._waiting.append(_Gap(self.next_offset, log_start_offset - 1, reason))
            self.reach(log_start_offset)

    def pop(self) -> SourceBatch | None:
        """The next batch: records, a gap, or neither (the log was verified); None when nothing is ready."""
        if not self._waiting:
            return None
        first = self._waiting.popleft()
        if isinstance(first, int):
            return self._batch(_NO_RECORDS, first)
        if isinstance(first, _Gap):
            return self._batch(_NO_RECORDS, first.last_offset + 1, first)
        runs = [first]
        while self._waiting and isinstance(self._waiting[0], pa.Table):
            runs.append(self._waiting.popleft())
        return self._batch(pa.concat_tables(runs), _offset(runs[-1], -1) + 1)

    def _batch(self, records: pa.Table, position: int, gap: _Gap | None = None) -> SourceBatch:
        """The batch after which Kafka's log is read from `position`."""
        shift = self._shift
        if shift and records.num_rows:
            index = records.column_names.index("offset")
            offsets = pc.add(records.column(index), pa.scalar(shift, pa.int64()))
            records = records.set_column(index, records.schema.field(index), offsets)
        quarantined = pc.sum(pc.not_equal(records.column("decode_status"), _DECODED)).as_py()
        span = LogSpan(
            topic_id=self._topic_id,
            partition=self.partition,
            first_offset=_offset(records, 0) if records.num_rows else None,
            last_offset=_offset(records, -1) if records.num_rows else None,
            records=records.num_rows,
            quarantined=quarantined or 0,
            log_start_offset=self._log_start_offset + shift,
            log_end_offset=self._log_end_offset + shift,
            gap_first=gap.first_offset + shift if gap else None,
            gap_last=gap.last_offset + shift if gap else None,
            gap_reason=gap.reason if gap else None,
            offset_shift=shift,
            leader_epoch=self.leader_epoch,
        )
        rows = {"state_records": records}
        return SourceBatch(source_partition=self._source_partition, rows=rows, position=position + shift, span=span)


def _offset(records: pa.Table, row: int) -> int:
    return int(records.column("offset")[row].as_py())
