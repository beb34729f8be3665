"""An observation says what the cluster said, once, with nothing made up; a worker shows it to Prometheus, and what is
not known has no number."""

from __future__ import annotations

import datetime as dt
import urllib.request
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from prometheus_client.parser import text_string_to_metric_families
from samples.observed_batch import observed
from servers.workload import Worked, Workload, until

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.connect.metrics.worker_metrics import metrics_served
from acktrail.connect.runtime.connector_run import ConfigStore
from acktrail.connect.runtime.worker import Worker
from acktrail.connect.source_batches import SourceBatch
from acktrail.errors import ConfigurationError
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.groups.offsets_connector import group_gauges, observe
from acktrail.model.share_partition import STATE_TOPIC
from acktrail.tables.delta.store import Tables


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


def scraped(address: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Values by name and labels."""
    with urllib.request.urlopen(address, timeout=30) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


@pytest.fixture
def worker() -> Iterator[Worker]:
    one = Worker(ConfigStore())
    yield one
    one.stop()


def test_a_scrape_shows_what_was_exported(
    kafka: KafkaConfig, worked: Worked, workload: Workload, worker: Worker, tmp_path: Any
) -> None:
    """Counts are those of the tables, the lag falls to nothing, groups have the names that other exporters use, and
    what happens while the broker is asked holds nothing up."""
    common = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "sink.tables": str(tmp_path / "tables"),
        "flush.interval.ms": "100",
        **{f"kafka.{name}": value for name, value in kafka.properties.items()},
    }
    with metrics_served(worker, "127.0.0.1:0") as address:
        worker.create("state", {**common, "connector.class": "ShareGroupStateSource", "linger.ms": "10"})
        worker.create("offsets", {**common, "connector.class": "ShareGroupOffsetsSource", "interval.ms": "1000"})
        workload.acknowledge(f"metrics-{uuid4().hex[:8]}", worked.topic, 3)
        store = Tables(TablesConfig(uri=str(tmp_path / "tables")))

        def is_exported() -> bool:
            found = scraped(address)
            exported = found["acktrail_records_exported_total"].get(("state", "0"))
            groups = {labels[0] for labels in found.get("kafka_share_group_lag_unknown_partitions", {})}
            return bool(exported) and exported == store.read("state_records").num_rows and worked.group in groups

        until(is_exported, what="metrics of what was exported")
        found = scraped(address)
    assert found["acktrail_connector_state"]["state", "RUNNING"] == 1
    assert found["acktrail_task_state"]["offsets", "RUNNING", "0"] == 1
    assert found["acktrail_records_quarantined_total"]["state", "0"] == 0
    assert found["acktrail_rows_committed_total"]["state", "state_records", "0"] >= 3
    assert found["kafka_share_group_exporter_last_success_timestamp_seconds"]
    starts = found["kafka_share_group_start_offset"]
    assert starts[worked.group, "0", worked.topic] >= worked.accepted


def test_a_sum_is_there_only_when_every_lag_is_known() -> None:
    """Unknown is a count of its own, never a zero in a sum."""
    known = {gauge.name: gauge.value for gauge in group_gauges(observed(3, 4), 1.0)}
    assert (known["kafka_share_group_lag_sum"], known["kafka_share_group_lag_unknown_partitions"]) == (7, 0)
    partly = group_gauges(observed(3, None), 1.0)
    names = {gauge.name: gauge.value for gauge in partly}
    assert "kafka_share_group_lag_sum" not in names
    assert names["kafka_share_group_lag_unknown_partitions"] == 1
    assert [gauge.value for gauge in partly if gauge.name == "kafka_share_group_lag"] == [3]


def test_series_of_share_partitions_are_bounded() -> None:
    """However many share partitions there are, the largest lags have series and the sum has all."""
    many = group_gauges(observed(*range(5_000)), 1.0)
    lags = [gauge.value for gauge in many if gauge.name == "kafka_share_group_lag"]
    assert (len(lags), max(lags), min(lags)) == (2_000, 4_999, 3_000)
    assert next(gauge.value for gauge in many if gauge.name == "kafka_share_group_lag_sum") == sum(range(5_000))
    left_out = {gauge.name: gauge.value for gauge in many if gauge.name.endswith("_without_series")}
    assert list(left_out.values()) == [0, 3_000]


def test_series_of_groups_are_bounded() -> None:
    """However many groups there are, those with the largest lags have series, before those without any lag also one
    whose lag is not known, and the others are counted."""
    for others, unknown_has_series, left_out in ((999, True, 0), (1_000, True, 1), (1_003, False, 4)):
        many = group_gauges(observed(None, others=others), 1.0)
        shown = {gauge.labels["group"] for gauge in many if gauge.name == "kafka_share_group_state"}
        assert len(shown) == 1_000
        assert ("g" in shown, f"g{others - 1}" in shown) == (unknown_has_series, True)
        counted = {gauge.name: gauge.value for gauge in many if not gauge.labels}
        assert counted["kafka_share_group_exporter_groups_without_series"] == left_out
        of_groups = [gauge for gauge in many if gauge.labels.keys() <= {"group", "state"} and gauge.labels]
        assert {gauge.labels["group"] for gauge in of_groups} == shown


def test_a_listener_that_cannot_be_is_refused(worker: Worker) -> None:
    """A wrong address is one clear error, before anything is served."""
    for listener in ("nowhere", "127.0.0.1:notaport", "203.0.113.1:1"):
        with pytest.raises(ConfigurationError, match=r"metrics\.listener"), metrics_served(worker, listener):
            pass
