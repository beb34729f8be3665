"""``acktrail dashboard report`` on real Delta tables."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from jobs.world import World, batch, key_of, snapshot, update
from samples.history_tables import build
from typer.testing import CliRunner

from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError, ConfigurationError, InputError, UnknownName
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.store import Tables
from acktrail_dashboard.command import app, report
from acktrail_dashboard.rows.run_tables import RunTables
from acktrail_dashboard.summary import read_run, summarize
from acktrail_dashboard.summary_types import Summary
from acktrail_dashboard.terminal import render_text

SEEN = datetime(2026, 11, 21, 4, 46, 12, tzinfo=UTC)
NAMES = (
    "share_partition_states", "reconciliations", "findings", "quality_results", "export_ranges", "group_observations",
    "topics",
)  # fmt: skip


@pytest.fixture
def stored(sample: RunTables, tmp_path: Path) -> TablesConfig:
    """The sample's rows in real tables."""
    config = TablesConfig(uri=str(tmp_path / "tables"))
    tables = Tables(config)
    for name in NAMES:
        rows = getattr(sample, name)
        if name in {"topics", "findings"}:
            tables.upsert(name, rows)
        else:
            tables.append(name, rows)
    return config


def summary(config: TablesConfig, run_id: str | None) -> Summary:
    """Of stored tables."""
    return summarize(*read_run(config, run_id))


def test_the_summary_of_stored_tables_is_that_of_their_rows(
    stored: TablesConfig, sample: RunTables, run_id: str
) -> None:
    """Through storage and back: the same value."""
    assert summary(stored, run_id) == summary(stored, None) == summarize(sample, run_id)


def test_offsets_archived_earlier_are_found_in_the_history(tmp_path: Path) -> None:
    """Where more was archived than the state shows, the history has which offsets; without it they are missing, and the
    report counts them."""
    world = World(tmp_path / "tables", state_partitions=1)
    key = key_of("g")
    world.write(snapshot(key, 0, snapshot_epoch=0), update(key, 0, 0, (batch(3, 9, 4, 5), batch(0, 2, 2, 1))))
    world.write(update(key, 10, 0, ()))
    world.observe("r1")
    own = {"run_id": "r1", "group_id": "g", "topic_id": key.topic_id, "partition": 0}
    state = {**own, "state_partition": 0, "start_offset": 10, "archived_seen": 7, "last_record_offset": 2}
    world.tables.append("share_partition_states", _rows("share_partition_states", [{**state, "batches": []}]))
    world.tables.append("reconciliations", _rows("reconciliations", [{**own, "observed_at": SEEN, "verdict": "match"}]))
    assert summary(world.config, None).archived == ()
    assert "7 more whose offsets are not in the history" in _page(world.config, tmp_path)
    build(world.tables)
    (archived,) = summary(world.config, None).archived
    assert (archived.first_offset, archived.last_offset, archived.delivery_count) == (3, 9, 5)
    assert not archived.retained
    assert "7 in the history only" in _page(world.config, tmp_path)


def _page(config: TablesConfig, folder: Path) -> str:
    return report(config, None, folder / "report.html").read_text(encoding="utf-8")


def _rows(name: str, rows: list[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist([{c: row.get(c) for c in TABLES[name].names} for row in rows], schema=TABLES[name])


def test_the_command_prints_the_summary_and_writes_the_report(
    stored: TablesConfig, sample: RunTables, run_id: str, tmp_path: Path
) -> None:
    """Data on stdout, the path on stderr; --json is one object; --out is the same run's page."""
    out = tmp_path / "deep" / "report.html"
    plain = CliRunner().invoke(app, ["--tables", stored.uri, "--out", str(out)])
    assert plain.exit_code == 0
    assert plain.stdout == render_text(summarize(sample, run_id)) + "\n"
    assert str(out) in plain.stderr
    assert run_id in out.read_text(encoding="utf-8")
    as_json = CliRunner().invoke(app, ["--tables", stored.uri, "--run-id", run_id, "--json"])
    assert json.loads(as_json.stdout)["totals"]["share_partitions"] == sample.reconciliations.num_rows


@pytest.mark.parametrize(
    ("arguments", "expected", "says"),
    [
        (["--run-id", "no-such-run"], UnknownName, "unknown run 'no-such-run'"),
        (["--tables", "{empty}"], InputError, "no reconcile run in"),
        (["--out", "{file}/report.html"], ConfigurationError, "cannot write"),
    ],
)
def test_refusals_are_one_line_and_leave_nothing(
    stored: TablesConfig, tmp_path: Path, arguments: list[str], expected: type[AcktrailError], says: str
) -> None:
    """An unknown run, tables without a run, a place that cannot be written: an error of ours, with a hint."""
    file = tmp_path / "file"
    file.touch()
    places = {"empty": tmp_path / "empty", "file": file}
    given = [argument.format(**places) for argument in arguments]
    result = CliRunner().invoke(app, ["--tables", stored.uri, *given])
    assert isinstance(result.exception, expected)
    assert says in result.exception.message
    assert result.exception.hint
    assert not (tmp_path / "empty").exists()
    assert file.read_bytes() == b""


def test_an_older_run_is_shown_when_named(stored: TablesConfig, sample: RunTables, run_id: str) -> None:
    """A later run becomes the default and leaves the named one as it was."""
    later = sample.reconciliations.to_pylist()
    moved = [{**row, "run_id": "later", "observed_at": row["observed_at"].replace(year=2027)} for row in later[:3]]
    Tables(stored).append("reconciliations", _rows("reconciliations", moved))
    assert summary(stored, None).head.run_id == "later"
    assert summary(stored, None).totals.share_partitions == 3
    assert summary(stored, run_id) == summarize(sample, run_id)
    read, chosen = read_run(stored, "later")
    assert (chosen, read.reconciliations.num_rows, read.share_partition_states.num_rows) == ("later", 3, 0)


def test_a_report_is_written_for_the_run_asked_for(stored: TablesConfig, run_id: str, tmp_path: Path) -> None:
    """The function that the DAG calls gives back the path of the page."""
    out = tmp_path / "report.html"
    assert report(stored, run_id, out, broker="Kafka 4.3.1") == out
    page = out.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert page.endswith("</html>\n")
    assert "Kafka 4.3.1" in page


def test_help_starts_without_the_heavy_libraries() -> None:
    """Importing the command loads neither Arrow nor Delta nor rich's tables."""
    script = "import sys, acktrail_dashboard.command; print(sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=300
    ).stdout
    assert not {"pyarrow", "deltalake", "numpy", "pandas"} & set(loaded.replace("'", "").strip("[]\n").split(", "))
