"""A log segment (``.log``) as a broker keeps it on disk: the records that a consumer would get, and what is damaged.

Control records and the records of aborted transactions are left out, as for a consumer with ``read_committed``. Records
of a transaction whose end is not in the file are left out too: whether it was committed is not known.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from acktrail.errors import InputError, MalformedFile, MalformedRecord
from acktrail.model.share_partition import STATE_TOPIC
from acktrail.offline.read.codecs import unpacked
from acktrail.offline.read.open_file import open_file
from acktrail.offline.read.read_report import ReadReport, SegmentDamage, SegmentDamageStatus
from acktrail.offline.read.segment_batches import Fragment, IntactBatch, is_log, read_batches
from acktrail.wire.raw_record import RawRecord
from acktrail.wire.record_batch import ControlType, LogRecord, batch_records, control_type

SEGMENT_SUFFIX: Final = ".log"

UNNAMED_PARTITION: Final = -1
"""Stands for a state partition that is not known."""

_FOLDER: Final = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})(?:\.[0-9a-f]+-(?:delete|future|stray))?")
_INTERNAL_TOPICS: Final = (STATE_TOPIC, "__consumer_offsets")

_Markers = dict[int, list[tuple[int, int]]]
"""By producer: offset and type of its control records, ascending."""


def read_segment(file: Path, reading: ReadReport) -> Iterator[RawRecord]:
    """The records of one segment, in the order of the log; the others are added to `reading`.

    Raises:
        UnknownName: the file does not exist.
        MalformedFile: it cannot be read, or has no record batch of version 2.
        InputError: the folder names another state partition than `reading`.
        MissingDependency: pyarrow is needed for its compression.
    """
    partition = _partition(file, reading)
    with open_file(file) as raw:
        yield from _Segment(file, raw, partition, reading).records()


def state_partition_of_folder(file: Path, *, any_topic: bool = False) -> int | None:
    """The partition in the name of the folder that a segment lies in (``__share_group_state-7``); None: it names none.

    `any_topic` takes every topic's folder, else those of Kafka's own two topics about share groups.
    """
    match = _FOLDER.fullmatch(file.absolute().parent.name)
    return int(match[2]) if match and (any_topic or match[1] in _INTERNAL_TOPICS) else None


class _Segment:
    """One segment while it is read."""

    def __init__(self, file: Path, raw: BinaryIO, partition: int, reading: ReadReport) -> None:
        self._file, self._raw = str(file), raw
        self._partition = partition
        self._reading = reading
        self._markers: _Markers | None = None

    def records(self) -> Iterator[RawRecord]:
        if not is_log(self._raw) and not self._has_a_batch():
            raise MalformedFile("no log segment: nothing in it is a record batch of version 2", file=self._file)
        for piece in read_batches(self._raw):
            if isinstance(piece, Fragment):
                self._report_fragment(piece)
            elif piece.header.is_control and not self._reading.control:
                self._reading.control_records += max(0, piece.header.record_count)
            elif piece.header.is_control == self._reading.control and self._is_committed(piece):
                yield from self._records_of(piece)

    def _has_a_batch(self) -> bool:
        return any(isinstance(piece, IntactBatch) for piece in read_batches(self._raw))

    def _records_of(self, batch: IntactBatch) -> Iterator[RawRecord]:
        offset = batch.header.base_offset
        try:
            for record in batch_records(batch.header, unpacked(batch.header.compression, batch.body)):
                yield self._raw_record(record)
                offset = record.offset + 1
        except MalformedRecord as error:
            self._report_batch(batch, SegmentDamageStatus.CORRUPT_BATCH, error.message, offset)

    def _raw_record(self, record: LogRecord) -> RawRecord:
        return RawRecord(
            state_partition=self._partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            key=record.key,
            value=record.value,
        )

    def _is_committed(self, batch: IntactBatch) -> bool:
        if not batch.header.is_transactional or batch.header.is_control:
            return True
        if self._markers is None:
            self._markers = self._find_markers()
        ends = self._markers.get(batch.header.producer_id, [])
        following = bisect_right(ends, (batch.header.last_offset, 1 << 16))
        if following == len(ends):
            reason = f"the end of the transaction of producer {batch.header.producer_id} is not in this file"
            self._report_batch(batch, SegmentDamageStatus.UNDECIDED_TRANSACTION, reason, batch.header.base_offset)
            return False
        if ends[following][1] == ControlType.COMMIT:
            return True
        self._reading.aborted_records += max(0, batch.header.record_count)
        return False

    def _find_markers(self) -> _Markers:
        """Every end of a transaction in the file."""
        markers: _Markers = {}
        for batch in read_batches(self._raw):
            if isinstance(batch, IntactBatch) and batch.header.is_control:
                markers.setdefault(batch.header.producer_id, []).extend(_ends(batch))
        return markers

    def _report_fragment(self, fragment: Fragment) -> None:
        status = SegmentDamageStatus.TORN_TAIL if fragment.is_torn else SegmentDamageStatus.CORRUPT_BATCH
        header = fragment.header
        self._reading.on_damage(
            SegmentDamage(
                state_partition=self._partition,
                file=self._file,
                position=fragment.position,
                size_bytes=fragment.end - fragment.position,
                first_offset=None if header is None else header.base_offset,
                last_offset=None if header is None else header.last_offset,
                status=status,
                reason=fragment.reason,
            )
        )

    def _report_batch(self, batch: IntactBatch, status: SegmentDamageStatus, reason: str, offset: int) -> None:
        self._reading.on_damage(
            SegmentDamage(
                state_partition=self._partition,
                file=self._file,
                position=batch.position,
                size_bytes=batch.header.size_bytes,
                first_offset=offset,
                last_offset=batch.header.last_offset,
                status=status,
                reason=reason,
            )
        )


def _ends(batch: IntactBatch) -> Iterator[tuple[int, int]]:
    try:
        for record in batch_records(batch.header, unpacked(batch.header.compression, batch.body)):
            kind = control_type(record.key)
            if kind in (ControlType.ABORT, ControlType.COMMIT):
                yield record.offset, kind
    except MalformedRecord:
        return  # reported with the batch itself; transactions that it would have ended stay undecided


def _partition(file: Path, reading: ReadReport) -> int:
    named, wanted = state_partition_of_folder(file, any_topic=reading.control), reading.state_partition
    if None not in (named, wanted) and named != wanted:
        raise InputError(f"{file}: the folder says state partition {named}, not {wanted}", hint="leave the option out")
    partition = wanted if named is None else named
    if partition is None:
        reading.nameless.append(str(file))
        return UNNAMED_PARTITION
    return partition
