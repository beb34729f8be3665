"""``acktrail findings``: what is open, by names, with the record that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivers.command_line import Done, run
from samples.health_tables import CLUSTER, HOSTILE, HealthTables

BROKEN = {"rule": "live_ahead", "severity": "error", "group_id": "billing", "topic_id": "T-1", "partition": 4}
WHOLE = {"rule": "export_complete", "severity": "critical", "subject": "state partition 3, offsets 0 to 9"}


@pytest.fixture
def health(tmp_path: Path) -> HealthTables:
    """Two open findings, and one that only an earlier run saw."""
    found = HealthTables(tmp_path / "tables")
    topic = {"cluster_id": CLUSTER, "topic_id": "T-1", "topic": "orders", "last_seen_at": found.now}
    found.tables.append("topics", [topic])
    healed = {"rule": "unknown", "severity": "warning", "group_id": "fraud"}
    found.reconciled(findings=[{**healed, "subject": "healed"}], run_id="run-1", minutes=500)
    shown = {"evidence_state_partition": 3, "evidence_offset": 17, "first_seen_at": found.ago(180), "times_seen": 4}
    found.reconciled(findings=[{**BROKEN, **shown}, WHOLE])
    return found


def asked(health: HealthTables, capsys: pytest.CaptureFixture[str], *arguments: str) -> Done:
    return run(capsys, "findings", *arguments, "--tables", health.config.uri)


def rules(health: HealthTables, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    return [row["rule"] for row in asked(health, capsys, "--json", *arguments).rows]


def test_open_findings_have_names_and_evidence(health: HealthTables, capsys: pytest.CaptureFixture[str]) -> None:
    """The worst first; the topic by its name, though the finding has only the id; a subject that is no share partition
    as its text."""
    done = asked(health, capsys)
    head, first, second = done.stdout.splitlines()
    assert done.code == 0
    assert " ".join(head.split()) == "SEVERITY RULE GROUP TOPIC PARTITION SINCE SEEN EVIDENCE DETAIL"
    assert first.endswith("-         state partition 3, offsets 0 to 9: it is so")
    assert " ".join(second.split()) == "error live_ahead billing orders 4 3 h ago 4 3:17 it is so"
    seen = [{**WHOLE, "subject": subject, "first_seen_at": health.ago(m)} for subject, m in (("a", 9), ("b", 3))]
    health.reconciled(findings=[BROKEN, *seen], run_id="run-3")
    assert [row["subject"] for row in asked(health, capsys, "--json").rows] == ["b", "a", "0"]  # the newest first


def test_findings_are_chosen(health: HealthTables, capsys: pytest.CaptureFixture[str]) -> None:
    """By severity and worse, by rule and group in shell style, by when they were first seen."""
    assert rules(health, capsys) == ["export_complete", "live_ahead"]
    assert rules(health, capsys, "--severity", "critical") == ["export_complete"]
    assert rules(health, capsys, "--severity", "info") == ["export_complete", "live_ahead"]
    assert rules(health, capsys, "--rule", "live*") == ["live_ahead"]
    assert rules(health, capsys, "--group", "b*") == ["live_ahead"]
    assert rules(health, capsys, "--since", "1h") == ["export_complete"]
    assert rules(health, capsys, "--since", "4h") == ["export_complete", "live_ahead"]
    assert rules(health, capsys, "--all") == ["export_complete", "live_ahead", "unknown"]
    assert "(warning)" in asked(health, capsys, "--all").stdout
    assert "no severity 'bad'" in asked(health, capsys, "--severity", "bad").complaint(2)
    assert asked(health, capsys, "--rule", "nothing").stdout == "no finding\n"


def test_hostile_names_stay_on_their_line(health: HealthTables, capsys: pytest.CaptureFixture[str]) -> None:
    """Names and details are any text."""
    health.reconciled(findings=[{**BROKEN, "group_id": HOSTILE, "topic": HOSTILE, "detail": HOSTILE}], run_id="run-3")
    lines = asked(health, capsys).stdout.splitlines()
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
    (found,) = asked(health, capsys, "--json").rows
    assert (found["group_id"], found["detail"]) == (HOSTILE, HOSTILE)


def test_without_a_reconciliation_there_is_no_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables that nothing was reconciled in, and none at all."""
    assert run(capsys, "findings", "--tables", tmp_path / "nowhere").stdout == "no finding\n"
