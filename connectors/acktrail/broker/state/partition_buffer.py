"""How far one partition of the state topic has been read, and the batches that are ready."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.schemas.table_schemas import STATE_RECORDS
from acktrail.connect.contract import (
    LOG_REPLACED,
    PRUNED,
    PRUNED_BEFORE_FIRST_EXPORT,
    LogSpan,
    SourceBatch,
    state_task_id,
)
from acktrail.wire.raw_record import DecodeStatus

_DECODED: Final = pa.scalar(DecodeStatus.DECODED.value)
_NO_RECORDS: Final = STATE_RECORDS.empty_table()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gap:
    """Offsets, both ends inclusive, that cannot be read, and the reason (``connect.contract``)."""

    first_offset: int
    last_offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Where the reading of a partition begins.

    `next_offset` is Kafka's offset to read next; None: nothing was ever read. `offset_shift` is added to Kafka's
    offsets. `is_break`: the log is another one than the one that was read before. `is_verified`: the log was compared
    with the stored records, and `leader_epoch` is to be stored even when nothing is read.
    """

    next_offset: int | None
    offset_shift: int = 0
    leader_epoch: int | None = None
    is_break: bool = False
    is_verified: bool = False


class PartitionBuffer:
    """Decoded records and gaps of `partition`, between the consumer and the task.

    `next_offset` is the offset to read next; `end_offset` (exclusive) is where a bounded reading stops, None: never.
    Both are Kafka's; batches have the opening's `offset_shift` added.
    """

    def __init__(
        self,
        *,
        cluster_id: str,
        topic_id: str,
        partition: int,
        opening: Opening,
        log_start_offset: int,
        log_end_offset: int,
        end_offset: int | None,
    ) -> None:
        self.partition = partition
        self.next_offset = opening.next_offset or 0
        self.end_offset = end_offset
        self.leader_epoch = opening.leader_epoch
        self._task = state_task_id(cluster_id, topic_id, partition)
        self._shift = opening.offset_shift
        self._topic_id = topic_id
        self._log_start_offset = log_start_offset
        self._log_end_offset = log_end_offset
        self._waiting: deque[pa.Table | _Gap] = deque()
        self._verified_at = self.next_offset if opening.is_verified else None
        if opening.is_break:
            before = self.next_offset - 1
            self._waiting.append(_Gap(first_offset=before, last_offset=before, reason=LOG_REPLACED))
        self.skip_to(log_start_offset, PRUNED_BEFORE_FIRST_EXPORT if opening.next_offset is None else PRUNED)

    @property
    def is_read(self) -> bool:
        """Everything up to the end has been read; batches may still wait."""
        return self.end_offset is not None and self.next_offset >= self.end_offset

    @property
    def is_ready(self) -> bool:
        """``pop`` has a batch."""
        return bool(self._waiting) or self._verified_at is not None

    @property
    def waiting_bytes(self) -> int:
        """Size of the records that wait."""
        return sum(records.nbytes for records in self._waiting if isinstance(records, pa.Table))

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
            self._waiting.append(_Gap(first_offset=self.next_offset, last_offset=log_start_offset - 1, reason=reason))
            self.reach(log_start_offset)

    def pop(self) -> SourceBatch | None:
        """The next batch: records, a gap, or neither (the log was verified); None when nothing is ready."""
        verified_at, self._verified_at = self._verified_at, None
        if verified_at is not None:
            return self._batch(_NO_RECORDS, verified_at)
        if not self._waiting:
            return None
        first = self._waiting.popleft()
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
        return SourceBatch(task=self._task, rows={"state_records": records}, position=position + shift, span=span)


def _offset(records: pa.Table, row: int) -> int:
    return int(records.column("offset")[row].as_py())
