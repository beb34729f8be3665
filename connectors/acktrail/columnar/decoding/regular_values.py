"""Values of the state topic, many at once: the layouts of ``wire.dialects.kafka_4_2``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from acktrail.columnar.binary_column import BinaryColumn, BoolArray, Int64Array, strides
from acktrail.columnar.record_columns import CONTENT_NUMBERS, BatchColumns, NumberColumn, RecordColumns

__all__ = [
    "BATCH",
    "DecodeIrregular",
    "RegularValues",
    "batch_columns",
    "find_regular",
    "gather_batches",
    "read_values",
    "rows_with_tags",
    "without",
]

DecodeIrregular = Callable[[Int64Array, BinaryColumn], RecordColumns]
"""What is read in some rows, whose values are the column; no number and no batch where nothing can be read."""

_VARINT: Final = [("low", "u1"), ("high", "u1")]
_UPDATE: Final = np.dtype(
    [("version", ">i2"), ("snapshot_epoch", ">i4"), ("leader_epoch", ">i4"), ("start_offset", ">i8"), *_VARINT]
)
_SNAPSHOT: Final = np.dtype(
    [
        ("version", ">i2"),
        ("snapshot_epoch", ">i4"),
        ("state_epoch", ">i4"),
        ("leader_epoch", ">i4"),
        ("start_offset", ">i8"),
        ("create_timestamp_ms", ">i8"),
        ("write_timestamp_ms", ">i8"),
        *_VARINT,
    ]
)
"""The fixed fields and the first two bytes of the array of batches: its length, and perhaps that of the first batch."""

BATCH: Final = np.dtype(
    [
        ("first_offset", ">i8"),
        ("last_offset", ">i8"),
        ("delivery_state", "i1"),
        ("delivery_count", ">i2"),
        ("tags", "u1"),
    ]
)
_END: Final = np.dtype({"names": ["mark", "count"], "formats": ["<u4", ">i4"], "offsets": [0, 3], "itemsize": 7})
"""The last seven bytes: a tag buffer with the delivery complete count alone. An empty tag buffer is the last byte."""

_COUNT_MARK: Final = 0x04_00_01
"""One field, tag 0, of four bytes: how such a tag buffer begins, as a little-endian number of three bytes."""

_ABSENT: Final = -1
_Numbers = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegularValues:
    """``CONTENT_NUMBERS`` of the values that are `regular`, and where their batches are: row i's `counts[i]` from
    ``first[i]`` on. Other rows have none, and numbers without meaning."""

    numbers: dict[str, NumberColumn]
    first: Int64Array
    counts: Int64Array
    regular: BoolArray


def read_values(
    column: BinaryColumn, is_snapshot: BoolArray, decode_rows: DecodeIrregular, trusted: BoolArray
) -> RecordColumns:
    """``CONTENT_NUMBERS`` and the batches of every value: of regular ones in bulk; of others, and of those that are not
    `trusted`, it is what `decode_rows` says.
    """
    found = find_regular(column, is_snapshot, trusted)
    odd = np.flatnonzero(~found.regular)
    said = decode_rows(odd, column.take(odd)) if len(odd) else None
    if said is not None:
        found.counts[odd] = said.batches.counts
        for name, number in found.numbers.items():
            number.put(odd, said.numbers[name])
    batches = gather_batches(column, found.first, found.counts)
    if said is not None:
        ends = np.cumsum(found.counts)[odd]
        batches[strides(ends - said.batches.counts, said.batches.counts, 1)] = said.batches.structures(BATCH)
    tagged = rows_with_tags(batches, found.counts)
    if len(tagged):
        return read_values(column, is_snapshot, decode_rows, without(trusted, tagged))
    return RecordColumns(numbers=found.numbers, batches=batch_columns(found.counts, batches))


def find_regular(column: BinaryColumn, is_snapshot: BoolArray, trusted: BoolArray) -> RegularValues:
    """The regular values among the `trusted` ones.

    Regular are values of version 0 whose batches carry no tagged fields and whose own tag buffer is empty or holds the
    delivery complete count alone, with not a byte left over. Whether batches carry some is not looked at yet.
    """
    updates, end = column.heads_and_ends(_UPDATE, _END)
    heads = _read_heads(column, is_snapshot, updates)
    size = np.where(is_snapshot, _SNAPSHOT.itemsize, _UPDATE.itemsize)
    counts, first = heads["low"].astype(np.int64), column.starts + size - 1
    is_sane = heads["version"] == 0
    wide = np.flatnonzero(heads["low"] >= 0x80)
    counts[wide] = (counts[wide] & 0x7F) | heads["high"][wide].astype(np.int64) << 7
    first[wide] += 1
    is_sane[wide[heads["high"][wide] >= 0x80]] = False
    counts -= 1
    # A count is believed only where the batches it announces end exactly before a tag buffer.
    rest = column.ends - first - BATCH.itemsize * counts
    has_count = (rest == _END.itemsize) & (end["mark"] & 0xFFFFFF == _COUNT_MARK)
    has_none = (rest == 1) & (end["count"] & 0xFF == 0)
    regular = trusted & is_sane & (counts >= 0) & (column.lengths >= size) & (has_count | has_none)
    counts[~regular] = 0
    return RegularValues(
        numbers=_numbers(heads, is_snapshot, end["count"], has_count), first=first, counts=counts, regular=regular
    )


def gather_batches(column: BinaryColumn, first: Int64Array, counts: Int64Array) -> npt.NDArray[Any]:
    """The batches of rows, end to end, as they are spelled: `counts` of them from `first` on."""
    return column.gather(strides(first, counts, BATCH.itemsize), BATCH)


def rows_with_tags(batches: npt.NDArray[Any], counts: Int64Array) -> Int64Array:
    """The rows with a spelled batch, `counts` of which each row has, that carries tagged fields after all: by chance
    its value has a length that looks regular."""
    if not batches["tags"].max(initial=0):
        return np.empty(0, np.int64)
    rows: Int64Array = np.repeat(np.arange(len(counts)), counts)[batches["tags"] != 0]
    return rows


def without(mask: BoolArray, rows: Int64Array) -> BoolArray:
    """`mask` where it does not hold for `rows`."""
    narrower = mask.copy()
    narrower[rows] = False
    return narrower


def batch_columns(counts: Int64Array, batches: npt.NDArray[Any]) -> BatchColumns:
    """Columns of spelled batches, `counts` of which each row has."""
    return BatchColumns(
        counts=counts,
        first_offset=batches["first_offset"].astype(np.int64),
        last_offset=batches["last_offset"].astype(np.int64),
        delivery_state=batches["delivery_state"].copy(),
        delivery_count=batches["delivery_count"].astype(np.int16),
    )


def _read_heads(column: BinaryColumn, is_snapshot: BoolArray, updates: npt.NDArray[Any]) -> _Numbers:
    """The fields before the batches: every row was read as an update, now the few snapshots are corrected."""
    heads = {name: updates[name].astype(_native(_UPDATE, name)) for name in _UPDATE.names or ()}
    rows = np.flatnonzero(is_snapshot)
    snapshots = column.gather(column.starts[rows], _SNAPSHOT)
    for name in _SNAPSHOT.names or ():
        if name not in heads:
            heads[name] = np.zeros(len(is_snapshot), _native(_SNAPSHOT, name))
        heads[name][rows] = snapshots[name]
    return heads


def _native(layout: np.dtype[np.void], name: str) -> np.dtype[Any]:
    return layout[name].newbyteorder("=")


def _numbers(
    heads: _Numbers, is_snapshot: BoolArray, complete_count: npt.NDArray[Any], has_complete_count: BoolArray
) -> dict[str, NumberColumn]:
    count = complete_count.astype(np.int32)
    leader_epoch, start_offset = heads["leader_epoch"], heads["start_offset"]
    known = {
        "snapshot_epoch": np.ones(len(is_snapshot), np.bool_),
        "state_epoch": is_snapshot.copy(),
        "leader_epoch": is_snapshot | (leader_epoch != _ABSENT),
        "start_offset": start_offset != _ABSENT,
        "delivery_complete_count": has_complete_count & (count != _ABSENT),
        "create_timestamp_ms": is_snapshot.copy(),
        "write_timestamp_ms": is_snapshot.copy(),
    }
    values = {**heads, "delivery_complete_count": count}
    return {name: NumberColumn(values=values[name], known=known[name]) for name in CONTENT_NUMBERS}
