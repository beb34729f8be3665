"""The tables of another cluster are not written: root and cluster are bound before anything else. On a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from change.plan_scene import ONE_RELEASE, TOPIC, Scene
from drivers.command_line import run

from acktrail.config import TablesConfig
from acktrail.tables.cluster_check import create_for
from acktrail.tables.delta.store import Tables

pytestmark = pytest.mark.broker


def files(root: Path) -> set[Path]:
    return {file for file in root.rglob("*") if file.is_file()}


@ONE_RELEASE
@pytest.mark.parametrize("bound", ["state_records", "reset_audit"])
def test_every_command_that_writes_binds_root_and_cluster(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str], bound: str
) -> None:
    """Whatever one table the other cluster has there: exit code 3, nothing is written, nothing is sent."""
    group, root = scene.group(), tmp_path / "tables"
    plan = tmp_path / "plan.json"
    brokers = ("--bootstrap-server", scene.kafka.bootstrap_servers)
    asked = ("--group", group, "--topic", TOPIC)
    made = run(capsys, "change", "plan", "reset", *asked, "--to-earliest", "--out", str(plan), *brokers)
    assert made.code == 0, made
    create_for(Tables(TablesConfig(uri=str(root))), bound, "another-cluster")
    before = files(root)
    setting = "share.auto.offset.reset=earliest"
    for words in (
        ("change", "plan", "reset", *asked, "--to-earliest", *brokers),
        ("change", "apply", str(plan), "--execute", *brokers),
        ("change", "verify", str(plan), *brokers),
        ("change", "approve", str(plan), *brokers),
        ("change", "reject", str(plan)),
        ("groups", "delete", group, "--execute", *brokers),
        ("groups", "config", "set", "--group", group, setting, "--execute", *brokers),
        ("groups", "delete-offsets", *asked, "--execute", *brokers),
        ("run", "export", *brokers),
    ):
        done = run(capsys, *words, "--tables", str(root))
        assert done.code == 3, (words, done)
        assert "belong to cluster another-cluster" in done.stderr, (words, done)
        assert files(root) == before, words
    assert scene.starts(group) == [5, 5]
