"""Files of copied records: their format by extension, their dialect, and the order of their log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from acktrail.drafts.dialects import dialect_named
from acktrail.errors import ConfigurationError, InputError, MalformedFile
from acktrail.offline.read.codecs import bare_suffix
from acktrail.offline.read.column_files import COLUMN_SUFFIXES, read_column_batches, read_columns
from acktrail.offline.read.log_segment import SEGMENT_SUFFIX, read_segment
from acktrail.offline.read.read_report import ReadReport
from acktrail.offline.read.record_dump import DUMP_SUFFIX, read_dump
from acktrail.wire.dialects.detect_layout import detect_layout
from acktrail.wire.dialects.released import KAFKA_4_2, Dialect
from acktrail.wire.raw_record import RawRecord

if TYPE_CHECKING:
    import pyarrow as pa

AUTO: Final = "auto"
SUFFIXES: Final = (DUMP_SUFFIX, *COLUMN_SUFFIXES, SEGMENT_SUFFIX)
"""Each also with ``.gz`` or ``.zst`` appended."""
_ROWS_AT_ONCE: Final = 8_192
_SAMPLE: Final = 1_000
"""Records of each file from which the dialect is detected."""


def read_files(files: Iterable[Path], reading: ReadReport) -> Iterator[RawRecord]:
    """Every record of `files`, file by file in their own order; `reading` is for log segments.

    Raises:
        UnknownName: a file does not exist.
        MalformedFile: a file has another format, is cut off, or has content that is not a record; it names the place.
            A damaged log segment is not an error: it is added to `reading`.
        MissingDependency: pyarrow is not installed and a file needs it.
    """
    for file in files:
        yield from read_file(file, reading)


def read_file(file: Path, reading: ReadReport) -> Iterator[RawRecord]:
    """Every record of one file; as `read_files`."""
    suffix = bare_suffix(file)
    if suffix == DUMP_SUFFIX:
        return read_dump(file)
    if suffix in COLUMN_SUFFIXES:
        return read_columns(file)
    if suffix == SEGMENT_SUFFIX:
        return read_segment(file, reading)
    hint = f"files end in {', '.join(SUFFIXES)}, or these with .gz or .zst behind"
    raise MalformedFile("not a format that is read", file=str(file), hint=hint)


def raw_batches(file: Path, reading: ReadReport) -> Iterator[pa.RecordBatch]:
    """The rows of a file as batches of ``RAW_RECORDS``; raises as ``read_file``."""
    if bare_suffix(file) in COLUMN_SUFFIXES:
        yield from read_column_batches(file)
        return
    import pyarrow as pa

    from acktrail.columnar.schemas.table_schemas import RAW_RECORDS

    records = read_file(file, reading)
    while rows := [*islice(records, _ROWS_AT_ONCE)]:
        columns = zip(*((r.state_partition, r.offset, r.timestamp_ms, r.key, r.value) for r in rows), strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, RAW_RECORDS, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=RAW_RECORDS)


def sample_of(files: Sequence[Path], reading: ReadReport) -> Iterator[RawRecord]:
    """The first records of each file; raises as `read_files`, and does not report damage."""
    quiet = ReadReport(state_partition=reading.state_partition, control=reading.control)
    for file in files:
        yield from islice(read_file(file, quiet), _SAMPLE)


def choose_dialect(name: str, sample: Callable[[], Iterable[RawRecord]]) -> Dialect[Any]:
    """The dialect called `name`; for ``auto`` the one that the records of `sample` agree on.

    A sample of tombstones or damage alone is read as Kafka 4.2's: every shipped dialect reads it the same way. `sample`
    is called for ``auto`` only.

    Raises:
        UnknownName: there is no such dialect.
        ConfigurationError: the sample does not agree, or is ambiguous; the message has both readings.
    """
    if name != AUTO:
        return dialect_named(name)
    try:
        return dialect_named(detect_layout((raw.key, raw.value) for raw in sample()))
    except ConfigurationError as error:
        if error.data.get("readings"):
            raise
        return KAFKA_4_2


def in_log_order(records: Iterable[RawRecord]) -> Iterator[RawRecord]:
    """`records` by state partition and offset, each address once. Raises InputError (two different records claim one
    address: the files come from different logs)."""
    before: RawRecord | None = None
    for record in sorted(records, key=lambda r: (r.state_partition, r.offset)):
        if before is None or (before.state_partition, before.offset) != (record.state_partition, record.offset):
            yield record
        elif (before.key, before.value) != (record.key, record.value):
            raise conflicting_records(record.state_partition, record.offset)
        before = record


def conflicting_records(state_partition: int, offset: int) -> InputError:
    """Two different records claim one address."""
    return InputError(
        f"two different records at state partition {state_partition}, offset {offset}",
        hint="the files come from different clusters or from different incarnations of the state topic",
        data={"state_partition": state_partition, "offset": offset},
    )
