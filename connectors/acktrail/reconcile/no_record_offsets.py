"""Archived offsets that are no records (transaction markers, aborted records, what compaction removed): how many, and
the history without them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.schemas.table_schemas import INT32, INT64, STRING, schema
from acktrail.format.columns.share_partition_keys import grouped
from acktrail.model.batches import DeliveryState
from acktrail.model.offset_ranges import OffsetRanges
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.tables.delta.store import Tables

NO_RECORDS: Final = schema((STRING, "group_id", "topic_id"), (INT32, "partition"), (INT64, "no_records", "looked_at"))
_LOOKED: Final = (*KEY_COLUMNS, "first_offset", "last_offset", "is_record")
_NONE: Final = pa.array([], pa.int64())


def no_records(tables: Tables) -> pa.Table:
    """Rows of ``NO_RECORDS``: of each share partition how many archived offsets are no records, and of how many it is
    known whether they are."""
    spans = tables.read("archived_offsets", columns=_LOOKED, where=pc.field("is_record").is_valid())
    distinct = spans.group_by(list(_LOOKED), use_threads=False).aggregate([])
    count = pc.add(pc.subtract(distinct["last_offset"], distinct["first_offset"]), 1)
    counts = {"no_records": pc.if_else(distinct["is_record"], 0, count), "looked_at": count}
    keyed = pa.table({**{name: distinct[name] for name in KEY_COLUMNS}, **counts})
    return grouped(keyed, KEY_COLUMNS, **dict.fromkeys(counts, "sum")).cast(NO_RECORDS)


NoRecords = Mapping[tuple[str, str, int], OffsetRanges]
"""Archived offsets that are no records, by group, topic id and partition."""


def no_record_offsets(tables: Tables) -> NoRecords:
    """What ``archived_offsets`` knows."""
    found: defaultdict[tuple[str, str, int], OffsetRanges] = defaultdict(OffsetRanges)
    spans = tables.read("archived_offsets", columns=_LOOKED, where=~pc.field("is_record"))
    for *key, first, last, _ in zip(*(spans[name].to_pylist() for name in _LOOKED), strict=True):
        found[tuple(key)].add(first, last)
    return found


def changes_of_records(changes: pa.Table, none: NoRecords) -> pa.Table:
    """Rows of ``DELIVERY_HISTORY`` without the archived offsets that are no records: ranges are cut there."""
    is_archived = pc.fill_null(pc.equal(changes["delivery_state"], int(DeliveryState.ARCHIVED)), fill_value=False)
    own = changes.filter(is_archived) if none else changes.slice(0, 0)
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
    return pa.concat_tables([changes.filter(pc.invert(is_archived)), parts])
