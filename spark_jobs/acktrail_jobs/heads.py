"""One pass over exported records: of each share partition, which offsets matter and which were ever archived."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.schemas import STATE_RECORDS
from acktrail.model.delivery import DeliveryState

__all__ = ["ADDRESS", "HEAD_COLUMNS", "NEWEST", "Heads", "survivors"]

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

_RANGES_KEPT: Final = 256
"""Archived ranges of one share partition are united when there are more of them."""

_Address = tuple[int, str, str, int]
_Range = tuple[int, int]


class Heads:
    """The newest offsets of every share partition seen so far, and the offsets ever archived."""

    def __init__(self) -> None:
        self._pieces: list[pa.Table] = []
        self._rows = 0
        self._archived: dict[_Address, list[_Range]] = {}

    def add(self, records: pa.Table) -> None:
        """Take in records (``HEAD_COLUMNS``), in any order; those whose key could not be read are passed over."""
        named = records.filter(pc.field("group_id").is_valid())
        owners, ranges = _archived_ranges(named)
        self._keep(_maxima(_offsets(named, owners)))
        self._remember(named.select(list(ADDRESS)).take(owners), ranges)

    def go_on(self, heads: pa.Table, archived: Iterable[Sequence[_Range]]) -> None:
        """Take in what ``all`` and ``archived_ranges`` told of earlier records, row by row."""
        self._keep(heads)
        addresses = zip(*(heads[name].to_pylist() for name in ADDRESS), strict=True)
        self._archived |= {address: list(own) for address, own in zip(addresses, archived, strict=True) if own}

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

    def archived_seen(self, address: _Address) -> int:
        """Distinct offsets archived in any record of the share partition."""
        return sum(last - first + 1 for first, last in self.archived_ranges(address))

    def archived_ranges(self, address: _Address) -> list[_Range]:
        """The same offsets, as disjoint ascending ranges."""
        return _united(self._archived.get(address, []))

    def _keep(self, piece: pa.Table) -> None:
        self._pieces.append(piece)
        self._rows += piece.num_rows
        if self._rows > _ROWS_KEPT:
            self._merge()

    def _merge(self) -> None:
        if self._pieces:
            merged = _maxima(pa.concat_tables(self._pieces))
            self._pieces, self._rows = [merged], 0

    def _remember(self, owners: pa.Table, ranges: pa.StructArray) -> None:
        addresses = zip(*(owners[name].to_pylist() for name in ADDRESS), strict=True)
        bounds = zip(ranges.field("first_offset").to_pylist(), ranges.field("last_offset").to_pylist(), strict=True)
        for address, bound in zip(addresses, bounds, strict=True):
            known = self._archived.setdefault(address, [])
            known.append(bound)
            if len(known) > _RANGES_KEPT:
                known[:] = _united(known)


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


def _united(ranges: Iterable[_Range]) -> list[_Range]:
    """The same offsets in disjoint ascending ranges."""
    return list(_unite(sorted(ranges)))


def _unite(ascending: Iterable[_Range]) -> Iterator[_Range]:
    begun: _Range | None = None
    for first, last in ascending:
        if begun is not None and first <= begun[1] + 1:
            begun = (begun[0], max(begun[1], last))
            continue
        if begun is not None:
            yield begun
        begun = (first, last)
    if begun is not None:
        yield begun
