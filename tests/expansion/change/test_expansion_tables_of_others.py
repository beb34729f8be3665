"""The tables of another cluster are not written by any command of the branch. On a real broker."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from broker.workload import Workload
from drivers.command_line import run

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.tables.cluster_check import create_for
from acktrail.tables.delta.store import Tables

pytestmark = pytest.mark.broker


def files(root: Path) -> set[Path]:
    return {file for file in root.rglob("*") if file.is_file()}


@pytest.mark.parametrize("bound", ["partition_observations", "reset_audit"])
def test_every_command_that_writes_binds_root_and_cluster(
    kafka: KafkaConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str], bound: str
) -> None:
    """Whatever one table the other cluster has there: exit code 3, nothing is written, nothing is sent."""
    topic, root, plan = f"foreign-{uuid4().hex[:8]}", tmp_path / "tables", tmp_path / "plan.json"
    workload = Workload(kafka)
    workload.create_topic(topic, 2)
    brokers = ("--bootstrap-server", kafka.bootstrap_servers)
    made = run(capsys, "expand", "plan", topic, "--partitions", "3", "--out", str(plan), *brokers)
    assert made.code == 0, made
    create_for(Tables(TablesConfig(uri=str(root))), bound, "another-cluster")
    before = files(root)
    for words in (
        ("expand", "check", topic, *brokers),
        ("expand", "apply", str(plan), "--execute", "--no-wait", *brokers),
        ("expand", "approve", str(plan)),
        ("expand", "reject", str(plan)),
    ):
        done = run(capsys, *words, "--tables", str(root))
        assert done.code == 3, (words, done)
        assert "belong to cluster another-cluster" in done.stderr, (words, done)
        assert files(root) == before, words
    assert len(workload.admin.list_topics(topic).topics[topic].partitions) == 2
