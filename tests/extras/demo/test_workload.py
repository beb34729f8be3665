"""The demo workload says exactly what its consumers did, and the broker's own state says the same. The demo's folder is
its own, and files of others are safe."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers.workload import until

from acktrail.config import KafkaConfig
from acktrail.errors import ConfigurationError, Unreachable
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail_demo.demo import demo_folder
from acktrail_demo.workload.demo_cluster import WorkloadUnfinished
from acktrail_demo.workload.scenario import ALWAYS, Action, GroupScript, RecordPlan, plan_scenario
from acktrail_demo.workload.workload_run import DEFAULT_SEED, run_workload
from acktrail_embedded import EmbeddedBroker


@pytest.mark.full
@pytest.mark.broker
def test_a_deadline_ends_the_run_and_its_consumers() -> None:
    """When time is up there is one error that says for what it waited, and no thread is left, nor a member: one whose
    close did not return goes when its session ends."""
    before = threading.active_count()
    with EmbeddedBroker() as broker:
        groups = [plan.group_id for plan in plan_scenario(seed=DEFAULT_SEED).groups]
        with pytest.raises(WorkloadUnfinished, match="waiting for"):
            run_workload(broker.bootstrap_servers, scale=30, deadline_s=5)
        assert threading.active_count() == before
        with ShareGroupAdmin(KafkaConfig(bootstrap_servers=broker.bootstrap_servers)) as admin:
            until(lambda: not any(group.members for group in admin.describe_groups(groups)), what="members left")


@pytest.mark.full
@pytest.mark.broker
@pytest.mark.slow
def test_a_release_that_cannot_serve_every_consumer_is_refused() -> None:
    """Kafka 4.1 fails on half of librdkafka's member ids: the run says so instead of hanging."""
    with EmbeddedBroker("4.1.2") as old, pytest.raises(ConfigurationError, match=r"needs Kafka 4\.2 or later"):
        run_workload(old.bootstrap_servers)


def test_nobody_at_the_address_is_one_clear_error() -> None:
    """No broker: Unreachable, in seconds."""
    with pytest.raises(Unreachable, match=r"no Kafka broker answered at 127\.0\.0\.1:1"):
        run_workload("127.0.0.1:1", deadline_s=5)


@given(st.integers(), st.sampled_from([0.01, 0.1, 0.5]))
def test_the_plan_follows_from_the_seed(seed: int, scale: float) -> None:
    """Equal seeds plan equally, others otherwise; offsets of each log are dense; every record_plan is of a record that
    will be there."""
    scenario = plan_scenario(seed=seed, scale=scale)
    assert scenario == plan_scenario(seed=seed, scale=scale) != plan_scenario(seed=seed + 1, scale=scale)
    assert {plan.script for plan in scenario.groups} == set(GroupScript)
    for topic in scenario.topics:
        for log in topic.logs:
            offsets = [r.offset for wave in topic.waves for r in wave if r.partition == log.partition]
            assert offsets == list(range(topic.end_offset(log.partition)))
    for plan in scenario.groups:
        ends = {log: topic.end_offset(log.partition) for topic in plan.topics for log in topic.logs}
        assert all(offset < ends[log] for log, offset in plan.record_plans)
    plans = [plan for group in scenario.groups for plan in group.record_plans.values()]
    assert {plan.final for plan in plans} == set(Action)
    assert RecordPlan(releases=ALWAYS) in plans


def _fill(root: Path) -> None:
    for part in ("tables/topics/x.parquet", "broker/broker.log", "airflow/airflow.db", "reports/acktrail-report.html"):
        (root / part).parent.mkdir(parents=True, exist_ok=True)
        (root / part).write_text("old")


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    """A folder that the demo did not make is refused, and nothing in it is touched."""
    _fill(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ConfigurationError, match="the demo did not make"), demo_folder(tmp_path):
        raise AssertionError("it was taken")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_new_demo_clears_the_one_before_and_nothing_else(tmp_path: Path) -> None:
    """Tables, report and servers of the last demo go; a file somebody put beside them stays."""
    root = tmp_path / "new" / "demo"
    with demo_folder(root):
        _fill(root)
    (root / "notes.txt").write_text("mine")
    with demo_folder(root) as folder:
        assert {path.name for path in root.iterdir()} == {".acktrail-demo", "notes.txt"}
        _fill(root)
        folder.clear_servers()
        assert {path.name for path in root.iterdir() if not path.name.startswith(".")} == {
            "notes.txt",
            "reports",
            "tables",
        }


def test_one_demo_at_a_time(tmp_path: Path) -> None:
    """A second demo in the same folder is refused while the first runs, and clears nothing. Where a folder cannot be
    made the error says so, with a way out."""
    with demo_folder(tmp_path / "demo") as first:
        _fill(first.root)
        with pytest.raises(ConfigurationError, match="another demo"), demo_folder(tmp_path / "demo"):
            raise AssertionError("it was taken")
        assert (first.tables / "topics" / "x.parquet").exists()
    with demo_folder(tmp_path / "demo"):
        (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot write") as caught, demo_folder(tmp_path / "file" / "demo"):
        raise AssertionError("it was taken")
    assert "--out" in caught.value.hint
