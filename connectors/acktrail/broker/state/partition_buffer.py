"""How far one partition of the state topic has been read, and what is ready to be handed out."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.connect.contract import LOG_REPLACED, PRUNED, PRUNED_BEFORE_FIRST_EXPORT, LogSpan
from acktrail.wire.raw_record import DecodeStatus

__all__ = ["Gap", "Lot", "Opening", "Piece", "StateCursor"]

_DECODED: Final = pa.scalar(DecodeStatus.DECODED.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Consecutive decoded records of one partition, `first_offset` to `last_offset`. At least one record."""

    records: pa.Table
    first_offset: int
    last_offset: int

    @property
    def quarantined(self) -> int:
        """Records that could not be decoded."""
        odd = pc.sum(pc.not_equal(self.records.column("decode_status"), _DECODED)).as_py()
        return int(odd or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Offsets, both ends inclusive, that cannot be read, and the reason (``connect.contract``)."""

    first_offset: int
    last_offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Where the reading of a partition begins.

    `next_offset` is Kafka's offset to read next; None: nothing was ever read. `offset_shift` is added to Kafka's
    offsets. `is_break`: the log is another one than the one that was read before. `is_verified`: the log was compared
    with what is stored, and `leader_epoch` is to be remembered even when nothing is read.
    """

    next_offset: int | None
    offset_shift: int = 0
    leader_epoch: int | None = None
    is_break: bool = False
    is_verified: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lot:
    """What is handed out at once: records, a gap, or neither: the log was found to be the same one. The reading goes on
    at `position` after it."""

    records: pa.Table | None
    span: LogSpan
    position: int


class StateCursor:
    """Where the reading of `partition` stands.

    `next_offset` is the offset to read next; `end_offset` (exclusive) is where a bounded reading stops, None: never.
    Both are Kafka's; what is handed out has the opening's `offset_shift` added.
    """

    def __init__(
        self,
        *,
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
        self._shift = opening.offset_shift
        self._topic_id = topic_id
        self._log_start_offset = log_start_offset
        self._log_end_offset = log_end_offset
        self._waiting: deque[Piece | Gap] = deque()
        self._verified_at = self.next_offset + self._shift if opening.is_verified else None
        if opening.is_break:
            before = self.next_offset - 1
            self._waiting.append(Gap(first_offset=before, last_offset=before, reason=LOG_REPLACED))
        self.skip_to(log_start_offset, PRUNED_BEFORE_FIRST_EXPORT if opening.next_offset is None else PRUNED)

    @property
    def is_read(self) -> bool:
        """Everything up to the end has been read (not: handed out)."""
        return self.end_offset is not None and self.next_offset >= self.end_offset

    @property
    def has_news(self) -> bool:
        """Something is ready to be handed out."""
        return bool(self._waiting) or self._verified_at is not None

    @property
    def waiting_bytes(self) -> int:
        """Size of the records that are ready to be handed out."""
        return sum(part.records.nbytes for part in self._waiting if isinstance(part, Piece))

    def take(self, piece: Piece) -> None:
        """Records were read."""
        self._waiting.append(piece)
        self.reach(piece.last_offset + 1)

    def reach(self, offset: int) -> None:
        """The log was read up to `offset`: what lies between the last record and it holds none."""
        self.next_offset = max(self.next_offset, offset)
        self._log_end_offset = max(self._log_end_offset, offset)

    def skip_to(self, log_start_offset: int, reason: str = PRUNED) -> None:
        """The log begins at `log_start_offset` now; what was not read before it is a gap."""
        self._log_start_offset = log_start_offset
        if log_start_offset > self.next_offset:
            self._waiting.append(Gap(first_offset=self.next_offset, last_offset=log_start_offset - 1, reason=reason))
            self.reach(log_start_offset)

    def hand_out(self) -> Lot | None:
        """The records or the gap that come next; None when nothing is ready."""
        verified_at, self._verified_at = self._verified_at, None
        if verified_at is not None:
            return Lot(records=None, span=self._span(()), position=verified_at)
        if not self._waiting:
            return None
        first = self._waiting.popleft()
        if isinstance(first, Gap):
            return Lot(records=None, span=self._span((), first), position=first.last_offset + 1 + self._shift)
        pieces = [first]
        while self._waiting and isinstance(self._waiting[0], Piece):
            pieces.append(self._waiting.popleft())  # type: ignore[arg-type]
        return Lot(
            records=self._shifted(pa.concat_tables([piece.records for piece in pieces])),
            span=self._span(pieces),
            position=pieces[-1].last_offset + 1 + self._shift,
        )

    def _shifted(self, records: pa.Table) -> pa.Table:
        if not self._shift:
            return records
        index = records.column_names.index("offset")
        offsets = pc.add(records.column(index), pa.scalar(self._shift, pa.int64()))
        return records.set_column(index, records.schema.field(index), offsets)

    def _span(self, pieces: tuple[()] | list[Piece], gap: Gap | None = None) -> LogSpan:
        shift = self._shift
        return LogSpan(
            topic_id=self._topic_id,
            partition=self.partition,
            first_offset=pieces[0].first_offset + shift if pieces else None,
            last_offset=pieces[-1].last_offset + shift if pieces else None,
            records=sum(piece.records.num_rows for piece in pieces),
            quarantined=sum(piece.quarantined for piece in pieces),
            log_start_offset=self._log_start_offset + shift,
            log_end_offset=self._log_end_offset + shift,
            gap_first=gap.first_offset + shift if gap else None,
            gap_last=gap.last_offset + shift if gap else None,
            gap_reason=gap.reason if gap else None,
            offset_shift=shift,
            leader_epoch=self.leader_epoch,
        )
