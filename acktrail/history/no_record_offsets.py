"""Offsets that are no records (transaction markers, aborted records, what compaction removed): what is archived without
them, and the history without them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.share_partition_keys import key_codes
from acktrail.model.batches import DeliveryState
from acktrail.model.offset_ranges import OffsetRanges
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.replay.newest_offsets import ArchivedRanges, offset_counts
from acktrail.tables.delta.store import Tables

_LOOKED: Final = (*KEY_COLUMNS, "first_offset", "last_offset", "is_record")
_NONE: Final = pa.array([], pa.int64())
_ENDED: Final = pa.array([DeliveryState.AVAILABLE, DeliveryState.ARCHIVED], pa.int64())


def looked_offsets(tables: Tables) -> pa.Table:
    """Spans of offsets by share partition (``KEY_COLUMNS``, `first_offset`, `last_offset`) that the log was asked
    about, each with whether it `is_record`."""
    return tables.read("archived_offsets", columns=_LOOKED, where=pc.field("is_record").is_valid())


def offsets_outside(ranges: pa.ListArray, rows: pa.Table, spans: pa.Table) -> pa.Array:
    """How many offsets of each row's disjoint `ranges` are in none of the `spans` of its share partition; null where
    more than a column can hold. Offsets outside are those of both less those of the spans."""
    counts = offset_counts(ranges)
    if not spans.num_rows:
        return counts
    keys = (pa.table({name: each[name].cast(pa.string()) for name in KEY_COLUMNS}) for each in (rows, spans))
    codes = key_codes(pa.concat_tables(keys).columns)
    own, theirs = codes[: rows.num_rows], codes[rows.num_rows :]
    is_asked = np.isin(own, theirs)
    parents = pc.list_parent_indices(ranges).to_numpy()
    asked = is_asked[parents]
    alone, both = ArchivedRanges(), ArchivedRanges()
    both.add(own[parents[asked]], pc.list_flatten(ranges).filter(pa.array(asked)))
    for each in (alone, both):
        each.add(theirs, spans.select(["first_offset", "last_offset"]).to_struct_array().combine_chunks())
    count = int(codes.max()) + 1
    outside = pc.subtract(offset_counts(both.lists(count)), offset_counts(alone.lists(count)))
    return pc.if_else(pa.array(is_asked), outside.take(pa.array(own)), counts)


NoRecords = Mapping[tuple[str, str, int], OffsetRanges]
"""Offsets that are no records, by group, topic id and partition."""


def no_record_offsets(tables: Tables) -> NoRecords:
    """What ``archived_offsets`` knows."""
    found: defaultdict[tuple[str, str, int], OffsetRanges] = defaultdict(OffsetRanges)
    spans = tables.read("archived_offsets", columns=_LOOKED, where=~pc.field("is_record"))
    for *key, first, last, _ in zip(*(spans[name].to_pylist() for name in _LOOKED), strict=True):
        found[tuple(key)].add(first, last)
    return found


def changes_of_records(changes: pa.Table, none: NoRecords) -> pa.Table:
    """Rows of ``DELIVERY_HISTORY`` in which no offset that is no record is archived or handed back: ranges are cut
    there."""
    if not none:
        return changes
    groups = pa.array(sorted({group for group, _, _ in none}), pa.string())
    is_ended = pc.is_in(changes["delivery_state"].cast(pa.int64()), value_set=_ENDED)
    is_cut = pc.and_(is_ended, pc.is_in(changes["group_id"].cast(pa.string()), value_set=groups))
    own = changes.filter(is_cut)
    if not own.num_rows:
        return changes
    cut = [
        (row, *part)
        for row, (*key, first, last) in enumerate(zip(*(own[n].to_pylist() for n in _LOOKED[:-1]), strict=True))
        for part in none.get(tuple(key), OffsetRanges()).outside(first, last)
    ]
    rows, firsts, lasts = (pa.array(column, pa.int64()) for column in zip(*cut, strict=True)) if cut else [_NONE] * 3
    parts = own.take(rows)
    for name, values in (("first_offset", firsts), ("last_offset", lasts)):
        parts = parts.set_column(parts.column_names.index(name), changes.schema.field(name), values)
    return pa.concat_tables([changes.filter(pc.invert(is_cut)), parts])
