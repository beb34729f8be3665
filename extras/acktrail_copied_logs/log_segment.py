"""A log segment (``.log``) as a broker keeps it on disk: the records that a consumer would get, what is damaged, and
where it comes from. Files may be compressed.

Control records and the records of aborted transactions are left out, as for a consumer with ``read_committed``. Records
of a transaction whose end is not in the file are left out too: whether it was committed is not known.

A broker keeps the topic's id in ``partition.metadata`` in the segment's folder, and the cluster's id in
``meta.properties`` in the folder above. Both are there when a whole log directory was copied.
"""

from __future__ import annotations

import contextlib
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Final

from acktrail.errors import InputError, MalformedFile, MalformedRecord
from acktrail.format.columns.decoding.compression import unpacked
from acktrail.format.wire.raw_record import RawRecord
from acktrail.format.wire.record_batch import ControlType, batch_records, control_type
from acktrail.model.share_partition import STATE_TOPIC, topic_id_bytes
from acktrail_copied_logs.log_batches import Fragment, IntactBatch, is_log, read_pieces
from acktrail_copied_logs.unpacking import SEGMENT_SUFFIX, bare_suffix, open_file

_LARGEST_PROPERTIES: Final = 64 * 1024
_FOLDER: Final = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})(?:\.[0-9a-f]+-(?:delete|future|stray))?")
_INTERNAL_TOPICS: Final = (STATE_TOPIC, "__consumer_offsets")


def read_segment(file: Path, reading: ReadReport) -> Iterator[RawRecord]:
    """The records of one segment, in the order of the log; the others are added to `reading`.

    Raises:
        UnknownName: the file does not exist.
        MalformedFile: it cannot be read, or has no record batch of version 2.
        InputError: the folder names another state partition than `reading`.
    """
    partition = _partition(file, reading)
    with open_file(file) as raw:
        yield from _Segment(file, raw, partition, reading).records()


class _Segment:
    """One segment while it is read."""

    def __init__(self, file: Path, raw: BinaryIO, partition: int, reading: ReadReport) -> None:
        self._file, self._raw, self._partition, self._reading = str(file), raw, partition, reading

    def records(self) -> Iterator[RawRecord]:
        if not is_log(self._raw) and all(isinstance(piece, Fragment) for piece in read_pieces(self._raw)):
            raise MalformedFile("not a log segment: it has no record batch of version 2", file=self._file)
        for piece in read_pieces(self._raw):
            if isinstance(piece, Fragment):
                status = SegmentDamageStatus.TORN_TAIL if piece.is_torn else SegmentDamageStatus.CORRUPT_BATCH
                self._report(piece, status, piece.reason, piece.header.base_offset if piece.header else None)
            elif piece.header.is_control and not self._reading.control:
                self._reading.control_records += max(0, piece.header.record_count)
            elif piece.header.is_control == self._reading.control and self._is_committed(piece):
                yield from self._records_of(piece)

    def _records_of(self, batch: IntactBatch) -> Iterator[RawRecord]:
        offset = batch.header.base_offset
        try:
            for record in batch_records(batch.header, unpacked(batch.header.compression, batch.body)):
                yield RawRecord(
                    state_partition=self._partition,
                    offset=record.offset,
                    timestamp_ms=record.timestamp_ms,
                    key=record.key,
                    value=record.value,
                )
                offset = record.offset + 1
        except MalformedRecord as error:
            self._report(batch, SegmentDamageStatus.CORRUPT_BATCH, error.message, offset)

    def _is_committed(self, batch: IntactBatch) -> bool:
        if not batch.header.is_transactional or batch.header.is_control:
            return True
        ends = self._markers.get(batch.header.producer_id, [])
        following = bisect_right(ends, (batch.header.last_offset, 1 << 16))
        if following == len(ends):
            reason = f"the end of the transaction of producer {batch.header.producer_id} is not in this file"
            self._report(batch, SegmentDamageStatus.UNDECIDED_TRANSACTION, reason, batch.header.base_offset)
            return False
        if ends[following][1] == ControlType.COMMIT:
            return True
        self._reading.aborted_records += max(0, batch.header.record_count)
        return False

    @cached_property
    def _markers(self) -> Mapping[int, list[tuple[int, int]]]:
        """Every end of a transaction in the file, by producer: offset and type of its control record, ascending."""
        markers: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for batch in read_pieces(self._raw):
            if not isinstance(batch, IntactBatch) or not batch.header.is_control:
                continue
            with contextlib.suppress(MalformedRecord):  # reported with the batch; its transactions stay undecided
                for record in batch_records(batch.header, unpacked(batch.header.compression, batch.body)):
                    kind = control_type(record.key)
                    if kind in (ControlType.ABORT, ControlType.COMMIT):
                        markers[batch.header.producer_id].append((record.offset, kind))
        return markers

    def _report(
        self, piece: IntactBatch | Fragment, status: SegmentDamageStatus, reason: str, first_offset: int | None
    ) -> None:
        self._reading.on_damage(
            SegmentDamage(
                state_partition=self._partition,
                file=self._file,
                position=piece.position,
                size_bytes=piece.end - piece.position,
                first_offset=first_offset,
                last_offset=None if piece.header is None else piece.header.last_offset,
                status=status,
                reason=reason,
            )
        )


def _partition(file: Path, reading: ReadReport) -> int:
    """The state partition of a segment, by its folder (``__share_group_state-7``) or `reading`; -1: not known. With
    control records, which drafts have, the folder may be any topic's, else one of Kafka's own two."""
    match, wanted = _FOLDER.fullmatch(file.absolute().parent.name), reading.state_partition
    named = int(match[2]) if match and (reading.control or match[1] in _INTERNAL_TOPICS) else None
    if None not in (named, wanted) and named != wanted:
        raise InputError(f"{file}: the folder is of state partition {named}, not {wanted}", hint="leave the option out")
    partition = wanted if named is None else named
    if partition is None:
        reading.nameless.append(str(file))
        return -1
    return partition


def topic_id_beside(file: Path) -> str | None:
    """The id of the topic that a segment is of; None: not in its folder."""
    topic_id = _value(file, file.absolute().parent / "partition.metadata", "topic_id", ":")
    try:
        return topic_id if topic_id and topic_id_bytes(topic_id) else None  # type: ignore[arg-type]  # any text: it is checked
    except ValueError:
        return None


def cluster_id_beside(file: Path) -> str | None:
    """The id of the cluster whose broker wrote a segment; None: not in the folder above."""
    return _value(file, file.absolute().parents[1] / "meta.properties", "cluster.id", "=")


def shown_name(file: Path) -> str:
    """The file's name; that of a segment, which says little, with its folder's."""
    return f"{file.absolute().parent.name}/{file.name}" if bare_suffix(file) == SEGMENT_SUFFIX else file.name


def _value(file: Path, beside: Path, name: str, separator: str) -> str | None:
    """The value of `name` in a small file of ``name<separator>value`` lines beside a segment."""
    if bare_suffix(file) != SEGMENT_SUFFIX:
        return None
    try:
        with beside.open(encoding="utf-8", errors="replace") as text:
            lines = text.read(_LARGEST_PROPERTIES).splitlines()
    except OSError:
        return None
    pairs = (line.partition(separator) for line in lines)
    return next((value.strip() or None for key, is_pair, value in pairs if is_pair and key.strip() == name), None)


class SegmentDamageStatus(StrEnum):
    """Why the records of a piece of a log are not known: its checksum is wrong, or its content is not records; the file
    ends inside it (a crash, or a copy of a log that is being written); the end of their transaction is not there."""

    CORRUPT_BATCH = "corrupt_batch"
    TORN_TAIL = "torn_tail"
    UNDECIDED_TRANSACTION = "undecided_transaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDamage:
    """A piece of a segment: `size_bytes` from byte `position` on (in the unpacked file). `first_offset` and
    `last_offset` are what its header says, None where there is none that can be read. Readable records before the
    damage within a batch are given; then `first_offset` is the one after them."""

    state_partition: int | None
    file: str
    position: int
    size_bytes: int
    first_offset: int | None
    last_offset: int | None
    status: SegmentDamageStatus
    reason: str

    def form(self) -> dict[str, object]:
        """In JSON, as a record that could not be read; offsets are null where the header cannot be read."""
        return {
            "state_partition": self.state_partition,
            "offset": self.first_offset,
            "timestamp": None,
            "decode_status": self.status.value,
            "decode_error": self.reason,
            **{name: getattr(self, name) for name in ("last_offset", "file", "position", "size_bytes")},
        }


@dataclass(slots=True, kw_only=True)
class ReadReport:
    """How files are read, and what was left out on the way.

    `state_partition` is for segments whose folder does not name it. `control` selects the control records (drafts
    i and ii) instead of the others. `on_damage` is called for each damage. Collected: the numbers of control
    records and of records of aborted transactions, and the segments without a state partition (`nameless`).
    """

    state_partition: int | None = None
    control: bool = False
    on_damage: Callable[[SegmentDamage], None] = lambda _: None
    control_records: int = 0
    aborted_records: int = 0
    nameless: list[str] = field(default_factory=list)

    def quiet(self, on_damage: Callable[[SegmentDamage], None] = lambda _: None) -> ReadReport:
        """The same way of reading with a report of its own."""
        return ReadReport(state_partition=self.state_partition, control=self.control, on_damage=on_damage)

    def add(self, other: ReadReport) -> None:
        """Add the counts and names of `other`."""
        self.control_records += other.control_records
        self.aborted_records += other.aborted_records
        self.nameless += other.nameless
