"""Parquet and Arrow files with the columns of ``RAW_RECORDS``, a batch of rows at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from acktrail.errors import AcktrailError, MalformedFile
from acktrail.offline.read.codecs import bare_suffix, open_file, pyarrow_for
from acktrail.wire.raw_record import RawRecord

if TYPE_CHECKING:
    import pyarrow as pa


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
_HINT: Final = "the columns are partition, offset, timestamp (integers, ms), key and value (binary)"


def read_columns(file: Path) -> Iterator[RawRecord]:
    """Every record of a Parquet or Arrow file, in its order; other columns are ignored.

    Raises:
        UnknownName: the file does not exist.
        MalformedFile: it is another kind of file or damaged, a column is missing or of another type, or a row has no
            address.
    """
    for batch in read_column_batches(file):
        for start in range(0, batch.num_rows, _VALUES_AT_ONCE):
            columns = [column.to_pylist() for column in batch.slice(start, _VALUES_AT_ONCE).columns]
            for partition, offset, timestamp, key, value in zip(*columns, strict=True):
                yield RawRecord(
                    state_partition=partition,
                    offset=offset,
                    timestamp_ms=-1 if timestamp is None else timestamp,
                    key=key,
                    value=value,
                )


def read_column_batches(file: Path) -> Iterator[pa.RecordBatch]:
    """The rows as batches of ``RAW_RECORDS``, one row group or record batch in memory at a time; as `read_columns`."""
    pyarrow_for(f"{file}: reading it")
    with open_file(file) as raw:
        try:
            schema, batches = _reader(raw, bare_suffix(file))
            _check_schema(schema, str(file))
            for number, batch in enumerate(batches, start=1):
                yield _conforming(batch, str(file), number)
        except AcktrailError:
            raise
        except Exception as error:  # Arrow's readers raise errors of any type for a damaged file
            message = f"no {bare_suffix(file)[1:]} file, or damaged: {_reason(error)}"
            raise MalformedFile(message, file=str(file)) from error


def _reader(raw: BinaryIO, suffix: str) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if suffix == ".parquet":
        parquet = pq.ParquetFile(raw, pre_buffer=False)  # else all of the file's bytes are fetched ahead
        wanted = [name for name in parquet.schema_arrow.names if name in _COLUMNS]
        return parquet.schema_arrow, parquet.iter_batches(batch_size=_ROWS_AT_ONCE, columns=wanted)
    is_file = raw.read(len(_ARROW_FILE)) == _ARROW_FILE
    raw.seek(0)
    if is_file:
        arrow = pa.ipc.open_file(raw)
        return arrow.schema, (arrow.get_batch(index) for index in range(arrow.num_record_batches))
    stream = pa.ipc.open_stream(raw)
    return stream.schema, stream


def _check_schema(schema: pa.Schema, file: str) -> None:
    from pyarrow import types

    for name, fitting in _COLUMNS.items():
        count = schema.names.count(name)
        if count != 1:
            fault = "there twice" if count else "missing"
            raise MalformedFile(f"column {name!r} is {fault}", file=file, hint=_HINT)
        found = schema.field(name).type
        kind = found.value_type if types.is_dictionary(found) else found
        if not any(getattr(types, f"is_{each}")(kind) for each in fitting):
            raise MalformedFile(f"column {name!r} is {found}", file=file, hint=_HINT)


def _conforming(batch: pa.RecordBatch, file: str, number: int) -> pa.RecordBatch:
    """The five columns in the types of ``RAW_RECORDS``; timestamps finer than a ms are cut off."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from acktrail.columnar.schemas.table_schemas import RAW_RECORDS

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
