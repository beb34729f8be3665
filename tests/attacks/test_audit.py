"""Who may write the tables rewrites the history of changes: what that shows, and what shows it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from change.scenes import attempt, delta
from deltalake import CommitProperties, Transaction
from drivers import command_line

from acktrail.change.audit import audit_chain
from acktrail.change.audit.audit_chain import AuditRow, first_link, row_digest, rows_digest
from acktrail.change.audit.journal import SEQUENCE
from acktrail.change.change_kind import parse_plan
from acktrail.change.plan.change_plan import with_hash
from acktrail.change.plan.reset_plan import ResetPlan
from acktrail.cli.table_checks import audit_checks
from acktrail.config import TablesConfig
from acktrail.dataclass_json import canonical_json
from acktrail.errors import ConfigurationError
from acktrail.tables.delta.store import Tables
from acktrail.view.audit_integrity import audit_rows, checked_audit

VARIABLE, KEY = "ACKTRAIL_AUDIT_KEY", "of-the-workers-0123456789"
AUDIT, PLANS, EXECUTIONS = TABLES = ("reset_audit", "reset_plans", "reset_executions")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The tables after one reset: six rows of audit."""
    attempt(tmp_path / "tables", 1)
    return tmp_path / "tables"


def rewrite(root: Path, keyed: Callable[[AuditRow], str | None] = lambda _: None) -> None:
    """Give each change another actor, host and reason, hash everything again, write the tables again. It needs write
    access to the tables and what stands in acktrail's source; `keyed`: what it writes for the hash with the key, which
    it does not have."""
    found = {name: delta(root, name).to_pyarrow_table() for name in TABLES}
    audit, plans, done = (found[name].to_pylist() for name in TABLES)
    hashes: dict[int | None, str | None] = {None: None}
    previous = first_link("c1")
    for row in sorted(audit, key=lambda row: row["sequence"]):
        detail = json.loads(row["detail"])
        (plan,) = (each for each in plans if each["plan_id"] == row["plan_id"])
        if row["event"] == "planned":
            known = parse_plan(plan["plan"], "plan")
            assert isinstance(known, ResetPlan)
            forged = with_hash(replace(known, request=replace(known.request, reason="routine")))
            plan |= {**forged.row(), "audit_hash": hashes[plan["audit_sequence"]]}
            detail["plan"] = row_digest(plan)
        mine = [each for each in done if "executions" in detail and each["run_id"] == row["run_id"]]
        for each in mine:
            each["audit_hash"] = hashes[each["audit_sequence"]]
            detail["executions"]["hash"] = rows_digest(mine)
        row.update(actor="eve", host="far", plan_hash=plan["plan_hash"], previous_hash=previous)
        row.update(detail=canonical_json(detail))
        previous = row["row_hash"] = audit_chain._hash_of(AuditRow(**row))
        row.update(keyed_hash=keyed(AuditRow(**row)))
        hashes[row["sequence"]] = previous
    number = CommitProperties(app_transactions=[Transaction(SEQUENCE, len(audit) - 1)])
    for name, rows in zip(TABLES, (audit, plans, done), strict=True):
        shutil.rmtree(root / name)
        table = pa.Table.from_pylist(rows, schema=found[name].schema)
        deltalake.write_deltalake(str(root / name), table, commit_properties=number if name == AUDIT else None)


def config(root: Path) -> TablesConfig:
    return TablesConfig(uri=str(root))


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def test_rewritten_audit_is_consistent_and_nothing_says_that_it_is_true(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who may write all of the tables and nothing else forges who did what and why; `change audit` without an anchor
    sees nothing of it, exits with 0, and claims no more than that the tables are consistent in themselves."""
    before = audit_rows(config(root))
    rewrite(root)
    assert {row["actor"] for row in before} == {"ann"}
    assert {row["actor"] for row in audit_rows(config(root))} == {"eve"}
    done = command_line.run(capsys, "change", "audit", "--tables", root)
    assert done.code == 0
    assert "audit: 6 rows, consistent in itself; compared with no anchor" in done.stderr
    assert "whole" not in done.stdout + done.stderr


def test_anchor_kept_elsewhere_shows_a_rewritten_audit(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who may write all of the tables, and not the file that keeps a row of the audit, forges the history; `change
    audit --anchor` and `doctor` name the row that is another one."""
    anchor = tmp_path / "elsewhere" / "anchor.json"
    asked = ("change", "audit", "--tables", root, "--anchor", anchor)
    assert "compared with no anchor" in command_line.run(capsys, *asked).stderr
    assert "consistent in itself, and with the anchor at row 5" in command_line.run(capsys, *asked).stderr
    kept = anchor.read_text()
    rewrite(root)
    assert f"broken at row 5: it is another one: {anchor} has noted" in command_line.run(capsys, *asked).complaint(3)
    assert anchor.read_text() == kept


def test_anchor_in_the_tables_is_none(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who may write all of the tables would write the anchor, too: one that lies there is refused, and not made."""
    anchor = root / "anchor.json"
    said = command_line.run(capsys, "change", "audit", "--tables", root, "--anchor", anchor).complaint(3)
    assert "is inside the tables" in said
    assert not anchor.exists()


@pytest.mark.parametrize("attack", [rewrite, shutil.rmtree], ids=["rewritten", "removed"])
def test_doctor_compares_the_audit_with_the_anchor(
    root: Path, tmp_path: Path, attack: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who may write all of the tables forges the history, or removes it; `acktrail doctor` of the next morning, which
    knows the anchor by its variable, is red. Before, and without an anchor, it says what it compared."""
    anchor = tmp_path / "anchor.json"

    def looked(anchor: Path | None) -> list[tuple[str, str]]:
        return [(check.status, check.detail) for check in audit_checks(config(root), anchor)]

    without = [("note", "6 rows, consistent in itself; compared with no anchor")]
    assert looked(None) == looked(anchor) == without
    (check,) = audit_checks(config(root), anchor)
    assert f"acktrail change audit --anchor {anchor}" in check.hint
    checked_audit(config(root), anchor=anchor)
    kept = anchor.read_text()
    assert looked(anchor) == [("ok", "6 rows, consistent in itself, and with the anchor at row 5")]
    attack(root)
    ((status, detail),) = looked(anchor)
    assert status == "missing"
    monkeypatch.setenv("ACKTRAIL_AUDIT_ANCHOR", str(anchor))
    done = command_line.run(capsys, "doctor", "--bootstrap-server", "127.0.0.1:1", "--tables", root, "--json")
    found = {check["what"]: check for check in map(json.loads, done.stdout.splitlines())}
    assert (done.code, found["audit"]["status"], found["audit"]["detail"]) == (3, "missing", detail)
    assert ("it is another one" if root.exists() else "it is missing") in detail
    (check,) = audit_checks(config(tmp_path / "gone"), anchor)
    assert (check.status, "no tables" in check.detail) == ("missing", True)
    assert anchor.read_text() == kept


def test_removed_audit_is_not_said_to_be_none(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who may write all of the tables removes those of changes; without an anchor and a key `change audit` cannot tell
    that from a cluster on which nothing was changed, and says so."""
    Tables(config(root)).create("state_records")
    for name in TABLES:
        shutil.rmtree(root / name)
    code, said = audited(root, capsys)
    assert (code, "compared with no anchor" in said, "or its tables were removed" in said) == (0, True, True)


def stripped(_: AuditRow) -> None:
    """No hash with a key."""


def as_before(row: AuditRow) -> str | None:
    """The hash that the row had."""
    return row.keyed_hash


def with_own_key(row: AuditRow) -> str:
    """A hash with a key of the attacker's."""
    return audit_chain._keyed(row.row_hash, b"of-the-attacker-012345")


def audited(root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    done = command_line.run(capsys, "change", "audit", "--tables", root)
    return done.code, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("keyed", "words"),
    [
        (stripped, "broken at row 0: the rows from here on were written without the key"),
        (with_own_key, "broken at row 0: the rows from here on were written with another key"),
        (as_before, "broken at row 0: its keyed hash is not that of the key"),
    ],
)
def test_key_shows_a_rewritten_audit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, keyed: Any, words: str
) -> None:
    """Who may write all of the tables, and does not have the key of those who write the audit, forges the history;
    `change audit` with the key names the row from which on it is forged, without an anchor. So does doctor."""
    monkeypatch.setenv(VARIABLE, KEY)
    attempt(tmp_path, 1)
    words_before = "consistent in itself; compared with no anchor; 6 of them were written with the key"
    assert words_before in audited(tmp_path, capsys)[1]
    rewrite(tmp_path, keyed)
    code, said = audited(tmp_path, capsys)
    assert (code, words in said) == (3, True)
    (check,) = audit_checks(config(tmp_path), None)
    assert (check.status, words in check.detail) == ("missing", True)


def test_writer_with_the_key_does_not_continue_a_forged_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may write all of the tables forges the newest row; the next change with the key stops there, before anything
    is sent."""
    monkeypatch.setenv(VARIABLE, KEY)
    attempt(tmp_path, 1)
    rewrite(tmp_path, as_before)
    with pytest.raises(ConfigurationError, match="its newest row, 5, was altered"):
        attempt(tmp_path, 2)


def test_what_a_key_does_not_vouch_for_is_said(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads the audit learns which rows were written before the key, without it and with another one, and that
    keyed hashes were not checked where the reader has no key. An end without the key is an error."""
    monkeypatch.setenv(VARIABLE, KEY)
    code, said = audited(root, capsys)
    assert (code, "broken at row 0: the rows from here on were written without the key; if" in said) == (3, True)
    attempt(root, 2)
    assert (
        "; 6 of them were written with the key, the newest among these; rows 0, 1, 2, 3, 4 and 1 more were"
        in (audited(root, capsys)[1])
    )
    monkeypatch.delenv(VARIABLE)
    code, said = audited(root, capsys)
    assert (code, "; 6 with a keyed hash, which was not checked: ACKTRAIL_AUDIT_KEY is not set" in said) == (0, True)
    attempt(root, 3)
    monkeypatch.setenv(VARIABLE, f"next-{KEY}")
    attempt(root, 4)
    said = audited(root, capsys)[1]
    assert "6 of them were written with the key" in said
    assert "rows 0, 1, 2, 3, 4 and 7 more were written before the key" in said
    assert "rows 6, 7, 8, 9, 10 and 1 more were written with another key" in said
    monkeypatch.setenv(VARIABLE, KEY)
    code, said = audited(root, capsys)
    assert (code, "broken at row 12: the rows from here on were written with another key" in said) == (3, True)


def test_key_is_shown_nowhere(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads tables, output and errors does not learn the key; one that can be guessed is refused."""
    monkeypatch.setenv(VARIABLE, KEY)
    attempt(root, 2)
    done = command_line.run(capsys, "change", "audit", "--tables", root, "--json")
    assert KEY not in done.stdout + done.stderr
    assert not any(KEY.encode() in file.read_bytes() for file in root.rglob("*") if file.is_file())
    monkeypatch.setenv(VARIABLE, "guess-me")
    said = command_line.run(capsys, "change", "audit", "--tables", root).complaint(3)
    assert "fewer than 16 characters" in said
    assert "guess-me" not in said
    with pytest.raises(ConfigurationError, match="fewer than 16"):
        attempt(root, 3)
