"""The metrics of the tables are what the tables have; what is not known has no number, and totals have everything."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from drivers.command_line import run
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from samples.health_tables import CLUSTER, HOSTILE, HealthTables
from servers.workload import until

from acktrail.model.queue_status import STATUS_TABLE
from acktrail.serving.gauge_families import label_value
from acktrail.view import table_metrics
from acktrail.view.table_metrics import metrics_text

Series = dict[str, dict[tuple[str, ...], float]]


def parsed(text: str) -> Series:
    """Values by name and labels in the order of their names, without the cluster's. No series occurs twice."""
    found: Series = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = dict(sorted(sample.labels.items()))
            cluster = labels.pop("cluster", None)
            assert cluster == (None if sample.name == "acktrail_build_info" else CLUSTER)
            series = found.setdefault(sample.name.removeprefix("acktrail_"), {})
            assert tuple(labels.values()) not in series
            series[tuple(labels.values())] = sample.value
    return found


def metrics(health: HealthTables) -> Series:
    return parsed(metrics_text(health.config)[0].decode())


@pytest.fixture
def health(tmp_path: Path) -> HealthTables:
    """Three groups, one with a lag that is not known; two runs, of which the newer has two mismatches."""
    found = HealthTables(tmp_path / "tables")
    found.exported(90, reason="pruned", lost=12)
    found.exported(80, reason="log_replaced", lost=1)
    found.tables.append("export_ranges", [{"gap_first": 7, "gap_reason": "pruned", "exported_at": found.ago(85)}])
    found.exported(2)
    found.reconciled(run_id="run-1", minutes=65, mismatches=[1])
    rows = [
        found.queue("billing", "stuck", unfinished_records=12, minutes=180, acknowledged=3, archived=1),
        found.queue("billing", "ok", unfinished_records=None),
        found.queue("slow", "lagging", unfinished_records=700),
        found.queue("fine", "ok", unfinished_records=0),
    ]
    findings = [
        {"rule": rule, "severity": "critical", "group_id": "billing"} for rule in ("past_log_end", "past_log_end")
    ]
    found.reconciled(rows, [*findings, {"rule": "unknown", "severity": "warning"}], mismatches=[1, 2])
    found.validated(300, run_id="run-1", critical_fails=3)
    found.validated(6)
    found.validated(4, critical_fails=1)
    return found


def test_they_are_what_the_tables_have(health: HealthTables) -> None:
    """Every family by its numbers, as of the newest run and the newest of its validations."""
    found = metrics(health)
    assert found["export_timestamp_seconds"][()] == pytest.approx(health.ago(2).timestamp())
    assert (found["stored_records"][()], found["stored_quarantined_records"][()]) == (270, 3)
    assert {key[0]: value for key, value in found["export_gap_offsets"].items() if value} == {"pruned": 12}
    assert {key[0] for key, value in found["export_gaps"].items() if value} == {"pruned", "log_replaced"}
    assert found["export_newest_gap_timestamp_seconds"]["pruned",] == pytest.approx(health.ago(90).timestamp())
    assert (found["verdicts"]["live_ahead",], found["verdicts"]["match",], found["verdicts"]["unknown",]) == (2, 1, 0)
    assert found["lasting_mismatches"][()] == 1
    assert found["open_findings"] == {("critical",): 2, ("error",): 0, ("warning",): 1, ("info",): 0}
    assert found["open_findings_by_rule"]["past_log_end", "critical"] == 2
    states = {"holds": 3, "fails": 1, "noted": 0, "not_evaluated": 1}
    assert {key[0]: value for key, value in found["expectations"].items()} == states
    assert found["critical_expectations_failed"]["state_records",] == 1
    assert found["validation_timestamp_seconds"][()] == pytest.approx(health.ago(4).timestamp())
    assert {key[0]: value for key, value in found["groups"].items() if value} == {"stuck": 1, "lagging": 1, "ok": 1}
    shares = {key[0]: value for key, value in found["share_partitions"].items() if value}
    assert shares == {"stuck": 1, "lagging": 1, "ok": 2}
    assert {key for key, value in found["group_status"].items() if value} == {
        ("billing", "stuck"), ("slow", "lagging"), ("fine", "ok"),
    }  # fmt: skip
    assert len(found["groups"]) == len(found["share_partitions"]) == len(STATUS_TABLE)
    assert (found["known_unfinished_records"][()], found["unfinished_unknown_share_partitions"][()]) == (712, 1)
    assert found["group_known_unfinished_records"] == {("billing",): 12, ("slow",): 700, ("fine",): 0}
    assert found["group_unfinished_unknown_share_partitions"]["billing",] == 1
    assert found["group_share_partitions"]["billing", "stuck"] == 1
    assert found["group_recent_deliveries"]["billing", "archived"] == 1
    assert found["group_status_since_timestamp_seconds"]["billing",] == pytest.approx(health.ago(180).timestamp())
    assert set(found["tables_readable"].values()) == {1}


def test_series_are_bounded_and_totals_are_not(health: HealthTables, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst groups have series; what has none is counted, and is in every total."""
    whole = metrics(health)
    monkeypatch.setattr(table_metrics, "MOST_GROUPS", 1)
    some = metrics(health)
    assert {key[0] for key in some["group_status"]} == {"billing"}
    assert some["groups_without_series"][()] == 2
    for name in ("groups", "share_partitions", "known_unfinished_records", "unfinished_unknown_share_partitions"):
        assert some[name] == whole[name]


def test_what_is_not_known_has_no_series(tmp_path: Path) -> None:
    """Empty tables show that they could not be read, and no zero of anything else."""
    health = HealthTables(tmp_path / "tables")
    text = metrics_text(health.config)[0].decode()
    series = [line.partition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    names = {name.partition("{")[0].removeprefix("acktrail_") for name in series}
    assert names == {"build_info", "tables_read_timestamp_seconds", "tables_readable"}
    assert {line.split('part="')[1].split('"')[0] for line in text.splitlines() if line.endswith("} 0.0")} >= {
        "exports",
        "statuses",
    }
    health.exported(1)
    health.reconciled([health.queue("g", "ok")])
    assert "lasting_mismatches" not in metrics(health)


@pytest.mark.parametrize(
    ("table", "part", "seen"),
    [
        ("export_ranges", "exports", {"newest_state_record_timestamp_seconds"}),
        ("run_totals", "reconciliation", {"reconciliation_timestamp_seconds", "verdicts"}),
    ],
)
def test_a_lost_file_hides_what_is_in_it_alone(health: HealthTables, table: str, part: str, seen: set[str]) -> None:
    """What was read otherwise is shown: its alerts can fire."""
    health.tables.append("state_records", [{"timestamp_ms": 1}])
    next(Path(health.config.uri, table).glob("*.parquet")).unlink()
    found = metrics(health)
    assert found["tables_readable"][part,] == 0
    assert found.keys() >= seen


def test_hostile_names_are_labels(health: HealthTables) -> None:
    """A name with quotes, newlines and escapes is one series that a terminal shows as text."""
    health.reconciled([health.queue(HOSTILE, "stuck"), health.queue("g" * 255, "stuck")], run_id="run-3")
    text = metrics_text(health.config)[0].decode()
    groups = {key[0] for key in parsed(text)["group_status"]}
    assert groups == {label_value(HOSTILE), label_value("g" * 255)}
    assert all(line.isprintable() for line in text.split("\n"))


@example(first="g\n", second="g\\n")
@example(first="g" * 254 + "a", second="g" * 254 + "b")
@given(first=st.text(max_size=300), second=st.text(max_size=300))
def test_two_names_are_two_labels(first: str, second: str) -> None:
    """Values are printable and bounded, and no two names share one."""
    values = [label_value(first), label_value(second)]
    assert all(value.isprintable() and len(value) <= 200 for value in values)
    assert (values[0] == values[1]) == (first == second)


def test_a_scrape_follows_the_tables(health: HealthTables) -> None:
    """Served by the command until a signal: what a run writes is there with the next reading."""
    command = [sys.executable, "-m", "acktrail.cli.main", "tables", "metrics", "--listen", "127.0.0.1:0"]
    command += ["--every", "1s", "--tables", health.config.uri]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as served:
        try:
            assert served.stderr is not None
            address = served.stderr.readline().split()[-1]

            def groups() -> set[str]:
                with urllib.request.urlopen(address, timeout=30) as answer:
                    series = parsed(answer.read().decode()).get("group_status", {})
                return {key[0] for key in series}

            until(lambda: groups() == {"billing", "slow", "fine"}, what="what is there")
            health.reconciled([health.queue("other", "ok")], run_id="run-3")
            until(lambda: groups() == {"other"}, what="what a run wrote")
        finally:
            served.send_signal(signal.SIGTERM)
        assert served.wait(60) == 0


def test_a_file_is_whole_or_not_there(health: HealthTables, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For node_exporter's textfile collector: the same text as on stdout, and nothing else in the folder."""
    folder = tmp_path / "textfile"
    folder.mkdir()
    for _ in range(2):
        assert run(capsys, "tables", "metrics", "--out", folder / "a.prom", "--tables", health.config.uri).code == 0
    assert [file.name for file in folder.iterdir()] == ["a.prom"]
    printed = run(capsys, "tables", "metrics", "--tables", health.config.uri).stdout
    assert set(parsed((folder / "a.prom").read_text())) == set(parsed(printed))
    lost = run(capsys, "tables", "metrics", "--out", tmp_path / "no" / "a.prom", "--tables", health.config.uri)
    assert "cannot be written" in lost.complaint(3)
    assert "is not host:port" in run(
        capsys, "tables", "metrics", "--listen", "x", "--tables", health.config.uri
    ).complaint(3)
