"""Rows as objects of JSON, column by column: instants are ISO 8601 in UTC, bytes are base64, null stays null.

Whole numbers of any size stay numbers. A decimal is a text, so that no reader rounds it; so are NaN and infinities, for
which JSON has no number. A time without a zone keeps none.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_INSTANT: Final = "%Y-%m-%dT%H:%M:%S"
_NO_NUMBERS: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def json_rows(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Each row by column name, of values that ``json.dumps`` takes. Raises pa.ArrowException for a type that has no
    JSON."""
    names = rows.column_names
    for batch in rows.to_batches():
        for values in zip(*map(json_values, batch.columns), strict=True):
            yield dict(zip(names, values, strict=True))


def json_values(column: pa.Array) -> list[Any]:
    """The values of a column."""
    kind = column.type
    for is_of, converted in _CONVERSIONS:
        if is_of(kind):
            return converted(column)
    values: list[Any] = column.to_pylist()
    return values


def _instants(column: pa.Array) -> list[Any]:
    zone = "" if column.type.tz is None else "Z"
    texts: list[Any] = pc.strftime(column.view(pa.timestamp(column.type.unit)), format=_INSTANT + zone).to_pylist()
    return texts


def _texts(column: pa.Array) -> list[Any]:
    texts: list[Any] = column.cast(pa.string()).to_pylist()
    return texts


def _bytes(column: pa.Array) -> list[Any]:
    return [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]


def _floats(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if pc.all(pc.is_finite(column)).as_py() in {True, None}:
        return values
    return [value if value is None else _NO_NUMBERS.get(str(value), value) for value in values]


def _lists(column: pa.Array) -> list[Any]:
    items = iter(json_values(column.flatten()))
    return [None if count is None else list(islice(items, count)) for count in pc.list_value_length(column).to_pylist()]


def _structs(column: pa.Array) -> list[Any]:
    names = [field.name for field in column.type]
    rows = zip(*map(json_values, column.flatten()), strict=True) if names else iter([()] * len(column))
    return [
        dict(zip(names, row, strict=True)) if there else None
        for row, there in zip(rows, column.is_valid().to_pylist(), strict=True)
    ]


def _maps(column: pa.Array) -> list[Any]:
    """Objects; a key that is no text is written as one."""
    entries = pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])
    return [
        None if row is None else {str(each["key"]): each["value"] for each in row}
        for row in _lists(column.cast(pa.list_(entries)))
    ]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_decimal(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return any(is_of(kind) for is_of in (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, _is_view))


def _is_view(kind: pa.DataType) -> bool:
    return bool(kind.equals(pa.binary_view()))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


_CONVERSIONS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], list[Any]]], ...]] = (
    (pa.types.is_timestamp, _instants),
    (_is_text, _texts),
    (_is_bytes, _bytes),
    (pa.types.is_floating, _floats),
    (pa.types.is_duration, lambda column: list(column.cast(pa.int64()).to_pylist())),
    (pa.types.is_map, _maps),
    (_is_list, _lists),
    (pa.types.is_struct, _structs),
    (pa.types.is_dictionary, lambda column: json_values(column.dictionary_decode())),
)
"""The first type that a column is of decides; values of all others are those of Python."""
