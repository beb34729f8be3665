"""The tables of another cluster are not written: root and cluster are bound before anything else. On a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivers.command_line import run
from reset.plan_scene import ONE_RELEASE, TOPIC, Scene

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
    made = run(capsys, "reset", "plan", *asked, "--to-earliest", "--out", str(plan), *brokers)
    assert made.code == 0, made
    create_for(Tables(TablesConfig(uri=str(root))), bound, "another-cluster")
    before = files(root)
    target = ("--target-bootstrap-server", scene.kafka.bootstrap_servers, "--target-tables", str(root))
    setting = "share.auto.offset.reset=earliest"
    for words in (
        ("reset", "plan", *asked, "--to-earliest", *brokers),
        ("reset", "apply", str(plan), "--execute", *brokers),
        ("reset", "verify", str(plan), *brokers),
        ("reset", "approve", str(plan), *brokers),
        ("reset", "reject", str(plan)),
        ("groups", "delete", group, "--execute", *brokers),
        ("groups", "config", "set", "--group", group, setting, "--execute", *brokers),
        ("offsets", "delete", *asked, "--execute", *brokers),
        ("export", *brokers),
        ("migrate", "apply", str(plan), "--execute", *target),
    ):
        where = () if words[0] == "migrate" else ("--tables", str(root))
        done = run(capsys, *words, *where)
        assert done.code == 3, (words, done)
        assert "belong to cluster another-cluster" in done.stderr, (words, done)
        assert files(root) == before, words
    assert scene.starts(group) == [5, 5]
