"""A state topic as raw Arrow columns, written by numpy: millions of records in a second.

What it is like (the figures are means): share partitions with lognormal rates; group ids of 8 to 40 characters; updates
of 2.5 batches, snapshots of 6 and one in a hundred of 130 to 300; three values in five with a delivery complete count;
two updates in five that leave the start offset alone; a snapshot after 500 updates and wherever the start offset moved
without a batch; a few tombstones; a few odd records (an unknown tag, a tag inside a batch, an overlong length, an
unknown version, a value cut off).
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
from acktrail.format.wire.state_record import SNAPSHOT_TYPE, UPDATE_TYPE, encode_key
from acktrail.model.share_partition import GroupId, SharePartition, state_partition_of, topic_id_text

STATE_PARTITIONS = 50
UPDATES_PER_SNAPSHOT = 500
_MOST_BATCHES = 20

_UPDATE = np.dtype([("version", ">i2"), ("snapshot_epoch", ">i4"), ("leader_epoch", ">i4"), ("start_offset", ">i8")])
_SNAPSHOT = np.dtype(
    [("version", ">i2"), ("snapshot_epoch", ">i4"), ("state_epoch", ">i4"), ("leader_epoch", ">i4"),
     ("start_offset", ">i8"), ("created", ">i8"), ("written", ">i8")]
)  # fmt: skip
_BATCH = np.dtype([("first", ">i8"), ("last", ">i8"), ("state", "i1"), ("count", ">i2"), ("tags", "u1")])
_COUNT = np.dtype([("fields", "u1"), ("tag", "u1"), ("size", "u1"), ("count", ">i4")])

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogShape:
    """What a log is like. `skew`: the part of all records that the busiest share partition has; None: as rates fall."""

    records: int
    share_partitions: int = 5_000
    moved_starts: float = 0.005
    odd: float = 0.001
    tombstones: float = 0.0003
    skew: float | None = None
    seed: int = 7


def raw_log(shape: LogShape) -> pa.Table:
    """`shape.records` records (``RAW_RECORDS``), in log order per state partition; the same for the same shape."""
    source = np.random.default_rng(shape.seed)
    owners = _owners(shape, source)
    snapshot_keys, update_keys, homes = _share_partitions(shape)
    place = _place_within(owners)
    snapshots = (place % (UPDATES_PER_SNAPSHOT + 1) == 0) | (source.random(shape.records) < shape.moved_starts)
    values = _values(shape, owners, place, snapshots, source)
    keys = pa.concat_arrays([update_keys, snapshot_keys]).take(pa.array(owners + snapshots * shape.share_partitions))
    table = pa.Table.from_arrays(
        [
            pa.array(homes[owners]),
            pa.array(_place_within(homes[owners])),
            pa.array(1_790_000_000_000 + np.arange(shape.records) // 20),
            keys,
            values,
        ],
        schema=RAW_RECORDS,
    )
    return _with_odd(table, shape, snapshots, source)


def _owners(shape: LogShape, source: np.random.Generator) -> Array:
    rates = source.lognormal(sigma=1.0, size=shape.share_partitions)
    if shape.skew is not None:
        rates *= (1 - shape.skew) / rates[1:].sum()
        rates[0] = shape.skew
    reach = np.cumsum(rates / rates.sum())
    drawn = np.searchsorted(reach, source.random(shape.records))
    return np.minimum(drawn, shape.share_partitions - 1).astype(np.int64)


def _share_partitions(shape: LogShape) -> tuple[pa.BinaryArray, pa.BinaryArray, Array]:
    """Snapshot keys, update keys and state partitions of all share partitions."""
    source = random.Random(shape.seed)
    topics = [topic_id_text(source.randbytes(16)) for _ in range(1 + shape.share_partitions // 24)]
    groups = [GroupId(f"group-{n:02d}-" + "x" * source.randrange(32)) for n in range(97)]
    found = [
        SharePartition(group_id=groups[n % 97], topic_id=topics[n // 24], partition=n % 24)
        for n in range(shape.share_partitions)
    ]
    keys = [pa.array([encode_key(kind, key) for key in found], pa.binary()) for kind in (SNAPSHOT_TYPE, UPDATE_TYPE)]
    homes = np.array([state_partition_of(key, STATE_PARTITIONS) for key in found], np.int32)
    return keys[0], keys[1], homes


def _place_within(groups: Array) -> Array:
    """How many rows of the same group come before each row."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    heads = np.flatnonzero(np.diff(ordered, prepend=-1))
    place = np.empty(len(groups), np.int64)
    place[order] = np.arange(len(groups)) - np.repeat(heads, np.diff(heads, append=len(groups)))
    return place


def _values(shape: LogShape, owners: Array, place: Array, snapshots: Array, source: np.random.Generator) -> pa.Array:
    rows = shape.records
    counts = np.minimum(source.geometric(np.where(snapshots, 0.16, 0.4)), _MOST_BATCHES)
    large = snapshots & (source.random(rows) < 0.01)
    counts[large] = source.integers(130, 301, large.sum())
    counted = source.random(rows) < 0.6
    wide = counts >= 127
    head = np.where(snapshots, _SNAPSHOT.itemsize, _UPDATE.itemsize)
    tail = np.where(counted, _COUNT.itemsize, 1)
    lengths = head + 1 + wide + _BATCH.itemsize * counts + tail
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    octets = np.zeros(bounds[-1], np.uint8)
    starts = _starts(owners, place, source)
    _write_heads(octets, bounds[:-1], starts, place, snapshots, source)
    at = bounds[:-1] + head
    octets[at] = np.where(wide, (counts + 1) & 0x7F | 0x80, counts + 1)
    octets[at[wide] + 1] = (counts[wide] + 1) >> 7
    _write_batches(octets, at + 1 + wide, counts, starts, source)
    _write(octets, (bounds[1:] - _COUNT.itemsize)[counted], _counts(counts[counted]))
    dead = source.random(rows) < shape.tombstones
    validity = np.packbits(~(dead & snapshots), bitorder="little")
    return pa.BinaryArray.from_buffers(
        pa.binary(), rows, [pa.py_buffer(b) for b in (validity, bounds.astype(np.int32), octets)]
    )


def _starts(owners: Array, place: Array, source: np.random.Generator) -> Array:
    """Start offsets: about 30 more from one record of a share partition to its next."""
    order = np.argsort(owners, kind="stable")
    moved = np.empty(len(owners), np.int64)
    moved[order] = np.cumsum(source.integers(0, 61, len(owners)))
    first = np.zeros(owners.max() + 1, np.int64)
    first[owners[place == 0]] = moved[place == 0]
    return moved - first[owners]


def _write_heads(
    octets: Array, at: Array, starts: Array, place: Array, snapshots: Array, source: np.random.Generator
) -> None:
    epochs = place // (UPDATES_PER_SNAPSHOT + 1)
    updates = np.zeros(len(at), _UPDATE)
    updates["snapshot_epoch"] = epochs
    updates["leader_epoch"] = np.where(source.random(len(at)) < 0.2, -1, 3)
    updates["start_offset"] = np.where(source.random(len(at)) < 0.4, -1, starts)
    _write(octets, at[~snapshots], updates[~snapshots])
    whole = np.zeros(snapshots.sum(), _SNAPSHOT)
    whole["snapshot_epoch"], whole["state_epoch"], whole["leader_epoch"] = epochs[snapshots], 2, 3
    whole["start_offset"] = starts[snapshots]
    whole["created"] = whole["written"] = 1_790_000_000_000
    _write(octets, at[snapshots], whole)


def _write_batches(octets: Array, at: Array, counts: Array, starts: Array, source: np.random.Generator) -> None:
    total = int(counts.sum())
    before = np.cumsum(counts) - counts
    lengths = source.geometric(0.08, total)
    steps = lengths + source.integers(0, 3, total)
    reached = np.cumsum(steps) - steps
    within = reached - np.repeat(reached[before], counts)
    batches = np.zeros(total, _BATCH)
    first = np.repeat(starts + source.integers(0, 40, len(starts)), counts) + within
    batches["first"], batches["last"] = first, first + lengths - 1
    batches["state"] = source.choice(np.array([2, 2, 2, 2, 0, 4], np.int8), total)
    batches["count"] = source.geometric(0.8, total)
    inside = np.arange(total) - np.repeat(before, counts)
    _write(octets, np.repeat(at, counts) + _BATCH.itemsize * inside, batches)


def _counts(batches: Array) -> Array:
    found = np.zeros(len(batches), _COUNT)
    found["fields"], found["size"], found["count"] = 1, 4, batches
    return found


def _write(octets: Array, at: Array, structures: Array) -> None:
    """Put each of `structures` at its place; the windows over `octets` overlap, the places do not."""
    width = structures.dtype.itemsize
    windows: Array = np.ndarray((len(octets) - width + 1,), f"V{width}", octets, strides=(1,))
    windows[at] = np.ascontiguousarray(structures).view(f"V{width}")


def _with_odd(table: pa.Table, shape: LogShape, snapshots: Array, source: np.random.Generator) -> pa.Table:
    """Some updates made odd: two in five are still readable, the others are not."""
    rows = np.flatnonzero(~snapshots & (source.random(shape.records) < shape.odd))
    if not len(rows):
        return table
    values = table["value"].combine_chunks()
    odd = [_MISHAPS[n % len(_MISHAPS)](value) for n, value in enumerate(values.take(pa.array(rows)).to_pylist())]
    order = np.arange(shape.records)
    order[rows] = shape.records + np.arange(len(rows))
    mixed = pa.concat_arrays([values, pa.array(odd, pa.binary())]).take(pa.array(order))
    return table.set_column(4, RAW_RECORDS.field("value"), mixed)


def _tagged(value: bytes) -> bytes:
    """A batch that carries a field nobody knows."""
    return value[:18] + b"\x02" + struct.pack(">qqbh", 5, 9, 2, 1) + b"\x01\x07\x01\x2a" + b"\x00"


_MISHAPS = (
    lambda value: value[:19] + value[19 : 19 + 20 * (value[18] - 1)] + b"\x01\x05\x02\xaa\xbb",
    _tagged,
    lambda value: value[:18] + b"\xff\xff\x03" + value[19:],
    lambda value: b"\x00\x07" + value[2:],
    lambda value: value[: len(value) // 2],
)
