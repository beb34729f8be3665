"""Archived offsets: every one is listed once, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail_dashboard.rows.archived_rows import ARCHIVED_COLUMNS, archived_rows, groups_with_more, with_archived

BATCHES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 6), st.sampled_from([0, 2, 3, 4, 4, 9]), st.integers(1, 5))
)
LAST_RECORD = 50
Batch = tuple[int, int, int, int]


def state(batches: list[Batch], *, archived_seen: int = 0, last_record: int | None = LAST_RECORD) -> pa.Table:
    return rows(
        "share_partition_states",
        [{"batches": batches, "last_record_offset": last_record, "archived_seen": archived_seen}],
    )


def records(found: Iterable[tuple[int, list[Batch]]]) -> pa.Table:
    whole = rows("state_records", [{"offset": offset, "batches": batches} for offset, batches in found])
    return whole.select(list(ARCHIVED_COLUMNS))


def rows(name: str, found: list[dict[str, Any]]) -> pa.Table:
    schema = TABLES[name]
    own = {"group_id": "g", "topic_id": "t", "partition": 0, "state_partition": 1}
    full = [own | row | {"batches": structs(row["batches"])} for row in found]
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in full], schema=schema)


def structs(batches: list[Batch]) -> list[dict[str, int]]:
    return [
        {"first_offset": first, "last_offset": first + more, "delivery_state": kind, "delivery_count": count}
        for first, more, kind, count in batches
    ]


def offsets(batches: Iterable[Batch]) -> set[int]:
    return {offset for first, more, kind, _ in batches if kind == 4 for offset in range(first, first + more + 1)}


@given(now=BATCHES, past=st.lists(st.tuples(st.integers(0, 99), BATCHES), max_size=6))
@settings(max_examples=150, deadline=None)
def test_archived_offsets_are_those_of_state_and_records(now: list[Batch], past: list[tuple[int, list[Batch]]]) -> None:
    """The listed offsets are the union of the archived ones, disjoint; retained exactly where the state has them;
    records that came after the state's last one say nothing."""
    found = archived_rows(state(now), records(past))
    listed = [(o, row.retained) for row in found for o in range(row.first_offset, row.last_offset + 1)]
    earlier = offsets(batch for offset, batches in past if offset <= LAST_RECORD for batch in batches)
    assert [offset for offset, _ in listed] == sorted(offsets(now) | earlier)
    assert {offset for offset, retained in listed if retained} == offsets(now)
    assert all(row.topic is None and row.records >= 1 for row in found)


@given(past=st.lists(st.tuples(st.integers(0, LAST_RECORD), BATCHES), max_size=6))
@settings(max_examples=60, deadline=None)
def test_records_without_an_archived_batch_are_not_needed(past: list[tuple[int, list[Batch]]]) -> None:
    """Leaving out records that archived nothing changes nothing, and leaves none of them."""
    whole = records(past)
    kept = with_archived(whole)
    assert archived_rows(state([]), kept) == archived_rows(state([]), whole)
    assert kept.num_rows == sum(bool(any(kind == 4 for _, _, kind, _ in batches)) for _, batches in past)


def test_delivery_count_is_the_highest_seen() -> None:
    """An offset that was archived twice (a reset in between) shows the larger delivery count."""
    twice = archived_rows(state([]), records([(1, [(5, 0, 4, 2)]), (2, [(5, 0, 4, 5)])]))
    assert [(row.first_offset, row.delivery_count, row.retained) for row in twice] == [(5, 5, False)]


def test_a_key_on_a_foreign_state_partition_is_not_mixed_in() -> None:
    """Records of the same key that lie on another state partition belong to another state."""
    foreign = records([(1, [(5, 0, 4, 2)])]).set_column(3, "state_partition", pa.array([7], pa.int32()))
    assert archived_rows(state([]), foreign) == ()


def test_records_are_read_only_for_groups_that_archived_more(sample: Any, make_table: Callable[..., pa.Table]) -> None:
    """A group whose state shows all it ever archived needs no second look."""
    assert groups_with_more(sample.share_partition_states) == ()
    assert groups_with_more(state([(5, 1, 4, 1)], archived_seen=2)) == ()
    assert groups_with_more(state([(5, 1, 4, 1)], archived_seen=3)) == ("g",)
