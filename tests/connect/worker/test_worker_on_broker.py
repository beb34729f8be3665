"""A worker on a real broker: what it shows to Prometheus, what a source without its rights says, and where a person may
set it after Kafka lost a log. Every plug-in's reference says in words what is valid."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from drivers.rights import SEEN, TOPICS
from drivers.rights_of_sources import OFTEN, says_which_rights
from prometheus_client.parser import text_string_to_metric_families
from samples.observed_batch import observed
from servers.guarded_broker import GuardedBroker
from servers.workload import Worked, Workload, until
from state_topics.lost_logs import export_state, lose, renew, write

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import ConfigurationError, InputError
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.model.acls import Acl
from acktrail.secrets import Providers
from acktrail.tables.delta.store import Tables
from acktrail_connect.config_def import reference
from acktrail_connect.sources.observation_source import group_gauges
from acktrail_connect.worker.connector_run import ConfigStore
from acktrail_connect.worker.plugins import definition_of, installed
from acktrail_connect.worker.task_thread import RunState
from acktrail_connect.worker.worker import Worker
from acktrail_connect.worker.worker_config import cluster_of
from acktrail_connect.worker.worker_metrics import export_lag, metrics_served
from acktrail_embedded import EmbeddedBroker
from acktrail_embedded.kafka.embedded_broker import free_ports


def scraped(address: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Values by name and labels."""
    with urllib.request.urlopen(address, timeout=30) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for sample in (sample for family in families for sample in family.samples):
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


def test_a_worker_without_connectors_knows_its_cluster(kafka: KafkaConfig) -> None:
    """That of the brokers in its file; none where they do not answer, or where it names none."""
    with ShareGroupAdmin(kafka) as admin:
        own = admin.cluster_id
    dead = f"127.0.0.1:{free_ports().client}"
    for servers, found in ((kafka.bootstrap_servers, own), (dead, None), (None, None)):
        defaults = {} if servers is None else {"kafka.bootstrap.servers": servers}
        own_cluster = partial(cluster_of, {**defaults, "sink.tables": "/none"}, Providers())
        assert Worker(ConfigStore(), own_cluster=own_cluster).cluster_id() == found


def test_a_listener_that_cannot_be_is_refused(worker: Worker) -> None:
    """A wrong address is one clear error, before anything is served."""
    for listener in ("nowhere", "127.0.0.1:notaport", "203.0.113.1:1"):
        with pytest.raises(ConfigurationError, match=r"metrics\.listener"), metrics_served(worker, listener):
            pass


@pytest.mark.parametrize("plugin", [each.name for each in installed()])
def test_the_reference_says_what_is_valid_in_words(plugin: str) -> None:
    """No validator shows as Python shows a function or an object."""
    for key in definition_of(plugin).keys.values():
        text = "" if key.validator is None else key.validator.text
        assert "<" not in text, (key.name, text)
    assert "| key |" in reference(definition_of(plugin))


SOURCES: Final[dict[str, tuple[tuple[Acl, ...], dict[str, str]]]] = {
    "ShareGroupStateSource": ((Acl("READ", "topic", "__share_group_state"),), {}),
    "ShareGroupMetadataSource": ((Acl("READ", "topic", "__consumer_offsets"),), {}),
    "ShareGroupOffsetsSource": ((*SEEN, TOPICS), OFTEN),
    "DeadLetterSource": (SEEN, {"topics.refresh.interval.ms": "100"}),
}
"""What each needs, and keys that let it look often."""


def test_every_source_is_tried() -> None:
    """The source of tables, and those of extras, have tests of their own."""
    registered = entry_points(group="acktrail.connect.sources")
    named = {each.name for each in registered if each.value.startswith("acktrail_connect.")}
    assert named == {*SOURCES, "DeltaTableSource"}


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_without_its_rights_says_which(
    guarded: GuardedBroker, guarded_workload: Workload, tmp_path: Path, name: str
) -> None:
    """In its status."""
    says_which_rights(guarded, guarded_workload, tmp_path, name, *SOURCES[name])


@pytest.fixture
def losing(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker that lost two of three state logs."""
    with EmbeddedBroker(folder=tmp_path / "broker") as broker:
        yield broker


@pytest.fixture
def tables(losing: EmbeddedBroker, tmp_path: Path) -> TablesConfig:
    """What was exported before and after the loss: 100 records of each log, then those of the new ones."""
    config = TablesConfig(uri=str(tmp_path / "tables"))
    renew(Workload(losing.config()))
    write(losing, "old", {0: 100, 1: 100, 2: 100})
    export_state(losing, config)
    lose(losing, 0, 1)
    write(losing, "new", {0: 150, 1: 30, 2: 10})
    export_state(losing, config)
    return config


def test_lag_and_position_are_of_the_new_log(losing: EmbeddedBroker, tables: TablesConfig, worker: Worker) -> None:
    """A worker's lag counts the records of the log that Kafka has now, not offsets of the tables; a person's position
    is one of the tables, and may lie up to that log's end and not behind it."""
    config = {"connector.class": "ShareGroupStateSource", "kafka.bootstrap.servers": losing.bootstrap_servers}
    worker.create("state", {**config, "sink.tables": tables.uri, "flush.interval.ms": "100"})
    run = worker.runs()["state"]
    until(lambda: set(export_lag(run).records.values()) == {0}, what="all that was written is exported")
    worker.aim("state", RunState.STOPPED)
    until(lambda: worker.status("state").state is RunState.STOPPED, what="the connector stopped")
    write(losing, "later", {0: 4, 2: 3})
    behind = {int(each.rpartition("/")[2]): count for each, count in export_lag(run).records.items()}
    assert behind == {0: 4, 1: 0, 2: 3}
    ((partition, offset),) = (each for each in worker.offsets("state") if each[0]["partition"] == 0)
    end = int(offset["offset"]) + 4
    with pytest.raises(InputError, match=f"offset {end + 1} is {end + 1 - 101} there"):
        worker.alter_offsets("state", [(partition, {"offset": end + 1})])
    worker.alter_offsets("state", [(partition, {"offset": end})])
    assert {count for each, count in export_lag(run).records.items() if each.endswith("/0")} == {0}
    worker.stop()
    export_state(losing, tables)
    assert set(export_lag(run).records.values()) == {0}


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
