"""Where share partitions began, by the state topic: the start offset of the first state record that has one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.tables.delta.store import Tables

ShareKey = tuple[str, str, int]
"""Group id, topic id, partition."""
_COLUMNS: Final = (
    "group_id",
    "topic_id",
    "partition",
    "state_partition",
    "offset",
    "record_type",
    "snapshot_epoch",
    "start_offset",
)
_SNAPSHOT: Final = "snapshot"
_TOMBSTONE: Final = "tombstone"
_FIRST_EPOCH: Final = 0


@dataclass(slots=True, kw_only=True)
class _Beginning:
    """The first records of one share partition: offset in the state topic and what is asked of each."""

    first: tuple[int, int, str | None, int | None] | None = None
    started: tuple[int, int] | None = None
    removed: int | None = None


@dataclass(slots=True)
class _Beginnings:
    by_key: dict[ShareKey, _Beginning] = field(default_factory=dict)

    def take(self, rows: pa.Table) -> None:
        """The first record of each share partition in `rows`, its first with a start offset, its first tombstone."""
        for row in _first_rows(rows):
            own = self._own(row)
            at = (row["state_partition"], row["offset"], row["record_type"], row["snapshot_epoch"])
            if own.first is None or row["offset"] < own.first[1]:
                own.first = at
        for row in _first_rows(rows.filter(pc.is_valid(rows["start_offset"]))):
            own = self._own(row)
            if own.started is None or row["offset"] < own.started[0]:
                own.started = (row["offset"], row["start_offset"])
        for row in _first_rows(rows.filter(pc.equal(rows["record_type"], _TOMBSTONE))):
            own = self._own(row)
            own.removed = row["offset"] if own.removed is None else min(own.removed, row["offset"])

    def _own(self, row: Mapping[str, Any]) -> _Beginning:
        return self.by_key.setdefault((row["group_id"], row["topic_id"], row["partition"]), _Beginning())


def _first_rows(rows: pa.Table) -> list[dict[str, Any]]:  # the lowest offset of each share partition
    if not rows.num_rows:
        return []
    codes = [pc.rank(rows[name], tiebreaker="dense").to_numpy().astype(np.int64) for name in _COLUMNS[:3]]
    order = np.lexsort((rows["offset"].to_numpy(), *codes))
    changes = np.logical_or.reduce([code[order][1:] != code[order][:-1] for code in codes])
    return rows.take(pa.array(order[np.concatenate([[0], 1 + np.flatnonzero(changes)])])).to_pylist()


def initial_starts(tables: Tables, wanted: Mapping[ShareKey, int]) -> dict[ShareKey, int]:
    """The offsets at which share partitions were placed, where that is certain.

    `wanted`: share partitions, each with a time in microseconds before it existed. A share partition's first write has
    the start offset that it was placed at, with the batches that were finished since. Certain is it where the first
    record is a snapshot with epoch 0, no tombstone came before a start offset, and no record of its state partition
    is missing from before that was written later than the time given.
    """
    records = tables.snapshot("state_records")
    if records is None or not wanted:
        return {}
    names = [pa.array(sorted({key[place] for key in wanted})) for place in range(3)]
    where = pc.field("group_id").isin(names[0]) & pc.field("topic_id").isin(names[1])
    where &= pc.field("partition").isin(names[2].cast(pa.int32()))
    found = _Beginnings()
    for batch in records.batches(columns=list(_COLUMNS), where=where):
        found.take(pa.Table.from_batches([batch]))
    gaps = _gaps(tables)
    return {key: start for key, before in wanted.items() if (start := _start(found, key, gaps, before)) is not None}


def _gaps(tables: Tables) -> list[tuple[int, int, int]]:
    """State partition, first offset, and microseconds of every gap of the export."""
    rows = tables.read("export_ranges", columns=["state_partition", "gap_first", "exported_at"])
    rows = rows.filter(pc.is_valid(rows["gap_first"]))
    columns = (rows["state_partition"], rows["gap_first"], pc.cast(rows["exported_at"], pa.int64()))
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def _start(found: _Beginnings, key: ShareKey, gaps: Iterable[tuple[int, int, int]], before: int) -> int | None:
    own = found.by_key.get(key)
    if own is None or own.first is None or own.started is None:
        return None
    number, offset, kind, epoch = own.first
    is_first = kind == _SNAPSHOT and epoch == _FIRST_EPOCH
    was_removed = own.removed is not None and own.removed < own.started[0]
    is_gapless = not any(gap == number and first < offset and at > before for gap, first, at in gaps)
    return own.started[1] if is_first and is_gapless and not was_removed else None
