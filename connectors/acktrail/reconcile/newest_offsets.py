"""One pass over exported records: of each share partition, which offsets matter and which were ever archived."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.schemas.table_schemas import STATE_RECORDS
from acktrail.model.delivery import DeliveryState
from acktrail.reconcile.archived_offsets import ArchivedRanges

__all__ = ["ADDRESS", "HEAD_COLUMNS", "NEWEST", "Address", "Heads", "survivors"]

ADDRESS: Final = ("state_partition", "group_id", "topic_id", "partition")
"""What names a share partition's records: a key found on two state partitions is two of them."""

HEAD_COLUMNS: Final = (
    *ADDRESS,
    "offset",
    "record_type",
    "leader_epoch",
    "create_timestamp_ms",
    "write_timestamp_ms",
    "batches",
    "decode_status",
)

NEWEST: Final = (
    "last_record_offset",
    "base_offset",
    "tombstone_offset",
    "initialized_at",
    "unreadable_at",
    "archived_at",
)
"""Offsets of the newest: decoded record; snapshot or tombstone; tombstone; snapshot that initialized or reset;
record that could not be decoded; record with an archived batch."""

_ROWS_KEPT: Final = 200_000
"""Partial results are merged when there are more rows of them."""

Address = tuple[int, str, str, int]
"""Values of ``ADDRESS``."""


class Heads:
    """The newest offsets of every share partition seen so far, and the offsets ever archived."""

    def __init__(self) -> None:
        self._pieces: list[pa.Table] = []
        self._rows = 0
        self._archived = ArchivedRanges()

    def add(self, records: pa.Table) -> None:
        """Take in records (``HEAD_COLUMNS``), in any order; those whose key could not be read are passed over."""
        named = records.filter(records["group_id"].is_valid()) if records["group_id"].null_count else records
        owners, ranges = _archived_ranges(named)
        self._keep(_maxima(_offsets(named, owners)))
        self._archived.add(named.select(list(ADDRESS)).take(owners), ranges)

    def go_on(self, heads: pa.Table, archived: pa.ListArray) -> None:
        """Take in what ``all`` and ``archived_ranges`` told of earlier records, row by row."""
        self._keep(heads)
        owners = heads.select(list(ADDRESS)).take(pc.list_parent_indices(archived))
        self._archived.add(owners, pc.list_flatten(archived))

    def all(self) -> pa.Table:
        """One row a share partition: ``ADDRESS`` and the newest offsets, null where there is no such record."""
        self._merge()
        if not self._pieces:
            return _maxima(_offsets(_NO_RECORDS, pa.array([], pa.int64())))
        return self._pieces[0]

    def live(self) -> pa.Table:
        """``all`` but those whose newest record is a tombstone: nothing is left of them, and no doubt either."""
        heads = self.all()
        later = [pc.greater(heads[name], heads["tombstone_offset"]) for name in ("last_record_offset", "unreadable_at")]
        told = [pc.fill_null(is_later, fill_value=False) for is_later in later]
        return heads.filter(pc.or_(pc.is_null(heads["tombstone_offset"]), pc.or_(*told)))

    def archived_seen(self, address: Address) -> int:
        """Distinct offsets archived in any record of the share partition."""
        return self._archived.count(address)

    def archived_ranges(self, heads: pa.Table) -> pa.ListArray:
        """The same offsets, as disjoint ascending ranges, for each row of `heads`."""
        return self._archived.lists(heads.select(list(ADDRESS)))

    def _keep(self, piece: pa.Table) -> None:
        self._pieces.append(piece)
        self._rows += piece.num_rows
        if self._rows > _ROWS_KEPT:
            self._merge()

    def _merge(self) -> None:
        if self._pieces:
            merged = _maxima(pa.concat_tables(self._pieces))
            self._pieces, self._rows = [merged], 0


def survivors(records: pa.Table, heads: pa.Table) -> pa.Table:
    """The decoded records at or after their share partition's newest snapshot or tombstone: all that replay needs."""
    narrow = records.select([*ADDRESS, "offset", "decode_status"])
    rows = narrow.append_column("row", pa.array(np.arange(records.num_rows)))
    joined = rows.join(heads.select([*ADDRESS, "base_offset"]), keys=list(ADDRESS), join_type="inner")
    base = pc.fill_null(joined["base_offset"], -1)
    needed = pc.and_(pc.greater_equal(joined["offset"], base), pc.equal(joined["decode_status"], "decoded"))
    return records.take(joined["row"].filter(needed).combine_chunks().sort())


_NO_RECORDS: Final = STATE_RECORDS.empty_table().select(list(HEAD_COLUMNS))


def _offsets(records: pa.Table, archived_owners: pa.Array) -> pa.Table:
    """``ADDRESS`` and a column for each of ``NEWEST``: the record's offset where it is such a record, else null."""
    decoded = pc.equal(records["decode_status"], "decoded")
    kind = records["record_type"]
    is_tombstone = pc.and_(decoded, pc.equal(kind, "tombstone"))
    is_snapshot = pc.and_(decoded, pc.equal(kind, "snapshot"))
    masks = (
        decoded,
        pc.or_(is_snapshot, is_tombstone),
        is_tombstone,
        pc.and_(is_snapshot, _initializes(records)),
        pc.invert(decoded),
        _marked(records.num_rows, archived_owners),
    )
    nothing = pa.scalar(None, pa.int64())
    offsets = [pc.if_else(mask, records["offset"], nothing) for mask in masks]
    return pa.table([*(records[name] for name in ADDRESS), *offsets], [*ADDRESS, *NEWEST])


def _initializes(records: pa.Table) -> pa.ChunkedArray:
    """Snapshots as an initialization or a reset writes them: no batches, leader epoch 0, both timestamps equal."""
    is_new = pc.equal(records["create_timestamp_ms"], records["write_timestamp_ms"])
    is_bare = pc.and_(pc.equal(records["leader_epoch"], 0), pc.equal(pc.list_value_length(records["batches"]), 0))
    return pc.fill_null(pc.and_(is_new, is_bare), fill_value=False)


def _marked(count: int, rows: pa.Array) -> pa.Array:
    mask = np.zeros(count, np.bool_)
    mask[rows.to_numpy(zero_copy_only=False)] = True
    return pa.array(mask)


def _maxima(rows: pa.Table) -> pa.Table:
    merged = rows.group_by(list(ADDRESS), use_threads=False).aggregate([(name, "max") for name in NEWEST])
    return merged.select([*ADDRESS, *(f"{name}_max" for name in NEWEST)]).rename_columns([*ADDRESS, *NEWEST])


def _archived_ranges(records: pa.Table) -> tuple[pa.Array, pa.StructArray]:
    """Row number and batch of every archived batch that covers an offset."""
    batches = records["batches"].combine_chunks()
    values = pc.list_flatten(batches)
    archived = pc.and_(
        pc.equal(pc.struct_field(values, "delivery_state"), int(DeliveryState.ARCHIVED)),
        pc.less_equal(pc.struct_field(values, "first_offset"), pc.struct_field(values, "last_offset")),
    )
    return pc.list_parent_indices(batches).filter(archived), values.filter(archived)
