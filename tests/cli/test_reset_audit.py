"""What ``acktrail change audit`` shows of every step, read from the tables alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from drivers import command_line

from acktrail.change.audit.audit_chain import AuditEntry, Event
from acktrail.change.audit.journal import Journal
from acktrail.config import TablesConfig

HOSTILE = "g\x1b[2J\nAPPROVED"

STEPS: list[tuple[Event, str | None, dict[str, Any]]] = [
    (Event.APPROVED, None, {"note": "ticket 7"}),
    (Event.LEASE_TAKEN, None, {"expires_at_ms": 1_769_000_000_000, "pid": 7}),
    (Event.BEFORE_CALL, None, {"request": "AlterShareGroupOffsets", "parts": [["orders", 0, 5], ["orders", 1, 6]]}),
    (
        Event.AFTER_CALL,
        "partly",
        {"done": 1, "failed": [{"topic": "orders", "partition": 1, "error": "not allowed"}]},
    ),
    (Event.VERIFIED, "partly", {"statuses": {"OK": 1, "FAILED": 1}}),
    (Event.LEASE_RELEASED, None, {}),
]


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Tables with an audit of two plans."""
    journal = Journal(TablesConfig(uri=str(tmp_path)), cluster_id="c1", run_id="r1", actor="ann")
    for plan_id in ("p1", "p2"):
        journal.note(
            [
                AuditEntry(
                    kind="reset", event=event, plan_id=plan_id, plan_hash="h", attempt=1, group_id=HOSTILE,
                    outcome=outcome, detail=detail,
                )
                for event, outcome, detail in STEPS
            ]
        )  # fmt: skip
    return tmp_path


def test_every_step_is_a_line(capsys: pytest.CaptureFixture[str], tables: Path) -> None:
    """Who, what and when of one plan, in order, a line a step; a group's name cannot make lines of its own; the chain
    is whole, and its newest hash is that of the last row of all plans."""
    done = command_line.run(capsys, "change", "audit", "p1", "--tables", tables)
    _, *lines = done.stdout.splitlines()
    assert [line.split()[2] for line in lines] == [event.value for event, _, _ in STEPS]
    assert all("ann on " in line and r"g\x1b[2J\nAPPROVED" in line for line in lines)
    for line, words in zip(
        lines,
        (
            "ticket 7",
            "process 7",
            "AlterShareGroupOffsets: 2 share partition(s)",
            "1 done; orders:1: not allowed",
            "1 FAILED, 1 OK",
            "",
        ),
        strict=True,
    ):
        assert words in line
    everything = command_line.run(capsys, "change", "audit", "--tables", tables, "--json")
    found = json.loads(everything.stdout)
    assert [row["plan_id"] for row in found["rows"]] == ["p1"] * 6 + ["p2"] * 6
    assert found["chain"]["newest_hash"] == found["rows"][-1]["row_hash"]
    words, newest = "12 rows, consistent in itself; compared with no anchor", found["rows"][-1]["row_hash"]
    assert f"{words}; newest hash {newest}" in done.stderr


def test_a_plan_that_is_not_there_is_an_error(capsys: pytest.CaptureFixture[str], tables: Path) -> None:
    """A mistyped id is not an empty audit."""
    assert "p3" in command_line.run(capsys, "change", "audit", "p3", "--tables", tables).complaint(2)
