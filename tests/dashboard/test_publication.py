"""Reports in a folder: every run keeps its own, the newest has a stable name, the JSON has the documented form."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

import jsonschema
import pyarrow as pa
import pytest

from acktrail.config import TablesConfig, dashboard_url, reports_kept
from acktrail.errors import ConfigurationError
from acktrail.tables.delta.store import Tables
from acktrail_dashboard.publication import file_name, prune, publish
from acktrail_dashboard.rows.run_tables import RunTables
from acktrail_dashboard.summary import summarize, summary_json

SCHEMA = Path(__file__).parents[2] / "docs/report-schema.json"


@pytest.fixture
def stored(sample: RunTables, tmp_path: Path) -> TablesConfig:
    """The sample's run in real tables."""
    config = TablesConfig(uri=str(tmp_path / "tables"))
    tables = Tables(config)
    for name in ("share_partition_states", "reconciliations", "quality_results", "export_ranges", "group_observations"):
        tables.append(name, getattr(sample, name))
    for name in ("findings", "topics"):
        tables.upsert(name, getattr(sample, name))
    return config


def _later_run(sample: RunTables, run_id: str, **later: float) -> pa.Table:
    rows = sample.reconciliations.to_pylist()
    return pa.Table.from_pylist(
        [{**row, "run_id": run_id, "observed_at": row["observed_at"] + timedelta(**later)} for row in rows],
        schema=sample.reconciliations.schema,
    )


def test_every_run_keeps_its_report_and_the_newest_has_a_stable_name(
    stored: TablesConfig, sample: RunTables, run_id: str, tmp_path: Path
) -> None:
    """A later run takes the stable name and leaves the earlier run's files; publishing the earlier one again does not
    take it back."""
    folder = tmp_path / "reports"
    first = publish(stored, run_id, folder, kept=5)
    assert first.newest == folder / "acktrail-report.html"
    assert first.page.read_bytes() == first.newest.read_bytes()
    Tables(stored).append("reconciliations", _later_run(sample, "later", hours=1))
    second = publish(stored, "later", folder, kept=5)
    assert second.newest is not None
    assert ", run later</title>" in second.newest.read_text(encoding="utf-8")
    assert f", run {run_id}</title>" in first.page.read_text(encoding="utf-8")
    again = publish(stored, run_id, folder, kept=5)
    assert again.newest is None
    assert ", run later</title>" in second.newest.read_text(encoding="utf-8")
    assert json.loads((folder / "acktrail-report.json").read_text())["head"]["run_id"] == "later"
    assert json.loads(again.data.read_text()) == json.loads(summary_json(summarize(sample, run_id)))


def test_the_oldest_reports_go_page_and_data_together(tmp_path: Path) -> None:
    """The newest runs stay, the files of nobody else are touched, and at least one run is kept."""
    for age, run in enumerate(["d", "c", "b", "a"]):
        for suffix in ("html", "json"):
            file = tmp_path / f"acktrail-report-{run}.{suffix}"
            file.touch()
            os.utime(file, (1_000_000 - age, 1_000_000 - age))
    others = {"acktrail-report.html", "acktrail-report-notes.txt", "index.html"}
    for name in others:
        (tmp_path / name).touch()
    prune(tmp_path, "acktrail-report", kept=2)
    kept = {f"acktrail-report-{run}.{suffix}" for run in "cd" for suffix in ("html", "json")}
    assert {file.name for file in tmp_path.iterdir()} == others | kept
    prune(tmp_path, "acktrail-report", kept=0)
    assert {file.name for file in tmp_path.glob("acktrail-report-?.*")} == {
        "acktrail-report-d.html",
        "acktrail-report-d.json",
    }


@pytest.mark.parametrize("run_id", ["../../etc/passwd", "a/b", "a b", "x" * 300, "2026-11-21T04:46:00Z", "é\n\u202e"])
def test_a_run_id_is_never_a_path(run_id: str) -> None:
    """A file's name has no separator, is short, and differs from that of an id that looks alike once cleaned."""
    name = file_name(run_id)
    assert Path(name).name == name
    assert len(name) <= 120
    assert name.isascii()
    assert file_name("run-1") == "run-1"
    assert file_name(run_id.replace("/", "-").replace(" ", "-") + "?") != name


def test_real_output_has_the_documented_form(sample: RunTables, run_id: str) -> None:
    """The JSON of a run with every kind of trouble, and of an empty one, validates; one with a field more or a text for
    a number does not."""
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text("utf-8")))
    form = json.loads(summary_json(summarize(sample, run_id)))
    validator.validate(form)
    validator.validate(json.loads(summary_json(summarize(RunTables.empty(), run_id))))
    for broken in ({**form, "more": 1}, {**form, "findings_seen_later": "3"}, {**form, "schema": "acktrail-report/9"}):
        assert not validator.is_valid(broken)


@pytest.mark.parametrize("text", ["javascript:alert(1)", "https://user:secret@host", 'https://h/"><script>', "ftp://h"])
def test_a_dashboard_address_is_http_without_credentials(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is put into links is an address and nothing else."""
    monkeypatch.setenv("ACKTRAIL_DASHBOARD_URL", text)
    with pytest.raises(ConfigurationError, match="ACKTRAIL_DASHBOARD_URL"):
        dashboard_url()
    monkeypatch.setenv("ACKTRAIL_DASHBOARD_URL", "https://acktrail.example/here/")
    assert dashboard_url() == "https://acktrail.example/here"


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5"])
def test_the_number_of_kept_reports_is_at_least_one(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong number is refused, not taken as the default."""
    monkeypatch.setenv("ACKTRAIL_REPORTS_KEPT", text)
    with pytest.raises(ConfigurationError, match="ACKTRAIL_REPORTS_KEPT"):
        reports_kept()
    monkeypatch.delenv("ACKTRAIL_REPORTS_KEPT")
    assert reports_kept() == 100
