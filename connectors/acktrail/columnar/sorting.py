"""Stable sort orders of int64 arrays."""

from __future__ import annotations

from typing import Final

import numpy as np

from acktrail.columnar.binary_column import Int64Array

_BITS: Final = 63


def ascending(numbers: Int64Array) -> Int64Array:
    """The stable ascending order of `numbers`, as row numbers; both of shape (n,).

    Number and row are packed into one integer where they fit into 63 bits: sorting these is much faster than argsort.

    >>> ascending(np.array([20, 10, 20, 10])).tolist()
    [1, 3, 0, 2]
    """
    if not len(numbers):
        return np.empty(0, np.int64)
    lowest, row_bits = int(numbers.min()), len(numbers).bit_length()
    if (int(numbers.max()) - lowest).bit_length() + row_bits > _BITS:
        return np.argsort(numbers, kind="stable")
    packed = (numbers - lowest) << row_bits | np.arange(len(numbers))
    packed.sort()
    order: Int64Array = packed & ((1 << row_bits) - 1)
    return order


def by_partition_and_offset(partition_index: Int64Array, offsets: Int64Array) -> Int64Array:
    """The stable order of rows by share partition, then offset; all arrays of shape (n,).

    Records that already ascend by offset within each share partition, as in a log, are sorted only once.
    """
    order = ascending(partition_index)
    grouped, ordered = partition_index[order], offsets[order]
    if ((ordered[1:] < ordered[:-1]) & (grouped[1:] == grouped[:-1])).any():
        order = ascending(offsets)
        order = order[ascending(partition_index[order])]
    return order
