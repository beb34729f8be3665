"""An observation says what the cluster said, once, with nothing made up."""

from __future__ import annotations

import datetime as dt
from typing import Any
from uuid import uuid4

from servers.workload import Worked, Workload, until

from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.model.share_partition import STATE_TOPIC
from acktrail_connect.source_batches import SourceBatch
from acktrail_connect.sources.observation import observe


def rows_of(batch: SourceBatch, table: str, **wanted: Any) -> list[dict[str, Any]]:
    return [row for row in batch.rows[table].to_pylist() if all(row[name] == value for name, value in wanted.items())]


def test_an_observation_has_the_logs_and_groups_of_the_cluster(admin: ShareGroupAdmin, worked: Worked) -> None:
    """Rows have the table's columns; unknown is null; every row says cluster, run, phase, and when the cluster was
    asked. Every partition of described topics and of the state topic has a row with its log's ends. A group has one
    with the configuration in force and nothing of other group types in it."""
    begun = dt.datetime.now(dt.UTC)
    batch = observe(admin, run_id="r1", phase="before")
    ended = dt.datetime.now(dt.UTC)
    for name, table in batch.rows.items():
        assert table.schema == TABLES[name]
        assert table.num_rows
        assert set(table.column("run_id").to_pylist()) == {"r1"}
        assert all(-1 not in row.values() for row in table.to_pylist())
        at = "last_seen_at" if name == "topics" else "observed_at"
        assert all(begun <= row[at] <= ended for row in table.to_pylist())
    assert batch.position is None
    assert batch.source_partition.startswith("observation/")

    logs = rows_of(batch, "offset_observations", group_id=None)
    ours = {row["partition"]: row for row in logs if row["topic"] == worked.topic}
    ends = {partition: (row["log_start_offset"], row["log_end_offset"]) for partition, row in ours.items()}
    assert ends == {0: (0, worked.produced), 1: (0, 0)}
    (state,) = admin.topics([STATE_TOPIC])
    assert len([row for row in logs if row["topic_id"] == state.topic_id]) == state.partition_count

    (row,) = rows_of(batch, "group_observations", group_id=worked.group)
    assert (row["group_type"], row["group_state"], row["members"], row["error_code"]) == ("share", "Empty", 0, 0)
    configs = dict(row["configs"])
    assert configs["share.auto.offset.reset"] == "earliest"
    assert not [name for name in configs if name.startswith(("consumer.", "streams."))]


def test_a_deleted_topic_is_not_there(admin: ShareGroupAdmin, workload: Workload) -> None:
    """After its topic was deleted a group has no share partition of it, and nothing fails."""
    name = f"doomed-{uuid4().hex[:8]}"
    workload.create_topic(name)
    workload.produce(name, 4)
    workload.acknowledge(name, name, 4)
    before = observe(admin, run_id="r2", phase="before")
    assert rows_of(before, "offset_observations", topic=name)
    workload.delete_topic(name)
    until(lambda: name not in {t.name for t in admin.topics()}, what="deletion")
    after = observe(admin, run_id="r2", phase="after")
    assert not rows_of(after, "topics", topic=name)
    assert not [r for r in rows_of(after, "offset_observations", group_id=None) if r["topic"] == name]
    assert rows_of(after, "group_observations", group_id=name)
