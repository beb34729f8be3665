"""The history of a few exports, built without Spark."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.history.history_step import GROWTH_COLUMNS, Stretch, grow
from acktrail.tables.delta.store import Tables
from acktrail.tables.past.history_tables import HistoryTables, SavedStates, drop_partitions

__all__ = ["build"]


def build(tables: Tables, cluster_id: str = "c1") -> None:
    """Bring the history of `tables` up to date in this process: all that is new in one step."""
    history = HistoryTables(tables, cluster_id)
    holding = history.saved()
    snapshot = tables.snapshot("state_records")
    assert snapshot is not None
    records = snapshot.read(columns=GROWTH_COLUMNS)
    ranges = tables.read("export_ranges").to_pylist()
    numbers = sorted(records["state_partition"].unique().to_pylist())
    told, changes, held, ends = history.positions(numbers), [], [], dict(holding.positions)
    for number in numbers:
        begin, own = holding.positions.get(number, 0), records.filter(pc.field("state_partition") == number)
        stretch = Stretch(state_partition=number, begin=begin, told=told[number], end=2**63 - 1)
        spans = [(r["first_offset"], r["last_offset"]) for r in ranges if r["state_partition"] == number]
        before = holding.rows.filter(pc.field("state_partition") == number)
        found = grow(stretch, own.filter(pc.field("offset") >= begin), before, lambda _place, _from, s=spans: s)
        changes.append(found.changes)
        held.append(found.held)
        ends[number] = found.end
    history.add(pa.concat_tables(changes), told, {number: ends[number] for number in numbers})
    now = pa.concat_tables(held)
    history.save(
        SavedStates(
            rows=pa.concat_tables([drop_partitions(holding.rows, now), now]),
            positions=ends,
            records_version=snapshot.version,
            step=holding.step,
        )
    )
