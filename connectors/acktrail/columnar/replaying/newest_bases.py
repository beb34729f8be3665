"""Where each share partition's replay begins: its newest snapshot or tombstone that can be read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from acktrail.columnar.binary_column import BoolArray, Int64Array, binary_column
from acktrail.columnar.replaying.lazy_batches import read_lazy
from acktrail.columnar.replaying.pending_records import read_irregular
from acktrail.columnar.sorting import by_partition_and_offset

__all__ = ["newest_readable"]


def newest_readable(owners: Int64Array, offsets: Int64Array, values: pa.BinaryArray) -> Int64Array:
    """Of snapshots and tombstones (null values), the row of each owner's newest one that can be read.

    The newest of each owner is chosen by offset and then decoded. Only where that one cannot be read are the owner's
    others decoded too.
    """
    order = by_partition_and_offset(owners, offsets)
    newest = order[_tails(owners[order])]
    readable = _are_readable(values, newest)
    if readable.all():
        return newest
    doubtful = order[np.isin(owners[order], owners[newest[~readable]])]
    good = doubtful[_are_readable(values, doubtful)]
    return np.concatenate([newest[readable], good[_tails(owners[good])]])


def _tails(owners: Int64Array) -> Int64Array:
    """Where each owner's rows end."""
    return np.flatnonzero(np.diff(owners, append=-1))


def _are_readable(values: pa.BinaryArray, rows: Int64Array) -> BoolArray:
    is_snapshot = np.ones(len(rows), np.bool_)
    readable = read_lazy(binary_column(values).take(rows), is_snapshot)[1].copy()
    odd = np.flatnonzero(~readable)
    if len(odd):
        readable[odd] = read_irregular(values.take(pa.array(rows[odd])), is_snapshot[odd])[1]
    return readable
