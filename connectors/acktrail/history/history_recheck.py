"""The history told once more from its first record, held against what the tables tell: a worker's share of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.change_rows import CHANGE_COLUMNS
from acktrail.columnar.held_rows import HELD_COLUMNS
from acktrail.columnar.model_values import share_partition_of
from acktrail.config import TablesConfig
from acktrail.history.history_step import GROWTH_COLUMNS, Grown, Stretch, exported_spans, grow
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.tables.delta.store import Tables
from acktrail.tables.past.history_tables import CHANGES, HELD, drop_partitions, saved_rows
from acktrail.workers.worker_results import parcels_of

__all__ = ["VERIFIED_ARROW", "Retelling", "first_difference", "subject_of"]

VERIFIED_ARROW: Final = pa.schema(
    [
        pa.field("records", pa.int64()),
        pa.field("changes", pa.int64()),
        pa.field("table", pa.string()),
        pa.field("state_partition", pa.int32()),
        pa.field("subject", pa.string()),
        pa.field("detail", pa.string()),
    ]
)

_RECORDS_AT_ONCE: Final = 200_000
_IN_LOG: Final = ("record_offset", "group_id", "topic_id", "partition", "first_offset")

_Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retelling:
    """Call it with state partitions, each with the offset up to which its history is told, and that up to which its
    states are held."""

    config: TablesConfig

    def __call__(self, told: Sequence[tuple[int, int, int]]) -> Iterator[pa.RecordBatch]:
        """Parcels ``verified`` (``VERIFIED_ARROW``): counts, and the first difference of each state partition."""
        tables = Tables(self.config)
        for number, end, held in told:
            rows = list(_verified(tables, number, end, is_held=held == end))
            yield from parcels_of("verified", pa.Table.from_pylist(rows, schema=VERIFIED_ARROW))


def first_difference(found: pa.Table, expected: pa.Table, order: Sequence[str]) -> dict[str, Any] | None:
    """The first row, by `order`, that only one of two tables has; None where they are equal."""
    names = [(name, "ascending") for name in order]
    ours, theirs = (rows.sort_by(names).combine_chunks() for rows in (found, expected))
    if ours.equals(theirs):
        return None
    pairs = zip(ours.to_pylist(), theirs.to_pylist(), strict=False)
    longer = (ours if ours.num_rows > theirs.num_rows else theirs).slice(min(ours.num_rows, theirs.num_rows), 1)
    rows: list[_Row] = [*(mine for mine, other in pairs if mine != other), *longer.to_pylist()]
    return rows[0]


def subject_of(row: _Row) -> str:
    """The coordinator key of the share partition that a row names."""
    return share_partition_of(row).coordinator_key


def _verified(tables: Tables, number: int, end: int, *, is_held: bool) -> Iterator[_Row]:
    held = HELD_COLUMNS.empty_table()
    for stretch, grown in _grown(tables, number, end):
        held = pa.concat_tables([drop_partitions(held, grown.held), grown.held])
        yield {"records": grown.records, "changes": grown.changes.num_rows}
        different = first_difference(_told(tables, stretch, grown.end), grown.changes, _IN_LOG)
        if different is not None:
            yield _difference(CHANGES, number, different, f"at state record {number}:{different['record_offset']}")
            return
    kept = saved_rows(tables, pc.field("state_partition") == number) if is_held else held
    different = first_difference(kept, held, KEY_COLUMNS)
    if different is not None:
        yield _difference(HELD, number, different, "its state")


def _grown(tables: Tables, number: int, end: int) -> Iterator[tuple[Stretch, Grown]]:
    """The history of a state partition, made anew piece by piece."""
    held, begin, bound = HELD_COLUMNS.empty_table(), 0, 0
    while bound < end:
        bound = min(end, bound + _RECORDS_AT_ONCE)
        stretch = Stretch(state_partition=number, begin=begin, told=0, end=bound)
        offset = pc.field("offset")
        where = (pc.field("state_partition") == number) & (offset >= begin) & (offset < bound)
        records = tables.read("state_records", columns=GROWTH_COLUMNS, where=where)
        grown = grow(stretch, records, held, partial(exported_spans, tables))
        held, begin = pa.concat_tables([drop_partitions(held, grown.held), grown.held]), grown.end
        yield stretch, grown


def _told(tables: Tables, stretch: Stretch, end: int) -> pa.Table:
    """What the table tells of the same records."""
    at = pc.field("record_offset")
    where = (pc.field("state_partition") == stretch.state_partition) & (at >= stretch.begin) & (at < end)
    return tables.read(CHANGES, columns=CHANGE_COLUMNS.names, where=where)


def _difference(table: str, number: int, row: _Row, detail: str) -> _Row:
    return {"table": table, "state_partition": number, "subject": subject_of(row), "detail": f"{detail} differs"}
