"""Whether the decoded columns of ``state_records`` are what its raw keys and values say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.decoding.decode_records import DECODED_RECORDS, decode_records
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.record_files import RECORDS

CONTRADICTIONS: Final = pa.schema(
    [pa.field("state_partition", pa.int32()), pa.field("offset", pa.int64()), pa.field("columns", pa.string())]
)
"""Records whose decoded columns say something else than their raw bytes; `columns` are named, comma-separated."""
_RAW: Final = dict(zip(RAW_RECORDS.names, ("state_partition", "offset", "timestamp_ms", "key", "value"), strict=True))
_COMPARED: Final = tuple(name for name in DECODED_RECORDS.names if name not in {*_RAW.values(), "decode_error"})
COMPARED_COLUMNS: Final = (*_RAW.values(), *_COMPARED)
"""The columns of ``STATE_RECORDS`` that the comparison needs: address, time and bytes, and what is compared."""
_NESTED_AT_ONCE: Final = 4_096


def contradictions(tables: Tables, paths: Sequence[str]) -> Iterator[pa.Table]:
    """Rows of ``CONTRADICTIONS`` in files of ``state_records``, batch by batch, empty ones too."""
    for batch in tables.file_batches(RECORDS, paths, columns=COMPARED_COLUMNS):
        stored = pa.Table.from_batches([batch])
        found = differing_columns(stored)
        rows = stored.select(["state_partition", "offset"]).take(pa.array(sorted(found), pa.int64()))
        names = pa.array([", ".join(found[row]) for row in sorted(found)], pa.string())
        yield pa.Table.from_arrays([*rows.columns, names], schema=CONTRADICTIONS)


def differing_columns(stored: pa.Table) -> dict[int, list[str]]:
    """By index of a row of `stored` (``COMPARED_COLUMNS``): its decoded columns that say something else than its bytes.
    A record that cannot be decoded agrees where its `decode_status` is the one that its bytes lead to."""
    raw = pa.Table.from_arrays([stored[name] for name in _RAW.values()], schema=RAW_RECORDS)
    decoded = decode_records(raw)
    found: dict[int, list[str]] = {}
    for name in _COMPARED:
        for row in _different(stored[name].combine_chunks(), decoded[name].combine_chunks()):
            found.setdefault(row, []).append(name)
    return found


def _different(stored: pa.Array, decoded: pa.Array) -> Iterable[int]:
    """Rows in which the two differ; a null is equal to a null."""
    if stored.equals(decoded):
        return ()
    if pa.types.is_nested(stored.type):
        return _different_nested(stored, decoded)
    unequal = pc.fill_null(pc.not_equal(stored, decoded), fill_value=False)
    one_is_null = pc.xor(pc.is_null(stored), pc.is_null(decoded))
    rows: list[int] = pc.indices_nonzero(pc.or_(unequal, one_is_null)).to_pylist()
    return rows


def _different_nested(stored: pa.Array, decoded: pa.Array) -> Iterator[int]:
    """The same for lists, in small parts: as Python objects they take many times their place."""
    for begin in range(0, len(stored), _NESTED_AT_ONCE):
        one, two = (column.slice(begin, _NESTED_AT_ONCE) for column in (stored, decoded))
        if not one.equals(two):
            pairs: Iterable[tuple[Any, Any]] = zip(one.to_pylist(), two.to_pylist(), strict=True)
            yield from (begin + row for row, (left, right) in enumerate(pairs) if left != right)
