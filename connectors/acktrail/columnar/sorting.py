"""Stable orders of numbers: packed with its row into one integer a number sorts much faster than by argsort."""

from __future__ import annotations

from typing import Final

import numpy as np

from acktrail.columnar.binary_column import Int64Array

__all__ = ["ascending", "by_partition_and_offset"]

_BITS: Final = 63


def ascending(numbers: Int64Array) -> Int64Array:
    """The stable order of `numbers`."""
    if not len(numbers):
        return np.empty(0, np.int64)
    lowest, row_bits = int(numbers.min()), len(numbers).bit_length()
    if (int(numbers.max()) - lowest).bit_length() + row_bits > _BITS:
        return np.argsort(numbers, kind="stable")
    packed = (numbers - lowest) << row_bits | np.arange(len(numbers))
    packed.sort()
    order: Int64Array = packed & ((1 << row_bits) - 1)
    return order


def by_partition_and_offset(owners: Int64Array, offsets: Int64Array) -> Int64Array:
    """Rows by owner, an owner's by offset. Rows that come in the order of their offsets are sorted only once."""
    order = ascending(owners)
    grouped, ordered = owners[order], offsets[order]
    if ((ordered[1:] < ordered[:-1]) & (grouped[1:] == grouped[:-1])).any():
        order = ascending(offsets)
        order = order[ascending(owners[order])]
    return order
