"""An observation says what the cluster said, once, with nothing made up."""

from __future__ import annotations

import datetime as dt
from typing import Any
from uuid import uuid4

import pytest
from servers.workload import Worked, Workload, until

from acktrail.connect.source_batches import SourceBatch
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.groups.offsets_connector import observe
from acktrail.model.share_partition import STATE_TOPIC

pytestmark = pytest.mark.broker


@pytest.fixture
def batch(admin: ShareGroupAdmin, worked: Worked) -> SourceBatch:
    return observe(admin, run_id="r1", phase="before")


def rows(batch: SourceBatch, table: str, **wanted: Any) -> list[dict[str, Any]]:
    return [row for row in batch.rows[table].to_pylist() if all(row[name] == value for name, value in wanted.items())]


def test_rows_have_the_tables_columns_and_no_minus_one(batch: SourceBatch) -> None:
    """Unknown is null; every row says cluster, run and phase."""
    for name, table in batch.rows.items():
        assert table.schema == TABLES[name]
        assert table.num_rows
        assert set(table.column("run_id").to_pylist()) == {"r1"}
        assert all(-1 not in row.values() for row in table.to_pylist())
    assert batch.position is None
    assert batch.source_partition.startswith("observation/")


def test_every_row_says_when_the_cluster_was_asked(admin: ShareGroupAdmin, worked: Worked) -> None:
    """Between the call and its end."""
    begun = dt.datetime.now(dt.UTC)
    batch = observe(admin, run_id="r3", phase="before")
    ended = dt.datetime.now(dt.UTC)
    at = {"topics": "last_seen_at", "group_observations": "observed_at", "offset_observations": "observed_at"}
    for table, name in at.items():
        assert all(begun <= row[name] <= ended for row in rows(batch, table)), table


def test_share_partitions_are_what_the_group_describes(
    batch: SourceBatch, admin: ShareGroupAdmin, worked: Worked
) -> None:
    """Start offset, lag and leader epoch of a quiet group are those of a direct question."""
    seen = {r["partition"]: r for r in rows(batch, "offset_observations", group_id=worked.group)}
    for offset in admin.describe_offsets(worked.group):
        row = seen.pop(offset.partition)
        assert [row[name] for name in ("topic", "topic_id", "start_offset", "lag", "leader_epoch")] == [
            offset.topic,
            offset.topic_id,
            offset.start_offset,
            offset.lag,
            offset.leader_epoch,
        ]
    assert not seen


def test_logs_of_described_topics_and_of_the_state_topic_are_there(
    batch: SourceBatch, admin: ShareGroupAdmin, worked: Worked
) -> None:
    """Every partition of both has a row with its log's ends; the produced records are between them."""
    logs = rows(batch, "offset_observations", group_id=None)
    ours = {row["partition"]: row for row in logs if row["topic"] == worked.topic}
    assert {p: (r["log_start_offset"], r["log_end_offset"]) for p, r in ours.items()} == {
        0: (0, worked.produced),
        1: (0, 0),
    }
    (state,) = admin.topics([STATE_TOPIC])
    assert len([row for row in logs if row["topic_id"] == state.topic_id]) == state.partition_count


def test_groups_have_type_state_and_configuration(batch: SourceBatch, worked: Worked) -> None:
    """One row a group, with the configuration in force and nothing of other group types in it."""
    (row,) = rows(batch, "group_observations", group_id=worked.group)
    assert (row["group_type"], row["group_state"], row["members"], row["error_code"]) == ("share", "Empty", 0, 0)
    configs = dict(row["configs"])
    assert configs["share.auto.offset.reset"] == "earliest"
    assert not [name for name in configs if name.startswith(("consumer.", "streams."))]


def test_topics_are_all_that_there_are(batch: SourceBatch, admin: ShareGroupAdmin, worked: Worked) -> None:
    """The listing holds every topic with its id."""
    assert {(r["topic"], r["topic_id"]) for r in rows(batch, "topics")} == {
        (t.name, t.topic_id) for t in admin.topics()
    }


def test_a_deleted_topic_is_not_there(admin: ShareGroupAdmin, workload: Workload) -> None:
    """After its topic was deleted a group has no share partition of it, and nothing fails."""
    name = f"doomed-{uuid4().hex[:8]}"
    workload.create_topic(name)
    workload.produce(name, 4)
    workload.acknowledge(name, name, 4)
    before = observe(admin, run_id="r2", phase="before")
    assert rows(before, "offset_observations", topic=name)
    workload.delete_topic(name)
    until_gone(admin, name)
    after = observe(admin, run_id="r2", phase="after")
    assert not rows(after, "topics", topic=name)
    assert not [r for r in rows(after, "offset_observations", group_id=None) if r["topic"] == name]
    assert rows(after, "group_observations", group_id=name)


def until_gone(admin: ShareGroupAdmin, topic: str) -> None:
    until(lambda: topic not in {t.name for t in admin.topics()}, what="deletion")
