"""Values of the state topic, many at once: the layouts of ``wire.state_record`` with nothing unusual in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from acktrail.columnar.gather import BinaryColumn, Integers, Mask, binary_column
from acktrail.columnar.schemas import BATCHES

__all__ = ["ValueColumns", "read_values"]

_UPDATE: Final = np.dtype(
    [("version", ">i2"), ("snapshot_epoch", ">i4"), ("leader_epoch", ">i4"), ("start_offset", ">i8")]
)
_SNAPSHOT: Final = np.dtype(
    [
        ("version", ">i2"),
        ("snapshot_epoch", ">i4"),
        ("state_epoch", ">i4"),
        ("leader_epoch", ">i4"),
        ("start_offset", ">i8"),
        ("created", ">i8"),
        ("written", ">i8"),
    ]
)
_BATCH: Final = np.dtype(
    [
        ("first_offset", ">i8"),
        ("last_offset", ">i8"),
        ("delivery_state", "i1"),
        ("delivery_count", ">i2"),
        ("tags", "u1"),
    ]
)
_END: Final = np.dtype([("fields", "u1"), ("tag", "u1"), ("size", "u1"), ("count", ">i4")])
"""The last seven bytes: a tag buffer with the delivery complete count alone; an empty tag buffer is the last byte."""

_VARINT: Final = np.dtype([("low", "u1"), ("high", "u1")])
_EMPTY_TAGS: Final = 1
_ABSENT: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueColumns:
    """What the values say. Rows that are not `regular` hold nothing of meaning. Null where nothing is known."""

    regular: Mask
    snapshot_epoch: pa.Int32Array
    state_epoch: pa.Int32Array
    leader_epoch: pa.Int32Array
    start_offset: pa.Int64Array
    delivery_complete_count: pa.Int32Array
    create_timestamp_ms: pa.Int64Array
    write_timestamp_ms: pa.Int64Array
    batches: pa.ListArray


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arrays:
    """Where each value's array of batches starts and how many it has, zero where the value is not regular."""

    first: Integers
    count: Integers
    regular: Mask


def read_values(values: pa.BinaryArray, is_snapshot: Mask) -> ValueColumns:
    """Columns of `values`.

    Regular are values of version 0 whose batches carry no tagged fields and whose own tag buffer is empty or holds
    the delivery complete count alone, with not a byte left over.
    """
    column = binary_column(values)
    header = column.gather(column.starts, _UPDATE)
    end = column.gather(column.ends - _END.itemsize, _END)
    arrays, batches = _plain_batches(column, _find_arrays(column, header["version"] == 0, is_snapshot, end))
    return ValueColumns(
        regular=arrays.regular,
        **_fields(column, header, is_snapshot),
        delivery_complete_count=_counts(column, arrays, end),
        batches=_list_array(arrays.count, batches),
    )


def _find_arrays(column: BinaryColumn, versioned: Mask, is_snapshot: Mask, end: npt.NDArray[Any]) -> _Arrays:
    header_bytes = np.where(is_snapshot, _SNAPSHOT.itemsize, _UPDATE.itemsize)
    varint = column.gather(column.starts + header_bytes, _VARINT)
    low, high = varint["low"].astype(np.int64), varint["high"].astype(np.int64)
    wide = low >= 0x80
    count = np.where(wide, low & 0x7F | high << 7, low) - 1
    first = header_bytes + 1 + wide
    rest = column.lengths - first - _BATCH.itemsize * count
    # A count is believed only where the batches it announces end exactly before a tag buffer.
    regular = (
        versioned
        & (column.lengths >= header_bytes + _VARINT.itemsize)
        & (count >= 0)
        & ~(wide & (high >= 0x80))
        & _ends_well(rest, end)
    )
    return _Arrays(first=column.starts + first, count=np.where(regular, count, 0), regular=regular)


def _ends_well(rest: Integers, end: npt.NDArray[Any]) -> Mask:
    counted = (end["fields"] == 1) & (end["tag"] == 0) & (end["size"] == 4)
    verdict: Mask = ((rest == _EMPTY_TAGS) & (end["count"] & 0xFF == 0)) | ((rest == _END.itemsize) & counted)
    return verdict


def _plain_batches(column: BinaryColumn, arrays: _Arrays) -> tuple[_Arrays, npt.NDArray[Any]]:
    """The batches of all regular rows end to end; a row with a tagged field in a batch is regular no more."""
    batches = column.gather(_positions(arrays), _BATCH)
    tagged = np.flatnonzero(batches["tags"])
    if not len(tagged):
        return arrays, batches
    regular = arrays.regular.copy()
    regular[np.repeat(np.arange(len(regular)), arrays.count)[tagged]] = False
    plain = _Arrays(first=arrays.first, count=np.where(regular, arrays.count, 0), regular=regular)
    return plain, column.gather(_positions(plain), _BATCH)


def _positions(arrays: _Arrays) -> Integers:
    """Where every batch starts: row by row, 20 bytes apart within a row."""
    before = np.cumsum(arrays.count) - arrays.count
    origin = np.repeat(arrays.first - _BATCH.itemsize * before, arrays.count)
    positions: Integers = origin + _BATCH.itemsize * np.arange(len(origin))
    return positions


def _fields(column: BinaryColumn, header: npt.NDArray[Any], is_snapshot: Mask) -> dict[str, pa.Array]:
    """The fixed fields: every row is read as an update, then the few snapshots are patched."""
    rows = np.flatnonzero(is_snapshot)
    snapshots = column.gather(column.starts[rows], _SNAPSHOT)
    leader_epoch = header["leader_epoch"].astype(np.int32)
    start_offset = header["start_offset"].astype(np.int64)
    unchanged = leader_epoch == _ABSENT
    unchanged[rows] = False
    leader_epoch[rows] = snapshots["leader_epoch"]
    start_offset[rows] = snapshots["start_offset"]
    return {
        "snapshot_epoch": pa.array(header["snapshot_epoch"].astype(np.int32)),
        "leader_epoch": pa.array(leader_epoch, mask=unchanged),
        "start_offset": pa.array(start_offset, mask=start_offset == _ABSENT),
        "state_epoch": _of_snapshots(is_snapshot, rows, snapshots["state_epoch"], np.int32),
        "create_timestamp_ms": _of_snapshots(is_snapshot, rows, snapshots["created"], np.int64),
        "write_timestamp_ms": _of_snapshots(is_snapshot, rows, snapshots["written"], np.int64),
    }


def _of_snapshots(
    is_snapshot: Mask, rows: Integers, numbers: npt.NDArray[Any], kind: type[np.integer[Any]]
) -> pa.Array:
    column = np.zeros(len(is_snapshot), kind)
    column[rows] = numbers
    return pa.array(column, mask=~is_snapshot)


def _counts(column: BinaryColumn, arrays: _Arrays, end: npt.NDArray[Any]) -> pa.Int32Array:
    counted = column.ends - arrays.first - _BATCH.itemsize * arrays.count == _END.itemsize
    count = end["count"].astype(np.int32)
    return pa.array(count, mask=~counted | (count == _ABSENT))


def _list_array(counts: Integers, batches: npt.NDArray[Any]) -> pa.ListArray:
    bounds = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=bounds[1:])
    fields = list(BATCHES.value_type)
    children = [pa.array(batches[field.name].astype(field.type.to_pandas_dtype())) for field in fields]
    return pa.ListArray.from_arrays(pa.array(bounds), pa.StructArray.from_arrays(children, fields=fields), type=BATCHES)
