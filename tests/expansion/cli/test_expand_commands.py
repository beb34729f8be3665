"""``acktrail expand`` as people find it, and ``show``: what the newest audit found, for people and programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivers.command_line import run
from expansion.support.rows import GrownTopic, rows_of, write_rows
from samples.dashboard_tables import HOSTILE

from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables

TROUBLE = GrownTopic(
    new_count=3, verdicts={"fraud": "skipped", HOSTILE[6]: "broken", "fine": "safe"}, types={"fraud": "share"}
)
SETTLING = GrownTopic(topic="clicks", hours=1, is_settled=False, is_single=False, verdicts={"g": "not_proven:no_fence"})


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = str(tmp_path_factory.mktemp("show") / "tables")
    write_rows(Tables(TablesConfig(uri=root)), rows_of(SETTLING, TROUBLE))
    return root


def test_its_commands_are_found_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Those that an operator uses, in their order; a misspelt one is answered with the nearest."""
    shown = run(capsys, "expand").stdout
    names = ["plan", "approve", "reject", "apply", "check", "show"]
    assert [line.split()[0] for line in shown.partition("Commands:")[2].split("\n") if line[2:3].strip()] == names
    assert "'plan'" in run(capsys, "expand", "pln").complaint(2)


def test_the_worst_is_first_and_a_topic_can_be_chosen(tables: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line an expansion, as text and as JSON."""
    lines = run(capsys, "expand", "show", "--tables", tables).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["TOPIC", "orders", "clicks"]
    assert "1 order broken, 1 first records skipped, 1 safe" in lines[1]
    (found,) = run(capsys, "expand", "show", "--topic", "or*", "--json", "--tables", tables).rows
    assert (found["event_id"], found["skipped_records"]) == (TROUBLE.event_id, 312)
    assert found["verdict_counts"] == {"broken": 1, "skipped": 1, "safe": 1}
    assert found["first_seen_new_at"] == "2026-11-22T22:04:05Z"


def test_one_expansion_has_its_proofs(tables: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Verdicts in words, the worst first, with what is not seen beside `safe`; fences; what is not certain. Names move
    no cursor."""
    shown = run(capsys, "expand", "show", TROUBLE.event_id, "--tables", tables).stdout
    assert all(line.isprintable() for line in shown.split("\n"))
    broken, skipped, safe = shown.split("\n")[1:4]
    assert broken.startswith("order broken: consumer group ")
    assert "58 records of partition 0 below offset 4,800 were open, the first at offset 4,711" in broken
    assert skipped.startswith("first records skipped: share group fraud: ")
    assert "Not seen: work that was not committed" in safe
    assert "5990" in shown
    text = run(capsys, "expand", "show", SETTLING.event_id, "--tables", tables).stdout
    assert "not certain: Whether the topic went from 2 to 4 partitions in one step" in text
    (found,) = run(capsys, "expand", "show", SETTLING.event_id, "--json", "--tables", tables).rows
    assert [fence["fence_high"] for fence in found["fences"]] == [None, None]
    assert {(row["group_id"], row["reason"]) for row in found["verdicts"]} == {("g", "no_fence")}


def test_nothing_and_an_unknown_expansion(tables: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without an audit that is said; an id that no expansion has is an error."""
    assert "acktrail expand check" in run(capsys, "expand", "show", "--tables", str(tmp_path)).stdout
    assert "unknown expansion 'x'" in run(capsys, "expand", "show", "x", "--tables", tables).complaint(2)
