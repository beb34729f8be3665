"""Where each share partition's replay begins: its newest snapshot or tombstone that can be read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from acktrail.columnar.gather import Integers, Mask
from acktrail.columnar.retained import Values

__all__ = ["newest_readable"]


def newest_readable(owners: Integers, offsets: Integers, values: pa.BinaryArray) -> Integers:
    """Of snapshots and tombstones (null values), the row of each owner's newest one that can be read.

    The newest of each owner is chosen by offset and then decoded. Only where that one cannot be read are the owner's
    others decoded too.
    """
    order = np.lexsort((offsets, owners))
    newest = order[_tails(owners[order])]
    decoder = Values(values)
    readable = _are_readable(decoder, newest)
    if readable.all():
        return newest
    doubtful = order[np.isin(owners[order], owners[newest[~readable]])]
    good = doubtful[_are_readable(decoder, doubtful)]
    return np.concatenate([newest[readable], good[_tails(owners[good])]])


def _tails(owners: Integers) -> Integers:
    """Where each owner's rows end."""
    return np.flatnonzero(np.diff(owners, append=-1))


def _are_readable(values: Values, rows: Integers) -> Mask:
    return values.read(rows, np.ones(len(rows), np.bool_))[1]
