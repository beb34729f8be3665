"""Files of copied records: record dumps, Parquet and Arrow, log segments; their dialect, and the order of
their log.

A record dump has one record of the state topic a line, as JSON: ``{"partition": int, "offset": int, "timestamp": int,
"key": base64|null, "value": base64|null}``, timestamp in ms. Parquet and Arrow files have the columns of
``RAW_RECORDS``. All may be compressed: ``.jsonl.gz``, ``.jsonl.zst``.
"""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from acktrail.errors import AcktrailError, InputError, MalformedFile, UnknownName, near_names
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
from acktrail.format.wire.raw_record import RawRecord
from acktrail.text_parsing import parse_json
from acktrail_copied_logs.arrow_bodies import unpacked_size
from acktrail_copied_logs.dialects import RELEASED, Dialect, detect_layout
from acktrail_copied_logs.drafts.draft_dialects import DRAFTS
from acktrail_copied_logs.log_segment import ReadReport, read_segment
from acktrail_copied_logs.unpacking import (
    FREE_BYTES,
    MOST_TIMES,
    READ_ERRORS,
    SEGMENT_SUFFIX,
    bare_suffix,
    open_file,
    reason_of,
    unpacked_bytes,
)

AUTO: Final = "auto"
DUMP_SUFFIX: Final = ".jsonl"
COLUMN_SUFFIXES: Final = (".parquet", ".arrow", ".feather")
_BINARY: Final = ("binary", "large_binary", "fixed_size_binary", "binary_view", "null")
_COLUMNS: Final = {
    "partition": ("integer",),
    "offset": ("integer",),
    "timestamp": ("integer", "timestamp", "null"),
    "key": _BINARY,
    "value": _BINARY,
}
"""The kinds of type that each column may have (``pyarrow.types.is_...``)."""
_ROWS_AT_ONCE: Final = 1 << 17
_VALUES_AT_ONCE: Final = 8_192
"""Rows converted to Python values together."""
_ARROW_FILE: Final = b"ARROW1"
_MAGIC: Final = {".parquet": b"PAR1"}
_HINT: Final = "the columns are partition, offset, timestamp (integers, ms), key and value (binary)"
SUFFIXES: Final = (DUMP_SUFFIX, *COLUMN_SUFFIXES, SEGMENT_SUFFIX)
"""Each also with ``.gz`` or ``.zst`` appended."""
_SAMPLE: Final = 1_000
_LONGEST_LINE: Final = 8 << 20
_TOO_LONG: Final = "a line of more than 8 MiB, and no state record is as large"
_NO_DUMP: Final = "is it a dump of one record a line?"
_FREE_ROWS: Final = 1 << 20
_NO_LOG: Final = "no copied log is so alike: is it the right file?"
"""Records of each file from which the dialect is detected."""


def read_files(files: Iterable[Path], reading: ReadReport) -> Iterator[RawRecord]:
    """Every record of `files`, file by file in their own order; `reading` is for log segments.

    Raises:
        UnknownName: a file does not exist.
        MalformedFile: a file has another format, is cut off, or has content that is not a record; it names the place.
            A damaged log segment is not an error: it is added to `reading`.
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
    raise MalformedFile("not a supported file format", file=str(file), hint=hint)


def raw_batches(file: Path, reading: ReadReport) -> Iterator[pa.RecordBatch]:
    """The rows of a file as batches of ``RAW_RECORDS``; raises as ``read_file``."""
    if bare_suffix(file) in COLUMN_SUFFIXES:
        yield from read_column_batches(file)
        return
    records = read_file(file, reading)
    while rows := [*islice(records, _VALUES_AT_ONCE)]:
        columns = zip(*((r.state_partition, r.offset, r.timestamp_ms, r.key, r.value) for r in rows), strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, RAW_RECORDS, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=RAW_RECORDS)


def dialect_named(name: str) -> Dialect[Any]:
    """The dialect called `name`: a release's number, or a draft. Raises UnknownName: there is none; it carries the
    nearest names."""
    known = {**RELEASED, **DRAFTS}
    if name not in known:
        raise UnknownName("dialect", name, nearest=near_names(name, known) or tuple(known))
    return known[name]


def choose_dialect(name: str, files: Sequence[Path], reading: ReadReport) -> Dialect[Any]:
    """The dialect called `name`; for ``auto`` the one that the first records of each file agree on. `reading` is set to
    read its kind of records. Raises UnknownName (there is no such dialect), ConfigurationError (the records do not
    agree, or are ambiguous); for ``auto`` also as `read_files`."""
    if name == AUTO:
        sample = (raw for file in files for raw in islice(read_file(file, reading.quiet()), _SAMPLE))
        return detect_layout((raw.key, raw.value) for raw in sample)
    dialect = dialect_named(name)
    reading.control = dialect.in_control_batches
    return dialect


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


def read_dump(file: Path) -> Iterator[RawRecord]:
    """Every record of one dump, in its own order; as `read_files`, and errors name the line."""
    number = 0
    try:
        with unpacked_bytes(file) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig") as lines:
            for number, line in enumerate(iter(lambda: lines.readline(_LONGEST_LINE + 1), ""), start=1):
                if len(line) > _LONGEST_LINE:
                    raise MalformedFile(_TOO_LONG, file=str(file), line=number, hint=_NO_DUMP)
                if line.strip():
                    yield _record(line, str(file), number)
    except UnicodeDecodeError as error:
        raise MalformedFile("not UTF-8 text", file=str(file), line=number + 1) from error
    except READ_ERRORS as error:
        raise MalformedFile(reason_of(error), file=str(file), line=number + 1) from error


def _record(line: str, file: str, number: int) -> RawRecord:
    try:
        fields = parse_json(line)
    except ValueError as error:
        raise MalformedFile(f"not JSON, or damaged or cut off: {error}", file=file, line=number) from error
    if not isinstance(fields, dict):
        raise MalformedFile("not a JSON object", file=file, line=number)
    return RawRecord(
        state_partition=_integer(fields, "partition", 31, file, number),
        offset=_integer(fields, "offset", 63, file, number),
        timestamp_ms=_integer(fields, "timestamp", 63, file, number),
        key=_decoded(fields, "key", file, number),
        value=_decoded(fields, "value", file, number),
    )


def _integer(fields: dict[str, object], name: str, bits: int, file: str, number: int) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedFile(f"{name!r} is not an integer", file=file, line=number)
    if not -1 <= value < 1 << bits:
        raise MalformedFile(f"{name!r} is out of range", file=file, line=number)
    return value


def _decoded(fields: dict[str, object], name: str, file: str, number: int) -> bytes | None:
    if name not in fields:
        raise MalformedFile(f"{name!r} is missing", file=file, line=number)
    text = fields[name]
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)  # type: ignore[arg-type]  # a wrong type raises
    except (binascii.Error, ValueError, TypeError) as error:
        raise MalformedFile(f"{name!r} is not base64", file=file, line=number) from error


def read_columns(file: Path) -> Iterator[RawRecord]:
    """Every record of a Parquet or Arrow file, in its order; other columns are ignored. As `read_files`; MalformedFile
    also where a column is missing or of another type, or a row has no address."""
    for batch in read_column_batches(file):
        for start in range(0, batch.num_rows, _VALUES_AT_ONCE):
            columns = [column.to_pylist() for column in batch.slice(start, _VALUES_AT_ONCE).columns]
            for number, offset, timestamp, key, value in zip(*columns, strict=True):
                time = -1 if timestamp is None else timestamp
                yield RawRecord(state_partition=number, offset=offset, timestamp_ms=time, key=key, value=value)


def read_column_batches(file: Path) -> Iterator[pa.RecordBatch]:
    """The rows as batches of ``RAW_RECORDS``, one row group or record batch in memory at a time; as `read_columns`."""
    with open_file(file, _MAGIC.get(bare_suffix(file), b"")) as raw:
        try:
            schema, batches = _reader(raw, file)
            _check_schema(schema, str(file))
            for number, batch in enumerate(batches, start=1):
                yield _conforming(batch, str(file), number)
        except AcktrailError:
            raise
        except Exception as error:  # Arrow's readers raise errors of any type for a damaged file
            message = f"no {bare_suffix(file)[1:]} file, or damaged: {_reason(error)}"
            raise MalformedFile(message, file=str(file)) from error


def _reader(raw: BinaryIO, file: Path) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    if bare_suffix(file) == ".parquet":
        parquet = pq.ParquetFile(raw, pre_buffer=False)  # else all of the file's bytes are fetched ahead
        _check_footer(parquet.metadata, raw.seek(0, 2), str(file))
        wanted = [name for name in parquet.schema_arrow.names if name in _COLUMNS]
        return parquet.schema_arrow, parquet.iter_batches(batch_size=_ROWS_AT_ONCE, columns=wanted)
    begin = 8 if raw.read(len(_ARROW_FILE)) == _ARROW_FILE else 0
    raw.seek(begin)
    size, count = unpacked_size(raw)
    _check_size(size, raw.seek(0, 2), str(file))
    if begin and count is not None and pa.ipc.open_file(raw).num_record_batches != count:
        raise MalformedFile("its footer does not match its batches", file=str(file))  # what was measured is read
    raw.seek(begin)
    stream = pa.ipc.open_stream(raw)
    return stream.schema, stream


def _check_footer(footer: pq.FileMetaData, size: int, file: str) -> None:
    """See that the rows are no more than a file of `size` bytes can have. Arrow allocates what a page says."""
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    _check_size(sum(group.total_byte_size for group in groups), size, file)
    if footer.num_rows > size + _FREE_ROWS:
        raise MalformedFile(f"{footer.num_rows} rows in {size} bytes", file=file, hint=_NO_LOG)


def _check_size(unpacked: int, size: int, file: str) -> None:
    most = max(FREE_BYTES, MOST_TIMES * size)
    if unpacked > most:
        raise MalformedFile(f"its rows unpack to more than {most >> 20} MiB", file=file, hint=_NO_LOG)


def _check_schema(schema: pa.Schema, file: str) -> None:
    for name, fitting in _COLUMNS.items():
        count = schema.names.count(name)
        if count != 1:
            fault = "present twice" if count else "missing"
            raise MalformedFile(f"column {name!r} is {fault}", file=file, hint=_HINT)
        found = schema.field(name).type
        kind = found.value_type if types.is_dictionary(found) else found
        if not any(getattr(types, f"is_{each}")(kind) for each in fitting):
            raise MalformedFile(f"column {name!r} is {found}", file=file, hint=_HINT)


def _conforming(batch: pa.RecordBatch, file: str, number: int) -> pa.RecordBatch:
    """The five columns in the types of ``RAW_RECORDS``; timestamps finer than a ms are cut off."""
    batch, columns = batch.select(list(_COLUMNS)), []
    try:
        batch.validate(full=True)  # Arrow's readers trust the buffers of a file
        for name in _COLUMNS:
            column = batch.column(name)
            if pa.types.is_timestamp(column.type):
                column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
            columns.append(column.cast(RAW_RECORDS.field(name).type))
    except pa.ArrowException as error:
        raise MalformedFile(f"batch {number} of its rows: {_reason(error)}", file=file) from error
    for name, column in zip(("partition", "offset"), columns, strict=False):
        if column.null_count or (len(column) and pc.min(column).as_py() < 0):
            raise MalformedFile(f"batch {number} of its rows: {name!r} is null or negative", file=file)
    return pa.RecordBatch.from_arrays(columns, schema=RAW_RECORDS)


def _reason(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
