"""The first reading of exported records: which offsets of each share partition matter, which were ever archived."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.columnar.decoding.decode_keys import snapshot_keys
from acktrail.columnar.replaying.key_index import SharePartitionIndex
from acktrail.columnar.replaying.pending_records import first_replayed
from acktrail.model.delivery import DeliveryState
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.reconcile.archived_offsets import ArchivedRanges
from acktrail.reconcile.share_partition_keys import key_codes

ADDRESS: Final = ("state_partition", *KEY_COLUMNS)
"""What names a share partition's records: a key found on two state partitions is two of them."""

FIRST_PASS_COLUMNS: Final = (
    *ADDRESS,
    "offset",
    "record_type",
    "leader_epoch",
    "create_timestamp_ms",
    "write_timestamp_ms",
    "batches",
    "decode_status",
)

_NEWEST: Final = (
    "last_record_offset",
    "base_offset",
    "tombstone_offset",
    "initialized_offset",
    "unreadable_offset",
    "archived_offset",
)
"""Offsets of the newest: decoded record; snapshot or tombstone; tombstone; snapshot that initialized or reset;
record that could not be decoded; record with an archived batch."""

_NONE: Final = np.iinfo(np.int64).min


class NewestOffsets:
    """The newest offsets of every share partition seen so far, and the offsets ever archived.

    Arrays are int64, shape (share partitions,), in the order of the numbers that `index` gives.
    """

    def __init__(self) -> None:
        self.index = SharePartitionIndex()
        self._newest = {name: np.empty(0, np.int64) for name in _NEWEST}
        self._archived = ArchivedRanges()

    def resume(self, saved: pa.Table) -> None:
        """Continue from rows of ``columns`` that an earlier pass left. To be called first."""
        numbers = self.numbers_of(saved)
        for name in _NEWEST:
            self._newest[name][numbers] = pc.fill_null(saved[name], _NONE).to_numpy()
        archived = saved["archived_ranges"].combine_chunks()
        self._archived.add(numbers[pc.list_parent_indices(archived).to_numpy()], pc.list_flatten(archived))

    def add(self, records: pa.Table) -> None:
        """Take in records (``FIRST_PASS_COLUMNS``), in any order; those whose key could not be read are skipped."""
        named = records.filter(records["group_id"].is_valid()) if records["group_id"].null_count else records
        numbers, offsets = self.numbers_of(named), named["offset"].to_numpy()
        rows, ranges = _archived_batches(named)
        for name, chosen in {**_rows_by_meaning(named), "archived_offset": rows}.items():
            np.maximum.at(self._newest[name], numbers[chosen], offsets[chosen])
        self._archived.add(numbers[rows], ranges)

    def numbers_of(self, records: pa.Table) -> Int64Array:
        """The number of each row's share partition (columns ``ADDRESS``, none null). Only distinct rows are indexed."""
        codes = key_codes(records[name] for name in ADDRESS)
        first_rows = np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1))
        distinct = records.select(ADDRESS).take(pa.array(first_rows))
        keys = snapshot_keys(*(distinct[name].combine_chunks() for name in KEY_COLUMNS))
        homes = distinct["state_partition"].to_numpy()
        numbers, _ = self.index.add_keys(pa.chunked_array([keys]), homes)
        for name, newest in self._newest.items():
            self._newest[name] = np.append(newest, np.full(len(self.index) - len(newest), _NONE))
        found: Int64Array = numbers[codes]
        return found

    @property
    def last_records(self) -> Int64Array:
        """The offset of the newest decoded record."""
        return self._newest["last_record_offset"]

    @property
    def bases(self) -> Int64Array:
        """The offset of the newest snapshot or tombstone; without one, lower than any offset."""
        return self._newest["base_offset"]

    @property
    def first_replayed(self) -> Int64Array:
        """The offset from which records have a say (see ``first_replayed``)."""
        return first_replayed(self.bases, (self.bases == self._newest["tombstone_offset"]) & (self.bases != _NONE))

    def columns(self) -> dict[str, pa.Array]:
        """``ADDRESS``, the newest offsets (null: no such record) and `archived_ranges`, for each share partition."""
        keys, state_partitions = self.index.keys_of(np.arange(len(self.index)))
        return {
            "state_partition": pa.array(state_partitions),
            "group_id": keys.group_id,
            "topic_id": keys.topic_id,
            "partition": pa.array(keys.partition),
            **{name: pa.array(newest, mask=newest == _NONE) for name, newest in self._newest.items()},
            "archived_ranges": self._archived.lists(len(self.index)),
        }


def _rows_by_meaning(records: pa.Table) -> dict[str, Int64Array]:
    """The rows of `records` that are what a column of ``_NEWEST`` asks for."""
    decoded, is_tombstone, is_snapshot = (
        _mask(pc.equal(records[name], value))
        for name, value in (("decode_status", "decoded"), ("record_type", "tombstone"), ("record_type", "snapshot"))
    )
    masks = {
        "last_record_offset": decoded,
        "base_offset": decoded & (is_snapshot | is_tombstone),
        "tombstone_offset": decoded & is_tombstone,
        "initialized_offset": decoded & is_snapshot & _initializes(records),
        "unreadable_offset": ~decoded,
    }
    return {name: np.flatnonzero(mask) for name, mask in masks.items()}


def _initializes(records: pa.Table) -> BoolArray:
    """``ShareSnapshot.is_initialization`` of each row."""
    is_new = pc.equal(records["create_timestamp_ms"], records["write_timestamp_ms"])
    is_bare = pc.and_(pc.equal(records["leader_epoch"], 0), pc.equal(pc.list_value_length(records["batches"]), 0))
    return _mask(pc.and_(is_new, is_bare))


def _mask(mask: pa.ChunkedArray) -> BoolArray:
    found: BoolArray = pc.fill_null(mask, fill_value=False).to_numpy()
    return found


def _archived_batches(records: pa.Table) -> tuple[Int64Array, pa.StructArray]:
    """Row number and batch of every archived batch that covers an offset."""
    batches = records["batches"].combine_chunks()
    values = pc.list_flatten(batches)
    archived = pc.and_(
        pc.equal(pc.struct_field(values, "delivery_state"), int(DeliveryState.ARCHIVED)),
        pc.less_equal(pc.struct_field(values, "first_offset"), pc.struct_field(values, "last_offset")),
    )
    return pc.list_parent_indices(batches).filter(archived).to_numpy(), values.filter(archived)
