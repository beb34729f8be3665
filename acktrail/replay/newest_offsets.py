"""What exported records show in any order: whose they are, which offsets matter, which were ever archived."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.binary_column import Int64Array, by_partition_and_offset, joined_rows
from acktrail.format.columns.schemas.table_schemas import STATE_RECORDS
from acktrail.format.columns.share_partition_keys import are_equal, key_codes, snapshot_keys
from acktrail.model.batches import DeliveryState
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.replay.column_replay import REPLAYED_STATES, UNREADABLE, SharePartitionIndex, StateColumns, replay_decoded

RANGES: Final = pa.list_(pa.struct([("first_offset", pa.int64()), ("last_offset", pa.int64())]))
_ROWS_KEPT: Final = 200_000
"""Ranges are united when there are more of them, and more than twice those left the last time."""
_FULL: Final = 2.0**63 * 1.5
"""Beyond it a count wraps to a positive number."""
ADDRESS: Final = ("state_partition", *KEY_COLUMNS)
"""What names a share partition's records: a key found on two state partitions is two of them."""
_NEWEST: Final = (
    "last_record_offset",
    "base_offset",
    "tombstone_offset",
    "initialized_offset",
    "unreadable_offset",
    "archived_offset",
)
"""Offsets of the newest: decoded record; snapshot or tombstone; tombstone; snapshot that initialized or reset; record
that could not be decoded; record with an archived batch."""
_TIME: Final = "last_record_timestamp_ms"
_NONE: Final = np.iinfo(np.int64).min


def archived_batches(batches: pa.StructArray) -> pa.Array:
    """Which `batches` are archived."""
    return pc.equal(pc.struct_field(batches, "delivery_state"), int(DeliveryState.ARCHIVED))


class NewestOffsets:
    """The newest offsets of every share partition seen so far, and the offsets ever archived. Arrays are int64, shape
    (share partitions,), in the order of the numbers that `index` gives."""

    def __init__(self, chosen: Callable[[pa.StructArray], pa.Array] = archived_batches) -> None:
        """`chosen`: the mask of those batches that `archived_ranges` has."""
        self._chosen = chosen
        self.index = SharePartitionIndex()
        self._newest = {name: np.empty(0, np.int64) for name in (*_NEWEST, _TIME)}
        self._archived = ArchivedRanges()

    def resume(self, saved: pa.Table) -> None:
        """Continue from rows of ``columns`` that an earlier pass left. To be called first."""
        numbers = self.numbers_of(saved)
        for name, newest in self._newest.items():
            newest[numbers] = pc.fill_null(saved[name], _NONE).to_numpy()
        archived = saved["archived_ranges"].combine_chunks()
        self._archived.add(numbers[pc.list_parent_indices(archived).to_numpy()], pc.list_flatten(archived))

    def add(self, records: pa.Table) -> Int64Array:
        """Take in records (``RECORD_COLUMNS`` and their place and time), in any order, also twice. Gives the number of
        each one's share partition; ``UNREADABLE`` where key or value could not be read."""
        is_named = records["group_id"].is_valid()
        named = records.filter(is_named) if records["group_id"].null_count else records
        numbers, offsets = self.numbers_of(named), named["offset"].to_numpy()
        rows, ranges = _batches(named, self._chosen)
        meanings = _rows_by_meaning(named)
        for name, chosen in {**meanings, "archived_offset": rows}.items():
            np.maximum.at(self._newest[name], numbers[chosen], offsets[chosen])
        self._archived.add(numbers[rows], ranges)
        decoded = meanings["last_record_offset"]
        last = decoded[offsets[decoded] == self._newest["last_record_offset"][numbers[decoded]]]
        self._newest[_TIME][numbers[last]] = pc.fill_null(named["timestamp_ms"], _NONE).to_numpy()[last]
        found = np.full(records.num_rows, UNREADABLE)
        found[np.flatnonzero(is_named)[decoded]] = numbers[decoded]
        return found

    def numbers_of(self, records: pa.Table) -> Int64Array:
        """The number of each row's share partition (columns ``ADDRESS``, none null). Only distinct rows are indexed."""
        codes = key_codes(records[name] for name in ADDRESS)
        first_rows = np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1))
        distinct = records.select(ADDRESS).take(pa.array(first_rows))
        keys = snapshot_keys(*(distinct[n].cast(STATE_RECORDS.field(n).type).combine_chunks() for n in KEY_COLUMNS))
        homes = distinct["state_partition"].to_numpy()
        numbers, _ = self.index.add_keys(pa.chunked_array([keys]), homes)
        for name, newest in self._newest.items():
            self._newest[name] = np.append(newest, np.full(len(self.index) - len(newest), _NONE))
        found: Int64Array = numbers[codes]
        return found

    def newest(self, name: str) -> Int64Array:
        """A column of ``_NEWEST``; lower than any offset where there is no such record."""
        return self._newest[name]

    @property
    def first_replayed(self) -> Int64Array:
        """The offset from which records count: that of the newest snapshot, or the one after the newest tombstone."""
        bases = self._newest["base_offset"]
        is_tombstone = (bases == self._newest["tombstone_offset"]) & (bases != _NONE)
        first: Int64Array = bases + is_tombstone
        return first

    def columns(self) -> dict[str, pa.Array]:
        """``ADDRESS``, the newest offsets, the time of the last record (null: not known, or no such record) and
        `archived_ranges`, for each share partition."""
        return {
            **self.index.addresses_of(np.arange(len(self.index))),
            **{name: pa.array(newest, mask=newest == _NONE) for name, newest in self._newest.items()},
            "archived_ranges": self._archived.lists(len(self.index)),
        }


class LogReplay:
    """The states after the records of a log, equal to ``acktrail.model.replay`` for each state partition.

    A snapshot at offset 7 with start offset 0, and an update at offset 8 that moves it to 5:

    >>> from acktrail.format.columns.decoding.decode_records import decode_records
    >>> from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
    >>> from acktrail.model.records import ShareSnapshot, ShareUpdate
    >>> from acktrail.model.share_partition import ZERO_TOPIC_ID, GroupId, SharePartition
    >>> from acktrail.format.wire.state_record import encode
    >>> key = SharePartition(group_id=GroupId("orders"), topic_id=ZERO_TOPIC_ID, partition=0)
    >>> common = {"key": key, "snapshot_epoch": 0, "delivery_complete_count": 0, "batches": ()}
    >>> times = {"create_timestamp_ms": 1, "write_timestamp_ms": 1}
    >>> snapshot = ShareSnapshot(**common, **times, state_epoch=1, leader_epoch=0, start_offset=0)
    >>> update = ShareUpdate(**common, leader_epoch=2, start_offset=5)
    >>> rows = [(3, offset, 1_000, *encode(record)) for offset, record in ((7, snapshot), (8, update))]
    >>> replay = LogReplay()
    >>> raw = pa.Table.from_pylist([dict(zip(RAW_RECORDS.names, row)) for row in rows], schema=RAW_RECORDS)
    >>> replay.add(decode_records(raw))
    >>> state = replay.states().to_pylist()[0]
    >>> {name: state[name] for name in ("group_id", "leader_epoch", "start_offset", "last_record_offset")}
    {'group_id': 'orders', 'leader_epoch': 2, 'start_offset': 5, 'last_record_offset': 8}
    """

    def __init__(self) -> None:
        self._newest = NewestOffsets()
        self._states = StateColumns.of_arrow(REPLAYED_STATES.empty_table(), self._newest.index)

    def add(self, records: pa.Table) -> None:
        """Apply decoded records (``DECODED_RECORDS``), in any order, after those of all calls before. Records that
        could not be read are skipped."""
        numbers = self._newest.add(records)
        self._states = replay_decoded(records, numbers, self._states, self._newest.first_replayed)

    def states(self) -> pa.Table:
        """Return a row of ``REPLAYED_STATES`` for each share partition and state partition, in the order of their first
        records."""
        return self._states.to_arrow(self._newest.index)


def _rows_by_meaning(records: pa.Table) -> dict[str, Int64Array]:
    """The rows of `records` that are what a column of ``_NEWEST`` asks for."""
    decoded = are_equal(records["decode_status"], "decoded")
    tombstone, snapshot = (are_equal(records["record_type"], kind) for kind in ("tombstone", "snapshot"))
    is_new = pc.equal(records["create_timestamp_ms"], records["write_timestamp_ms"])
    is_bare = pc.and_(pc.equal(records["leader_epoch"], 0), pc.equal(pc.list_value_length(records["batches"]), 0))
    initializes = pc.fill_null(pc.and_(is_new, is_bare), fill_value=False).to_numpy()
    masks = {
        "last_record_offset": decoded,
        "base_offset": decoded & (snapshot | tombstone),
        "tombstone_offset": decoded & tombstone,
        "initialized_offset": decoded & snapshot & initializes,  # ``ShareSnapshot.is_initialization``
        "unreadable_offset": ~decoded,
    }
    return {name: np.flatnonzero(mask) for name, mask in masks.items()}


def _batches(records: pa.Table, chosen: Callable[[pa.StructArray], pa.Array]) -> tuple[Int64Array, pa.StructArray]:
    """Row number and batch of every `chosen` batch that covers an offset."""
    batches = records["batches"].combine_chunks()
    values = pc.list_flatten(batches)
    covers = pc.less_equal(pc.struct_field(values, "first_offset"), pc.struct_field(values, "last_offset"))
    own = pc.and_(chosen(values), covers)
    return pc.list_parent_indices(batches).filter(own).to_numpy(), values.filter(own)


class ArchivedRanges:
    """Sets of offsets by the number of a share partition. The invariant: after uniting, ranges are ascending by number
    and offset, and no two of one number overlap or touch. Cost: O(n log n) for n ranges added."""

    def __init__(self) -> None:
        self._pieces: list[tuple[Int64Array, Int64Array, Int64Array]] = []
        self._rows = self._united = 0

    def add(self, numbers: Int64Array, ranges: pa.StructArray) -> None:
        """Take in a range for each of `numbers`; none is inverted."""
        if not len(ranges):
            return
        first, last = (ranges.field(name).to_numpy() for name in ("first_offset", "last_offset"))
        self._pieces.append((numbers, first, last))
        self._rows += len(ranges)
        if self._rows > max(_ROWS_KEPT, 2 * self._united):
            self._unite()

    def lists(self, count: int) -> pa.ListArray:
        """The ranges (``RANGES``) of the numbers below `count`, disjoint and ascending."""
        numbers, firsts, lasts = self._unite()
        bounds = np.searchsorted(numbers, np.arange(count + 1))
        values = pa.StructArray.from_arrays([pa.array(firsts), pa.array(lasts)], fields=[*RANGES.value_type])
        return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), values, type=RANGES)

    def _unite(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Numbers, first and last offsets of all ranges, united."""
        if len(self._pieces) != 1 or self._united != self._rows:
            empty = np.empty(0, np.int64)
            owners, firsts, lasts = (np.concatenate(side) for side in zip((empty,) * 3, *self._pieces, strict=True))
            self._pieces = [_disjoint(owners, firsts, lasts)]
            self._rows = self._united = len(self._pieces[0][0])
        return self._pieces[0]


def offset_counts(ranges: pa.ListArray) -> pa.Array:
    """How many offsets each row's disjoint ranges have; null where more than a column can hold."""
    values, rows = pc.list_flatten(ranges), pc.list_parent_indices(ranges).to_numpy()
    first, last = (values.field(name).to_numpy() for name in ("first_offset", "last_offset"))
    about = np.bincount(rows, last.astype(np.float64) - first + 1, len(ranges))
    total = np.append(0, np.cumsum(last - first + 1))  # wraps past 2**63; a difference of two values is right below it
    ends = np.cumsum(pc.fill_null(pc.list_value_length(ranges), 0).to_numpy())
    counts = total[ends] - total[np.append(0, ends[:-1])[: len(ends)]]
    return pa.array(counts, mask=(counts < 0) | (about >= _FULL))


def _disjoint(owners: Int64Array, firsts: Int64Array, lasts: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """The same offsets of each owner in the fewest ranges: one begins where the number of open ranges rises from 0."""
    points, both = np.concatenate([firsts, lasts]), np.tile(owners, 2)
    order = by_partition_and_offset(both, points)  # of one offset, begins before ends
    opens = order < len(owners)
    depth = np.cumsum(np.where(opens, 1, -1))
    begins, ends = order[opens & (depth == 1)], order[depth == 0]
    owners, firsts, lasts = both[begins], points[begins], points[ends]
    touches = (owners[1:] == owners[:-1]) & (firsts[1:] == lasts[:-1] + 1)
    heads, tails = joined_rows(touches, len(owners))
    return owners[heads], firsts[heads], lasts[tails]
