"""The view of what became of records: for any life of share partitions it counts what ``outcome_counts`` counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from definitions.status_history import change_table, changes_of
from hypothesis import given, settings
from hypothesis import strategies as st
from samples.coordinator_random_logs import KEYS, coordinator_logs

from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.history.record_outcomes import by_share_partition, outcome_counts, outcome_filter
from acktrail.model.offset_ranges import joined
from acktrail.model.record_history import archived_ranges
from acktrail.model.records import StateRecord
from acktrail.tables.sql.views import view_text

OFFSETS = 40
READ = ("delivery_history", "archived_offsets", "state_records", "queue_statuses", "topics")
EACH_KEY = [{"group_id": key.group_id, "topic_id": key.topic_id, "partition": key.partition} for key in KEYS]
Row = Mapping[str, Any]


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


def fates(engine: duckdb.DuckDBPyConnection, changes: pa.Table, **rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the view, where the tables have these rows, which may lack columns."""
    for name in READ:
        engine.register(name, pa.Table.from_pylist(rows.get(name, []), schema=TABLES[name]))
    engine.register("delivery_history", pa.Table.from_pylist(changes.to_pylist(), schema=TABLES["delivery_history"]))
    found: list[dict[str, Any]] = engine.execute(view_text("record_fates", "duckdb")).fetch_arrow_table().to_pylist()
    return found


def offsets(rows: Sequence[Row]) -> set[int]:
    """Those up to ``OFFSETS``."""
    return {
        offset
        for row in rows
        for offset in range(
            row["first_offset"], min(OFFSETS, row["last_offset"] or 0 if row["records"] else OFFSETS) + 1
        )
    }


@settings(max_examples=20)
@given(
    coordinator_logs(),
    st.integers(0, 3),
    st.tuples(st.integers(0, 12), st.integers(0, 12)),
    st.sets(st.integers(0, OFFSETS), max_size=4),
    st.one_of(st.none(), st.integers(0, 14)),
    st.sampled_from([None, OFFSETS + 1]),
)
def test_fates_are_what_became_of_each_offset(
    engine: duckdb.DuckDBPyConnection,
    log: list[StateRecord],
    begin: int,
    gap: tuple[int, int],
    hidden: set[int],
    doubt: int | None,
    log_end: int | None,
) -> None:
    """With an export that begins late, a gap, offsets that are no records, an unreadable record that names no share
    partition, and a log end or none: the ranges are disjoint, their sums are those of ``outcome_counts``, and each
    archived record is there, unless the group finished it again, which is said."""
    changes, spans = changes_of(log, range(*gap), begin), list(joined((offset, offset) for offset in sorted(hidden)))
    rows = fates(
        engine,
        change_table(changes),
        archived_offsets=[
            {**key, "first_offset": first, "last_offset": last, "is_record": False}
            for key in EACH_KEY
            for first, last in spans
        ],
        state_records=[
            {"state_partition": number, "offset": doubt, "decode_status": "malformed_key"}
            for number in {change.at.state_partition for change in changes}
            if doubt is not None
        ],
        queue_statuses=[{**key, "log_end_offset": log_end} for key in EACH_KEY],
    )
    by_key = dict(by_share_partition(change_table(changes).filter(outcome_filter())))
    for key in KEYS:
        own = [row for row in rows if row["partition"] == key.partition]
        table = by_key.get((key.group_id, key.topic_id, key.partition))
        if table is None:
            assert [row["reason"] for row in own] == ["no_history"]
            continue
        told = {
            outcome: offsets([row for row in own if row["outcome"] == outcome])
            for outcome in ("acknowledged", "archived", "unknown")
        }
        assert len(offsets(own)) == sum(map(len, told.values()))
        unknown = offsets([row for row in own if row["outcome"] == "unknown" or row["reason"] == "may_have_changed"])
        found = outcome_counts(table, 0, OFFSETS, [] if doubt is None else [doubt], spans)
        assert (found.acknowledged, found.archived, found.unknown) == (
            *(len(told["acknowledged"]), len(told["archived"]), len(unknown)),
        )
        assert {row["records"] is None for row in own if row["last_offset"] is None} <= {True}
        ranges = archived_ranges(change for change in changes if change.key == key)
        ever = {offset for each in ranges for offset in range(each.first_offset, each.last_offset + 1)} - hidden
        again = offsets([row for row in own if (row["times_finished"] or 0) > 1])
        assert told["archived"] <= ever <= told["archived"] | again
