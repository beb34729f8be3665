"""Values of the state topic, decoded in bulk: the layouts of ``wire.state_record``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from acktrail.format.columns.binary_column import BinaryColumn, BoolArray, Int64Array, strides
from acktrail.format.columns.record_columns import CONTENT_NUMBERS, BatchColumns, NumberColumn, RecordColumns

DecodeIrregular = Callable[[Int64Array], RecordColumns]
"""Decodes the values in some rows; nulls and no batches where a value cannot be read."""

_VARINT: Final = [("low", "u1"), ("high", "u1")]
UPDATE: Final = np.dtype(
    [("version", ">i2"), ("snapshot_epoch", ">i4"), ("leader_epoch", ">i4"), ("start_offset", ">i8"), *_VARINT]
)
SNAPSHOT: Final = np.dtype(
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
"""The last seven bytes: a tag buffer with only the delivery complete count. An empty tag buffer is one byte."""

_COUNT_MARK: Final = 0x04_00_01
"""One field, tag 0, of four bytes: how such a tag buffer begins, as a little-endian number of three bytes."""

_ABSENT: Final = -1
_Numbers = dict[str, npt.NDArray[Any]]


def read_values(
    column: BinaryColumn, is_snapshot: BoolArray, decode_irregular: DecodeIrregular, trusted: BoolArray
) -> RecordColumns:
    """``CONTENT_NUMBERS`` and batches of every value; `decode_irregular` decodes the irregular and the untrusted ones.

    Args:
        column: the n values.
        is_snapshot, trusted: shape (n,): the type of each key, and whether its value may be read in bulk.
    """
    numbers, first, counts, regular = _find_regular(column, is_snapshot, trusted)
    irregular = np.flatnonzero(~regular)
    other = decode_irregular(irregular) if len(irregular) else None
    if other is not None:
        counts[irregular] = other.batches.counts
        for name, number in numbers.items():
            number.put(irregular, other.numbers[name])
    batches = _gather_batches(column, first, counts)
    if other is not None:
        ends = np.cumsum(counts)[irregular]
        batches[strides(ends - other.batches.counts, other.batches.counts, 1)] = other.batches.structures(BATCH)
    narrower = _without_tagged(trusted, batches, counts)
    if narrower is not None:
        return read_values(column, is_snapshot, decode_irregular, narrower)
    return RecordColumns(numbers=numbers, batches=BatchColumns.of_structures(counts, batches))


def _find_regular(
    column: BinaryColumn, is_snapshot: BoolArray, trusted: BoolArray
) -> tuple[dict[str, NumberColumn], Int64Array, Int64Array, BoolArray]:
    """``CONTENT_NUMBERS``, where the batches begin, how many there are, and which of the `trusted` values are regular;
    shapes (rows,). Other rows have no batches, and numbers without meaning.

    A regular value has version 0, batches without tagged fields, a tag buffer that is empty or holds the delivery
    complete count alone, and no byte after it. ``_without_tagged`` then finds the few whose batches have tagged fields.
    """
    updates, end = column.heads_and_ends(UPDATE, _END)
    heads = _read_heads(column, is_snapshot, updates)
    size = np.where(is_snapshot, SNAPSHOT.itemsize, UPDATE.itemsize)
    counts, first = heads["low"].astype(np.int64), column.starts + size - 1
    is_sane = heads["version"] == 0
    wide = np.flatnonzero(heads["low"] >= 0x80)
    counts[wide] = (counts[wide] & 0x7F) | heads["high"][wide].astype(np.int64) << 7
    first[wide] += 1
    is_sane[wide[heads["high"][wide] >= 0x80]] = False
    counts -= 1
    # A count is valid only where the batches it announces end exactly before a tag buffer.
    rest = column.ends - first - BATCH.itemsize * counts
    has_count = (rest == _END.itemsize) & (end["mark"] & 0xFFFFFF == _COUNT_MARK)
    has_none = (rest == 1) & (end["count"] & 0xFF == 0)
    regular = trusted & is_sane & (counts >= 0) & (column.lengths >= size) & (has_count | has_none)
    counts[~regular] = 0
    return _numbers(heads, is_snapshot, end["count"], has_count), first, counts, regular


def _gather_batches(column: BinaryColumn, first: Int64Array, counts: Int64Array) -> npt.NDArray[Any]:
    """The encoded batches of all rows, end to end: ``counts[i]`` structures of ``BATCH`` from byte ``first[i]``."""
    return column.gather(strides(first, counts, BATCH.itemsize), BATCH)


def _without_tagged(trusted: BoolArray, batches: npt.NDArray[Any], counts: Int64Array) -> BoolArray | None:
    """`trusted`, false for rows with a batch that has tagged fields: the length of such a value looks regular by
    chance. None: there is no such row. ``counts[i]`` of `batches` belong to row i."""
    if not batches["tags"].max(initial=0):
        return None
    narrower = trusted.copy()
    narrower[np.repeat(np.arange(len(counts)), counts)[batches["tags"] != 0]] = False
    return narrower


def _read_heads(column: BinaryColumn, is_snapshot: BoolArray, updates: npt.NDArray[Any]) -> _Numbers:
    """The fields before the batches: `updates` has every row read as an update; the few snapshots are corrected."""
    heads = {name: updates[name].astype(UPDATE[name].newbyteorder("=")) for name in UPDATE.names or ()}
    rows = np.flatnonzero(is_snapshot)
    snapshots = column.gather(column.starts[rows], SNAPSHOT)
    for name in SNAPSHOT.names or ():
        if name not in heads:
            heads[name] = np.zeros(len(is_snapshot), SNAPSHOT[name].newbyteorder("="))
        heads[name][rows] = snapshots[name]
    return heads


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
