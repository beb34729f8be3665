"""Audit, plans and results: what was written is whole, and whatever is done to it is found."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from change.scenes import CASES, a_journal, a_plan, attempt, delta, forget_commits, many_attempts, planned, unlocked
from drivers import command_line

from acktrail.change.audit.audit_chain import Event
from acktrail.change.plan.change_plan import with_hash
from acktrail.change.plan_status import list_plans
from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, MalformedFile, NoTables, PlanStale
from acktrail.tables.delta.store import Tables
from acktrail.tables.upkeep.file_rewrite import compact_files
from acktrail.view.audit_integrity import checked_audit
from acktrail_dashboard.web.pages.changes import plan_page

ATTEMPTS = 4


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made")
    for number in range(ATTEMPTS):
        attempt(root, number)
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """A copy of the tables after some resets, to do something to."""
    return Path(shutil.copytree(made, tmp_path / "tables"))


def config(root: Path) -> TablesConfig:
    return TablesConfig(uri=str(root))


def test_a_damaged_row_takes_no_list_down(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows that somebody put in, with nothing where each plan has something: the list shows them as unreadable, and the
    others as before; so does one plan's status."""
    before = {line["plan_id"]: line for line in list_plans(config(root))}
    row = {**planned("p7").row(), "cluster_id": "c1", "run_id": "r"}
    nothing: dict[str, Any] = dict.fromkeys(("created_at", "strategy", "group_ids", "created_by", "refusals", "kind"))
    for number, damage in enumerate(({"kind": "undo"}, {"kind": "gone"}, nothing)):
        Tables(config(root)).append("reset_plans", [{**row, **damage, "plan_id": f"bad{number}"}])
    done = command_line.run(capsys, "change", "list", "--tables", str(root), "--json")
    found = {line["plan_id"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert (done.code, found.keys() - before.keys()) == (0, {"bad0", "bad1", "bad2"})
    assert {name: found[name] for name in before} == before
    assert found["bad2"]["standing"] == "UNREADABLE"
    assert command_line.run(capsys, "change", "list", "--tables", str(root)).code == 0
    assert {line["plan_id"] for line in plan_page(config(root), 0)["plans"]} == found.keys()


def test_what_was_written_is_whole(root: Path) -> None:
    """Nothing is wrong, everything is vouched for, also after files were put together."""
    before = checked_audit(config(root))
    assert (before.plans, before.executions) == (ATTEMPTS, ATTEMPTS)
    assert (before.plans_without_audit, before.executions_without_audit) == (0, 0)
    for table in ("reset_audit", "reset_plans", "reset_executions"):
        assert compact_files(Tables(config(root)), table, more_than=1) == 0
        assert len(delta(root, table).file_uris()) == 1
    assert checked_audit(config(root)) == before
    attempt(root, ATTEMPTS)
    assert checked_audit(config(root)).rows > before.rows


def written_over(table: str, where: str | None, changes: dict[str, str] | None = None) -> Callable[[Path], None]:
    """Delete the rows of a table, or change them, as somebody does who may write it."""

    def tampered(root: Path) -> None:
        found = unlocked(root, table)
        if changes is None:
            found.delete(where)
        else:
            found.update(changes, predicate=where)

    return tampered


WRITTEN_OVER = [(written_over(*what), words) for *what, words in CASES["rows written over"]]


def restored(root: Path) -> None:
    table = delta(root, "reset_audit")
    table.restore(table.version() - 3)


def without_its_newest_commits(root: Path) -> None:
    forget_commits(root, "reset_audit", delta(root, "reset_audit").version() - 4)


def removed(root: Path) -> None:
    shutil.rmtree(root / "reset_audit")


def made_anew(root: Path) -> None:
    table = delta(root, "reset_audit").to_pyarrow_table()
    removed(root)
    deltalake.write_deltalake(str(root / "reset_audit"), table)


def doubled_row(root: Path) -> None:
    rows = delta(root, "reset_audit").to_pyarrow_table().to_pylist()
    newest = max(rows, key=lambda row: row["sequence"])
    _put_in(root, "reset_audit", newest)


def _put_in(root: Path, table: str, row: dict[str, Any]) -> None:
    schema = pa.schema(delta(root, table).schema().to_arrow())
    deltalake.write_deltalake(str(root / table), pa.Table.from_pylist([row], schema=schema), mode="append")


def without_newest_results(root: Path) -> None:
    forget_commits(root, "reset_executions", delta(root, "reset_executions").version() - 1)


@pytest.mark.parametrize(
    ("tampered", "words"),
    [
        *WRITTEN_OVER,
        (restored, "the log has rows up to"),
        (without_its_newest_commits, "it is missing: reset_executions, plan 2026000003 has noted its hash"),
        (removed, "it is missing: reset_executions, plan 2026000000 has noted its hash"),
        (made_anew, "the table was replaced"),
        (doubled_row, "occurs twice"),
        (without_newest_results, "results of plan 2026000003"),
    ],
)
def test_what_is_done_to_the_tables_is_found(
    root: Path, tampered: Callable[[Path], None], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cut-off end, an emptied, restored or rewritten audit, altered, lost or doubled rows of every table: one line
    that says what, exit code 3."""
    tampered(root)
    assert words in command_line.run(capsys, "change", "audit", "--tables", root).complaint(3)


@pytest.mark.parametrize("tampered", [*(cut for cut, _ in WRITTEN_OVER[:2]), doubled_row])
def test_nothing_is_noted_after_a_broken_end(root: Path, tampered: Callable[[Path], None]) -> None:
    """Whoever would go on from a newest row that is missing or there twice is stopped by a clear error."""
    tampered(root)
    with pytest.raises(ConfigurationError, match="the audit is broken: its newest row"):
        attempt(root, 9)


def test_an_anchor_elsewhere_shows_what_all_tables_together_hide(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All tables set back together to an earlier state are whole by themselves; a file that kept the newest row tells.
    Where nothing is wrong the file moves on; where something is, it stays."""
    anchor = tmp_path / "anchor.json"
    earlier = shutil.copytree(root, tmp_path / "earlier")
    attempt(root, 7)
    first = command_line.run(capsys, "change", "audit", "--tables", root, "--anchor", anchor)
    assert first.code == 0
    assert f"anchor {anchor}: now at row" in first.stderr
    attempt(root, 8)
    checked_audit(config(root), anchor=anchor)
    kept = json.loads(anchor.read_text())
    assert kept["sequence"] == len(delta(root, "reset_audit").to_pyarrow_table()) - 1
    checked_audit(config(earlier))
    refused = command_line.run(capsys, "change", "audit", "--tables", earlier, "--anchor", anchor)
    assert f"row {kept['sequence']}: it is missing: {anchor} has noted" in refused.complaint(3)
    assert json.loads(anchor.read_text()) == kept
    anchor.write_text("{}")
    for unfit, why in ((anchor, "is not an anchor"), (tmp_path, "IsADirectoryError")):
        with pytest.raises(MalformedFile, match=why) as caught:
            checked_audit(config(root), anchor=unfit)
        assert "name a file that acktrail change audit --anchor wrote" in caught.value.hint


def test_a_plan_stored_otherwise_is_not_carried_out(root: Path) -> None:
    """A stored plan whose text and hash were both replaced is not the one that was planned: it is refused."""
    other = with_hash(replace(planned("2026000001"), created_by="somebody else"))
    unlocked(root, "reset_plans").delete("plan_id = '2026000001'")
    _put_in(root, "reset_plans", {"cluster_id": "c1", "run_id": "r", **other.row()})
    with pytest.raises(PlanStale, match="the audit has another hash"):
        a_journal(root).write_plan(other)


def test_what_a_killed_process_left_is_said_to_be_unknown(tmp_path: Path) -> None:
    """Plans and results without a hash in the audit are counted, and are no error; a plan that is stored again is noted
    then."""
    root, plan = tmp_path, a_plan()
    journal = a_journal(root)
    journal._tables.create("reset_plans", properties={"cluster_id": "c1"})
    origin = {"cluster_id": "c1", "run_id": "r"}
    journal._tables.append("reset_plans", [{**origin, **plan.row()}])
    report = checked_audit(config(root))
    assert (report.plans, report.plans_without_audit) == (0, 1)
    journal.write_plan(plan)
    assert [row.event for row in journal.audit()] == [Event.PLANNED]
    journal.write_plan(plan)
    report = checked_audit(config(root))
    assert (report.plans, report.plans_without_audit, report.rows) == (1, 0, 1)


def test_an_audit_that_is_written_to_meanwhile_is_whole(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes that come while the tables are read one after the other look like no tampering."""
    read, coming = Tables.rows, iter(range(100, 200))

    def reading(*arguments: Any, **named: Any) -> Any:
        found = read(*arguments, **named)
        monkeypatch.setattr(Tables, "rows", read)
        attempt(root, next(coming))
        monkeypatch.setattr(Tables, "rows", reading)
        return found

    monkeypatch.setattr(Tables, "rows", reading)
    checked_audit(config(root))


def test_no_row_is_an_empty_audit(tmp_path: Path) -> None:
    """Without any change there is nothing to find, and no anchor is made. Without any table nothing is whole."""
    with pytest.raises(NoTables):
        checked_audit(config(tmp_path / "tables"))
    Tables(config(tmp_path / "tables")).create("state_records")
    report = checked_audit(config(tmp_path / "tables"), anchor=tmp_path / "anchor.json")
    assert (report.rows, report.newest_hash) == (0, None)
    assert not (tmp_path / "anchor.json").exists()


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
