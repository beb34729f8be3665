"""Archived offsets: every one is listed once, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from samples.sample_run import sample_run

from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.record_history import ArchivedRange
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail.model.status_changes import Cause, RecordPosition
from acktrail.view.partition_rows import archived_rows, groups_with_more

BATCHES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 6), st.sampled_from([0, 2, 3, 4, 4, 9]), st.integers(1, 5))
)
LAST_RECORD = 50
HOME = 1
"""The state partition of the state."""
KEY = SharePartition(group_id=GroupId("g"), topic_id=TopicId("t"), partition=0)
Batch = tuple[int, int, int, int]


def state(batches: Iterable[Batch], *, archived_seen: int = 0) -> pa.Table:
    schema = TABLES["share_partition_states"]
    row = {"group_id": "g", "topic_id": "t", "partition": 0, "state_partition": HOME, "archived_seen": archived_seen}
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    structs = [dict(zip(names, (f, f + more, kind, count), strict=True)) for f, more, kind, count in batches]
    whole = row | {"batches": structs, "last_record_offset": LAST_RECORD}
    return pa.Table.from_pylist([{name: whole.get(name) for name in schema.names}], schema=schema)


def archived(record: int, batches: Iterable[Batch], *, state_partition: int = HOME) -> list[ArchivedRange]:
    """The archived batches that the state record at offset `record` shows."""
    at = RecordPosition(state_partition=state_partition, offset=record, timestamp_ms=None, cause=Cause.UPDATE)
    return [
        ArchivedRange(key=KEY, first_offset=f, last_offset=f + more, delivery_count=count, at=at, is_dated=True)
        for f, more, kind, count in batches
        if kind == 4
    ]


def offsets(batches: Iterable[Batch]) -> set[int]:
    return {offset for first, more, kind, _ in batches if kind == 4 for offset in range(first, first + more + 1)}


@given(now=BATCHES, past=st.lists(st.tuples(st.integers(0, 99), BATCHES), max_size=6))
@settings(max_examples=60, deadline=None)
def test_archived_offsets_are_those_of_state_and_history(now: list[Batch], past: list[tuple[int, list[Batch]]]) -> None:
    """The listed offsets are the union of the archived ones, disjoint; retained exactly where the state has them;
    records that came after the state's last one count for nothing."""
    found = archived_rows(state(now), [each for record, batches in past for each in archived(record, batches)])
    listed = [(o, row.retained) for row in found for o in range(row.first_offset, row.last_offset + 1)]
    earlier = offsets(batch for offset, batches in past if offset <= LAST_RECORD for batch in batches)
    assert [offset for offset, _ in listed] == sorted(offsets(now) | earlier)
    assert {offset for offset, retained in listed if retained} == offsets(now)
    assert all(row.topic is None and row.records >= 1 for row in found)


def test_delivery_count_is_the_highest_seen() -> None:
    """An offset that was archived twice (a reset in between) shows the larger delivery count."""
    twice = archived_rows(state([]), [*archived(1, [(5, 0, 4, 2)]), *archived(2, [(5, 0, 4, 5)])])
    assert [(row.first_offset, row.delivery_count, row.retained) for row in twice] == [(5, 5, False)]


def test_a_key_on_a_foreign_state_partition_is_not_mixed_in() -> None:
    """Records of the same key that lie on another state partition belong to another state."""
    assert archived_rows(state([]), archived(1, [(5, 0, 4, 2)], state_partition=7)) == ()


def test_history_is_read_only_for_groups_that_archived_more() -> None:
    """A group whose state shows all it ever archived needs no second look."""
    assert groups_with_more(sample_run().share_partition_states) == ()
    assert groups_with_more(state([(5, 1, 4, 1)], archived_seen=2)) == ()
    assert groups_with_more(state([(5, 1, 4, 1)], archived_seen=3)) == ("g",)
