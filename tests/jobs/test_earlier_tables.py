"""Tables that release 0.1 wrote, continued by this one."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from drivers.command_line import run
from jobs.exported_world import ExportedWorld
from jobs.test_history import live

from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.delta_sink import DeltaSink
from acktrail_jobs.commands.reconcile import reconcile
from acktrail_jobs.commands.verify import verify

pytestmark = pytest.mark.spark

TABLES_0_1 = Path(__file__).parents[1] / "golden" / "tables_0_1" / "tables.tar.gz"
OF_RUN = ("share_partition_states", "reconciliations", "findings")
KEPT = ("delivery_history", "held_states", "replay_memory")
OF_FILES = {"records_table", "records_version", "records_files", "unfinished", "exported", "chunk"}
OF_EARLIER_RUNS = {"first_seen_at", "times_seen"}
"""Columns of a finding that count runs."""


@pytest.fixture
def earlier(tmp_path: Path) -> ExportedWorld:
    """The tables of release 0.1, and the cluster they were exported from, where more was written since."""
    with tarfile.open(TABLES_0_1) as archive:
        archive.extractall(tmp_path, filter="data")
    world = ExportedWorld(tmp_path / "tables", DeltaSink)
    world.restore()
    for row in world.rows("export_ranges"):  # a log's start only grows, and the rows have no order
        world.log_starts[row["state_partition"]] = max(
            world.log_starts[row["state_partition"]], row["log_start_offset"]
        )
    world.now = max(row["observed_at"] for row in world.rows("offset_observations"))
    live(world, {}, 3, records=90)
    return world


@pytest.fixture
def fresh(earlier: ExportedWorld, tmp_path: Path) -> ExportedWorld:
    """Tables of this release with the same records and the same pruned range."""
    world = ExportedWorld(tmp_path / "fresh", DeltaSink)
    world.states, world.groups, world.now = dict(earlier.states), dict(earlier.groups), earlier.now
    gaps = {row["state_partition"]: row for row in earlier.rows("export_ranges") if row["gap_first"] is not None}
    assert gaps
    world.logs = {n: log[: gaps[n]["gap_first"]] if n in gaps else log for n, log in earlier.logs.items()}
    world.export("first")
    world.logs = earlier.logs
    world.log_starts |= {number: row["gap_last"] + 1 for number, row in gaps.items()}
    return world


def rows_of(tables: Tables, name: str, run_id: str | None = None) -> list[Mapping[str, Any]]:
    """Rows without the columns that name files, commits and earlier runs, in an order of their own."""
    rows = [row for row in tables.read(name).to_pylist() if run_id in (None, row.get("run_id"))]
    left_out = OF_FILES | OF_EARLIER_RUNS
    return sorted(({n: v for n, v in row.items() if n not in left_out} for row in rows), key=str)


def test_tables_of_release_0_1_are_continued(earlier: ExportedWorld, fresh: ExportedWorld) -> None:
    """More records are exported to where the tables end, reconciled from the states that release 0.1 left, and added to
    its history: row by row what fresh tables of all records hold."""
    for world in (earlier, fresh):
        world.observe("later")
    continued, anew = (reconcile(world.config, "later", with_history=True) for world in (earlier, fresh))

    assert (continued.went_on_from, continued.replayed_all) == ("r1", None)
    assert anew.went_on_from is None
    for name in OF_RUN:
        assert rows_of(earlier.tables, name, "later") == rows_of(fresh.tables, name, "later"), name
    for name in KEPT:
        assert rows_of(earlier.tables, name) == rows_of(fresh.tables, name) != [], name
    for world in (earlier, fresh):
        assert verify(world.config).differences == ()


def test_quality_checks_go_on_where_release_0_1_ended(
    earlier: ExportedWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only records that came since the last validation are compared; nothing critical fails."""
    earlier.observe("later")
    reconcile(earlier.config, "later", with_history=True)
    before = {row["run_id"] for row in earlier.rows("quality_results")}
    done = run(capsys, "validate", "--run-id", "later", "--tables", earlier.config.uri)
    assert done.code == 0, done
    compared = {
        (row["run_id"], row["expectation"]): row["element_count"]
        for row in earlier.rows("quality_results")
        if row["suite"] == "state_records"
    }
    stored = len(earlier.rows("state_records"))
    assert before >= {"r0", "r1"}
    assert max(count or 0 for (run_id, _), count in compared.items() if run_id == "later") < stored


def test_every_table_of_release_0_1_is_read(earlier: ExportedWorld, capsys: pytest.CaptureFixture[str]) -> None:
    """All its tables have rows; plans are listed, and the whole chain of the audit is checked."""
    tables = Tables(TablesConfig(uri=earlier.config.uri))
    names = {path.name for path in Path(earlier.config.uri).iterdir() if path.is_dir()}
    assert names > {*OF_RUN, *KEPT, "reconcile_checks", "quality_results", "reset_audit", "reset_plans", "topics"}
    assert {name for name in names if not tables.read(name).num_rows} <= {"findings"}
    plans = run(capsys, "reset", "list", "--tables", earlier.config.uri, "--json").rows
    assert [(plan["kind"], plan["standing"]) for plan in plans] == [("reset", "DONE")]
    audit = run(capsys, "reset", "audit", "--tables", earlier.config.uri, "--json")
    assert (audit.code, json.loads(audit.stdout)["chain"]["rows"]) == (0, 6), audit
