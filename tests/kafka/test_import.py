"""A copied log directory imported, and the cluster's own export continuing behind it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from uuid import uuid4

import pytest
from drivers.command_line import run
from servers.workload import Worked, Workload
from state_topics.filled_topic import read_all

from acktrail.config import TablesConfig
from acktrail.embedded import EmbeddedBroker
from acktrail.tables.delta.store import Tables

pytestmark = pytest.mark.broker


def copied_log_directory(broker: EmbeddedBroker, to: Path) -> list[Path]:
    """The state topic's folders with what lies beside them, copied while the broker runs."""
    data = broker.folder / "data"
    to.mkdir()
    shutil.copy(data / "meta.properties", to)
    for folder in data.glob("__share_group_state-*"):
        shutil.copytree(folder, to / folder.name)
    return sorted(to.glob("*/*.log"))


def test_an_export_goes_on_behind_an_import(
    broker: EmbeddedBroker, workload: Workload, worked: Worked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Segments of a copied log directory say which cluster and topic they are of; imported twice, then exported on:
    every record is in the tables once, as the consumer got it, and the ranges cover every offset once."""
    files = copied_log_directory(broker, tmp_path / "copy")
    root = tmp_path / "tables"
    cluster = ["--cluster", workload.admin.list_topics(timeout=120).cluster_id]
    first = json.loads(run(capsys, "tables", "import", *files, "--tables", root, *cluster, "--json").stdout)
    again = json.loads(run(capsys, "tables", "import", *files, "--tables", root, *cluster, "--json").stdout)
    later = f"later-{uuid4().hex[:8]}"
    workload.create_topic(later)
    workload.produce(later, 3)
    workload.acknowledge(later, later, 3)

    arguments = ["--bootstrap-server", broker.bootstrap_servers, "--tables", root, "--state-only", "--json"]
    exported = run(capsys, "run", "export", *arguments)
    records = read_all(broker)

    assert exported.code == 0, exported.stderr
    assert again["records_new"] == 0
    assert json.loads(exported.stdout)["records_read"] > 0
    tables = Tables(TablesConfig(uri=str(root)))
    rows = tables.read("state_records", columns=["state_partition", "offset", "key", "value", "run_id"]).to_pylist()
    assert sum(row["run_id"] == first["run_id"] for row in rows) == first["records_new"] > worked.accepted
    stored = {(row["state_partition"], row["offset"]): (row["key"], row["value"]) for row in rows}
    assert len(stored) == len(rows)
    consumed = {(r.state_partition, r.offset): (r.key, r.value) for r in records}
    assert stored.items() <= consumed.items()
    ranges = tables.read("export_ranges").to_pylist()
    assert len({row["state_topic_id"] for row in ranges}) == 1
    assert {row["dialect"] for row in ranges} == {None, "4.2"}
    covered = [
        (row["state_partition"], offset)
        for row in ranges
        for offset in range(row["first_offset"], row["last_offset"] + 1)
    ]
    assert sorted(covered) == sorted(stored)
    assert "is of cluster" in run(capsys, "tables", "import", *files, "--tables", root, "--cluster", "other").complaint(
        3
    )
