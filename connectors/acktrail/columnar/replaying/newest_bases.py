"""The base that each share partition's replay starts from: its newest readable snapshot or tombstone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from acktrail.columnar.binary_column import BoolArray, Int64Array, binary_column
from acktrail.columnar.replaying.lazy_batches import read_lazy
from acktrail.columnar.replaying.pending_records import read_irregular
from acktrail.columnar.sorting import by_partition_and_offset


def first_replayed(bases: Int64Array, is_tombstone: BoolArray) -> Int64Array:
    """The first offset that replay needs of share partitions whose newest base is at `bases`: a snapshot itself, or
    what follows a tombstone. Shapes (n,)."""
    return bases + is_tombstone


def newest_readable(partition_index: Int64Array, offsets: Int64Array, values: pa.BinaryArray) -> Int64Array:
    """The row of the newest readable base of each share partition.

    Args:
        partition_index, offsets: int64, shape (n,), in any order.
        values: the n values of snapshots, null for tombstones.

    The newest of each share partition is decoded first; its other bases only where that one cannot be read.
    """
    order = by_partition_and_offset(partition_index, offsets)
    newest = order[_ends(partition_index[order])]
    readable = _are_readable(values, newest)
    if readable.all():
        return newest
    candidates = order[np.isin(partition_index[order], partition_index[newest[~readable]])]
    good = candidates[_are_readable(values, candidates)]
    return np.concatenate([newest[readable], good[_ends(partition_index[good])]])


def _ends(partition_index: Int64Array) -> Int64Array:
    """Where the rows of each share partition end."""
    return np.flatnonzero(np.diff(partition_index, append=-1))


def _are_readable(values: pa.BinaryArray, rows: Int64Array) -> BoolArray:
    is_snapshot = np.ones(len(rows), np.bool_)
    readable = read_lazy(binary_column(values).take(rows), is_snapshot)[1].copy()
    irregular = np.flatnonzero(~readable)
    if len(irregular):
        readable[irregular] = read_irregular(values.take(pa.array(rows[irregular])), is_snapshot[irregular])[1]
    return readable
