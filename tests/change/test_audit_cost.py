"""What an attempt costs after a thousand others: counted in what is read, not in time."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from change.change_tables import a_journal, attempt, delta, many_attempts

from acktrail.change.audit.audit_chain import Event
from acktrail.change.audit.integrity import checked_audit
from acktrail.change.audit.journal import first_open
from acktrail.config import TablesConfig

FEW, MANY, LOOKS = 10, 1_000, 8
TABLES = ("reset_audit", "reset_plans", "reset_executions")


def bytes_read() -> int:
    """By this process so far, by all its system calls."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def cost(root: Path, first: int) -> int:
    """What some attempts read together: enough of them to meet every phase between two compactions of the audit."""
    before = bytes_read()
    for number in range(first, first + LOOKS):
        attempt(root, number)
    return bytes_read() - before


def commits_listed(root: Path, table: str) -> int:
    """The commits that a reader takes in after the last checkpoint."""
    names = [file.name for file in (root / table / "_delta_log").iterdir()]
    checkpoints = [int(name.split(".")[0]) for name in names if ".checkpoint." in name]
    commits = [int(name.removesuffix(".json")) for name in names if name.endswith(".json")]
    return sum(number > max(checkpoints, default=-1) for number in commits)


def an_hour_passes(root: Path) -> None:
    then = time.time() - 7_200
    for table in TABLES:
        for file in (root / table / "_delta_log").iterdir():
            os.utime(file, (then, then))


@pytest.mark.full
def test_a_thousand_attempts_cost_what_ten_do(tmp_path: Path) -> None:
    """A hundred times the attempts before it, and an attempt reads less than three times the bytes: what the first ones
    lack is a checkpoint. Files of every table, commits after a checkpoint and the length of the log stay in bounds; all
    attempts are still in one whole audit."""
    many_attempts(tmp_path, range(FEW))
    after_few = cost(tmp_path, FEW)
    many_attempts(tmp_path, range(FEW + LOOKS, MANY), at_once=40)
    an_hour_passes(tmp_path)
    after_many = cost(tmp_path, MANY)

    assert after_many < 3 * after_few
    for table in TABLES:
        assert len(delta(tmp_path, table).file_uris()) < 40, table
        assert commits_listed(tmp_path, table) <= 25, table
        assert len(list((tmp_path / table / "_delta_log").iterdir())) < 120, table
    report = checked_audit(TablesConfig(uri=str(tmp_path)))
    assert (report.plans, report.executions) == (MANY + LOOKS, MANY + LOOKS)


def test_a_lease_reads_only_what_may_keep_it_from_its_group(tmp_path: Path) -> None:
    """Changes that are finished are not read again; one that is open is, however many came after it."""
    for number in range(3):
        attempt(tmp_path, number)
    journal = a_journal(tmp_path)
    rows = journal.audit()
    assert first_open(rows, now_ms=journal.now_ms) is None
    settled = delta(tmp_path, "reset_audit").transaction_version("settled")
    assert settled is not None
    assert settled > [row.sequence for row in rows if row.event == Event.LEASE_RELEASED][1]
