"""Values of the state topic, many at once: the layouts of ``wire.state_record``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from acktrail.columnar.columns import SAID_NUMBERS, BatchColumns, Column, RecordColumns
from acktrail.columnar.gather import BinaryColumn, Integers, Mask, strides

__all__ = ["DecodeRows", "read_values"]

DecodeRows = Callable[[Integers, BinaryColumn], RecordColumns]
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

_BATCH: Final = np.dtype(
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
class _Arrays:
    """Where each value's array of batches starts and how many it has: none where the value is not regular."""

    first: Integers
    count: Integers
    regular: Mask
    has_complete_count: Mask


def read_values(column: BinaryColumn, is_snapshot: Mask, decode_rows: DecodeRows, trusted: Mask) -> RecordColumns:
    """``SAID_NUMBERS`` and the batches of every value.

    Regular values are read in bulk: version 0, batches without tagged fields, a tag buffer that is empty or holds the
    delivery complete count alone, not a byte left over. Of all others, and of rows that are not `trusted`, it is what
    `decode_rows` says.
    """
    heads = _read_heads(column, is_snapshot)
    end = column.gather(column.ends - _END.itemsize, _END)
    arrays = _find_arrays(column, is_snapshot, heads, end, trusted)
    odd = np.flatnonzero(~arrays.regular)
    said = decode_rows(odd, column.take(odd)) if len(odd) else None
    if said is not None:
        arrays.count[odd] = said.batches.counts
    batches = column.gather(strides(arrays.first, arrays.count, _BATCH.itemsize), _BATCH)
    if said is not None:
        batches[_places(arrays.count, odd)] = said.batches.structures(_BATCH)
    if batches["tags"].any():  # of a length that looks regular: once more, with these rows read one by one
        regular = arrays.regular.copy()
        regular[np.repeat(np.arange(len(regular)), arrays.count)[batches["tags"] != 0]] = False
        return read_values(column, is_snapshot, decode_rows, regular)
    numbers = _numbers(heads, is_snapshot, arrays, end["count"])
    if said is not None:
        for name, number in numbers.items():
            number.put(odd, said.numbers[name])
    return RecordColumns(numbers=numbers, batches=_batch_columns(arrays.count, batches))


def _read_heads(column: BinaryColumn, is_snapshot: Mask) -> _Numbers:
    """The fields before the batches: every row is read as an update, then the few snapshots are corrected."""
    updates = column.gather(column.starts, _UPDATE)
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


def _find_arrays(
    column: BinaryColumn, is_snapshot: Mask, heads: _Numbers, end: npt.NDArray[Any], trusted: Mask
) -> _Arrays:
    size = np.where(is_snapshot, _SNAPSHOT.itemsize, _UPDATE.itemsize)
    count, first = heads["low"].astype(np.int64), column.starts + size - 1
    is_sane = heads["version"] == 0
    wide = np.flatnonzero(heads["low"] >= 0x80)
    count[wide] = (count[wide] & 0x7F) | heads["high"][wide].astype(np.int64) << 7
    first[wide] += 1
    is_sane[wide[heads["high"][wide] >= 0x80]] = False
    count -= 1
    # A count is believed only where the batches it announces end exactly before a tag buffer.
    rest = column.ends - first - _BATCH.itemsize * count
    has_count = (rest == _END.itemsize) & (end["mark"] & 0xFFFFFF == _COUNT_MARK)
    has_none = (rest == 1) & (end["count"] & 0xFF == 0)
    regular = trusted & is_sane & (count >= 0) & (column.lengths >= size) & (has_count | has_none)
    count[~regular] = 0
    return _Arrays(first=first, count=count, regular=regular, has_complete_count=has_count)


def _numbers(
    heads: _Numbers, is_snapshot: Mask, arrays: _Arrays, complete_count: npt.NDArray[Any]
) -> dict[str, Column]:
    count = complete_count.astype(np.int32)
    leader_epoch, start_offset = heads["leader_epoch"], heads["start_offset"]
    known = {
        "snapshot_epoch": np.ones(len(is_snapshot), np.bool_),
        "state_epoch": is_snapshot.copy(),
        "leader_epoch": is_snapshot | (leader_epoch != _ABSENT),
        "start_offset": start_offset != _ABSENT,
        "delivery_complete_count": arrays.has_complete_count & (count != _ABSENT),
        "create_timestamp_ms": is_snapshot.copy(),
        "write_timestamp_ms": is_snapshot.copy(),
    }
    values = {**heads, "delivery_complete_count": count}
    return {name: Column(values=values[name], known=known[name]) for name in SAID_NUMBERS}


def _places(counts: Integers, rows: Integers) -> Integers:
    """Where the items of `rows` are, when rows of `counts` items lie end to end."""
    return strides(np.cumsum(counts)[rows] - counts[rows], counts[rows], 1)


def _batch_columns(counts: Integers, batches: npt.NDArray[Any]) -> BatchColumns:
    return BatchColumns(
        counts=counts,
        first_offset=batches["first_offset"].astype(np.int64),
        last_offset=batches["last_offset"].astype(np.int64),
        delivery_state=batches["delivery_state"].copy(),
        delivery_count=batches["delivery_count"].astype(np.int16),
    )
