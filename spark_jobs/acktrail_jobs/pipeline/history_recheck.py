"""The history built again from its first record and compared with the tables: an executor's share of it.

For example, 200,000 records at a time: the changes that 3:0 to 3:199999 make are those in ``delivery_history``; so are
those of the next range, and so on; the states after the last one are those in ``held_states``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.config import TablesConfig
from acktrail.executors import Results
from acktrail.format.columns.model_values import CHANGE_COLUMNS, HELD_COLUMNS, share_partition_of
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.record_files import RECORDS
from acktrail.tables.past.history_tables import CHANGES, HELD, saved_rows
from acktrail_jobs.pipeline.history_step import HISTORY_INPUTS, apply_records, commit_spans, records_between

RECHECKED: Final = pa.schema(
    [
        pa.field("records", pa.int64()),
        pa.field("changes", pa.int64()),
        pa.field("table", pa.string()),
        pa.field("state_partition", pa.int32()),
        pa.field("subject", pa.string()),
        pa.field("detail", pa.string()),
    ]
)
"""Counts of what was compared, and the first difference of a state partition where `subject` is not null."""
_RECORDS_AT_ONCE: Final = 200_000
_IN_LOG: Final = ("record_offset", *KEY_COLUMNS, "first_offset")
_Row = dict[str, Any]


def recheck_history(config: TablesConfig, built: Sequence[tuple[int, int, int]]) -> Results:
    """Results of kind ``rechecked`` (rows of ``RECHECKED``) of a share: state partitions, each with the offset
    up to which its history is built, and that up to which its states are saved."""
    tables = Tables(config)
    for number, end, saved in built:
        rows = list(_compared(tables, number, end, has_saved=saved == end))
        yield "rechecked", pa.Table.from_pylist(rows, schema=RECHECKED)


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


def _compared(tables: Tables, number: int, end: int, *, has_saved: bool) -> Iterator[_Row]:
    """Rows of ``RECHECKED`` for one state partition, range by range up to the first difference."""
    held, begin, bound = HELD_COLUMNS.empty_table(), 0, 0
    while bound < end:
        bound = min(end, bound + _RECORDS_AT_ONCE)
        where = records_between(number, begin, bound)
        records = tables.read(RECORDS, columns=HISTORY_INPUTS, where=where).sort_by("offset")
        made, held, ends = apply_records(records, held, {number: begin}, {}, partial(commit_spans, tables))
        reached = ends.get(number, begin)
        yield {"records": records.num_rows, "changes": made.num_rows}
        at = pc.field("record_offset")
        where = (pc.field("state_partition") == number) & (at >= begin) & (at < reached)
        stored = tables.read(CHANGES, columns=CHANGE_COLUMNS.names, where=where)
        different = first_difference(stored, made.cast(CHANGE_COLUMNS), _IN_LOG)
        if different is not None:
            yield _difference(CHANGES, number, different, f"at state record {number}:{different['record_offset']}")
            return
        begin = reached
    saved = saved_rows(tables, pc.field("state_partition") == number) if has_saved else held
    different = first_difference(saved, held, KEY_COLUMNS)
    if different is not None:
        yield _difference(HELD, number, different, "its state")


def _difference(table: str, number: int, row: _Row, detail: str) -> _Row:
    key = share_partition_of(row).coordinator_key
    return {"table": table, "state_partition": number, "subject": key, "detail": f"{detail} differs"}
