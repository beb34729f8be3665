"""What commands answer where the tables are absent, are something else, are damaged, have nothing yet, or where nothing
matches the filter: five answers, and only "nothing yet" is a success."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from drivers.command_line import Done, run
from samples.health_tables import HealthTables

from acktrail.change.plan_status import plan_status
from acktrail.cli.main import app
from acktrail.config import TablesConfig
from acktrail.errors import NoTables, UnknownName
from acktrail.tables.delta.store import Tables
from acktrail.tables.upkeep.maintenance import MaintenancePolicy, maintain
from acktrail_dashboard.web.application import dashboard_server

_IN_PROCESS: Final = ("--master", "in-process")
_NO_BROKER: Final = ("--bootstrap-server", "127.0.0.1:1")
READERS: Final[dict[str, tuple[str, ...]]] = {
    "status": (),
    "findings": (),
    "run history": _IN_PROCESS,
    "run reconcile": _IN_PROCESS,
    "run validate": (),
    "record show": ("fraud", "orders", "0", "1"),
    "record archived": ("fraud",),
    "record dead-letters": ("fraud",),
    "record rates": (),
    "record state": ("fraud", "--at", "1h"),
    "change approve": ("plan-1", *_NO_BROKER),
    "change reject": ("plan-1",),
    "change apply": ("plan-1", *_NO_BROKER),
    "change verify": ("plan-1", *_NO_BROKER),
    "change undo": ("plan-1", *_NO_BROKER),
    "change list": (),
    "change show": ("plan-1",),
    "change audit": (),
    "tables repair": (),
    "tables maintain": ("--execute",),
    "tables metrics": (),
    "tables views": (),
    "tables verify": _IN_PROCESS,
    "dashboard evidence write": (),
    "dashboard report": (),
    "dashboard serve": ("--port", "0"),
    "expand show": (),
}
"""Commands that only read tables, or change those that are there, with arguments that need no broker."""
OTHERS: Final = {
    *("run export", "run stream", "tables import", "groups delete", "groups delete-offsets", "groups config set"),
    *("change plan reset", "change plan migration", "change plan redrive", "expand plan", "expand check"),
    "doctor",  # says what is there, and what is to be done
    "dashboard evidence verify",  # of a pack that was written before: tests/dashboard/test_evidence.py
}
"""Commands that make the first table."""
FILTERS: Final = {
    ("status", "--group", "fraudd*"): "no group matches 'fraudd*' (2 known; nearest: 'fraud')",
    ("findings", "--group", "fraudd"): "no group matches 'fraudd' (2 known; nearest: 'fraud')",
    ("findings", "--group", "none", "--group", "neither"): "(2 known; for instance: 'fine', 'fraud')",
    ("findings", "--rule", "past_log_ends"): "nearest: 'past_log_end'",
    ("dashboard", "report", "--run-id", "run-3"): "unknown run 'run-3'",
    ("dashboard", "evidence", "write", "run-3"): "unknown run 'run-3'",
    ("run", "validate", "--run-id", "run-3"): "run-3",
    ("change", "audit", "plan-1"): "unknown plan 'plan-1'",
    ("expand", "show", "event-1"): "event-1",
}


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command below `command` that has ``--tables``."""
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from commands(command.get_command(None, name), (*path, name))
    elif any("--tables" in of.opts for of in command.params):
        yield " ".join(path)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> HealthTables:
    found = HealthTables(tmp_path_factory.mktemp("full") / "tables")
    found.exported(1)
    queues = [found.queue("fine", "ok"), found.queue("fraud", "stuck")]
    found.reconciled(queues, [{"rule": "past_log_end", "severity": "error"}])
    return found


def ask(capsys: pytest.CaptureFixture[str], command: str, root: Path, *more: str) -> Done:
    capsys.readouterr()
    # Bytes of metrics go to the buffer of stdout, which the capture has.
    return run(capsys, *command.split(), *more, "--tables", str(root))


def test_each_command_with_tables_is_walked() -> None:
    """A new command says here which of the two it is."""
    assert {*commands(typer.main.get_command(app))} == READERS.keys() | OTHERS


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("kind", ["absent", "file", "other", "hollow"])
def test_absent_tables_are_refused(command: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is made there, and the line says what is there instead."""
    root = tmp_path / "tables"
    why = {
        "absent": "there is no such folder",
        "file": "this is not a folder",
        "other": "none of the 1 files and folders there is a table",
        "hollow": "nothing is there",
    }
    if kind == "file":
        root.write_text("not a table")
    elif kind != "absent":
        root.mkdir()
        if kind == "other":
            (root / "photos").mkdir()
    before = [*tmp_path.rglob("*")]
    done = ask(capsys, command, root, *READERS[command])
    assert done.code == 3, done
    assert f"no tables at {root}: {why[kind]} (" in done.stderr
    assert "expand" in command or "nothing is wrong" not in done.stdout
    assert [*tmp_path.rglob("*")] == before


def test_a_table_is_not_the_root(full: HealthTables, capsys: pytest.CaptureFixture[str]) -> None:
    """The line names the folder above it."""
    root = Path(full.config.uri)
    line = ask(capsys, "findings", root / "findings").complaint(3)
    assert f"that is one table; the root is the folder above, {root} (" in line


@pytest.mark.parametrize("question", FILTERS)
def test_a_filter_that_nothing_matches_is_refused(
    question: tuple[str, ...], full: HealthTables, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the nearest names."""
    done = ask(capsys, " ".join(question), Path(full.config.uri))
    assert done.code in (2, 3)
    assert FILTERS[question] in done.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("findings", "nothing was reconciled yet"),
        ("change list", "no plan was made yet"),
        ("change audit", "nothing was planned or changed yet"),
        ("expand show", "No topic was looked at yet"),
        ("status", "no status was written yet"),
    ],
)
def test_tables_without_rows_say_that_nothing_came_yet(
    command: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """That is a success, except where it is something to act on: `status`."""
    made = HealthTables(tmp_path / "tables")
    made.tables.create("export_ranges")
    done = ask(capsys, command, tmp_path / "tables")
    assert said in done.stdout
    assert done.code == (6 if command == "status" else 0)


def test_repair_of_tables_without_records_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It does not claim that every record is there."""
    HealthTables(tmp_path / "tables").tables.create("state_records")
    assert "no record was exported yet" in ask(capsys, "tables repair", tmp_path / "tables").stdout


@pytest.mark.parametrize("damage", ["an empty commit", "no log"])
@pytest.mark.parametrize("command", ["status", "findings", "tables repair", "tables metrics", "dashboard report"])
def test_damaged_tables_are_not_empty_ones(
    command: str, damage: str, full: HealthTables, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The headline of `status` says that statuses cannot be read, and metrics are written all the same."""
    root = Path(shutil.copytree(full.config.uri, tmp_path / "tables"))
    for log in root.glob("[!e]*/_delta_log"):
        if damage == "no log":
            shutil.rmtree(log)
        else:
            (log / f"{0:020d}.json").write_text("")
    file = "_delta_log is missing" if damage == "no log" else f"_delta_log/{0:020d}.json is empty"
    done = ask(capsys, command, root)
    assert done.code == (6 if command == "status" else 3), done
    assert file in done.stdout + done.stderr
    if command == "status":
        assert done.stdout.startswith("Who is in trouble is not known: tables at ")
        assert "No share group has a status yet" not in done.stdout
    if command == "tables metrics":
        assert re.search(r"acktrail_tables_readable\{.*statuses.* 0\.0", done.stdout)


def test_metrics_of_absent_tables_say_so_to_prometheus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file for node_exporter is written, or it would go on showing what once was."""
    file = tmp_path / "acktrail.prom"
    line = ask(capsys, "tables metrics", tmp_path / "none", "--out", str(file)).complaint(3)
    assert "there is no such folder" in line
    assert 'part="findings"} 0.0' in file.read_text()


def test_a_plan_of_absent_tables_has_no_status(full: HealthTables, tmp_path: Path) -> None:
    """Tables that are gone, or know nothing of the plan, do not say that nothing was sent."""
    with pytest.raises(NoTables):
        plan_status(TablesConfig(uri=str(tmp_path / "gone")), "plan-1")
    with pytest.raises(UnknownName, match="unknown plan 'plan-1'"):
        plan_status(full.config, "plan-1")


def test_upkeep_and_pages_of_absent_tables_fail(tmp_path: Path) -> None:
    """As functions, too: what the DAGs call."""
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(NoTables, match="this is not a folder"):
        maintain(TablesConfig(uri=str(file)), MaintenancePolicy())
    with pytest.raises(NoTables):
        dashboard_server(TablesConfig(uri=str(tmp_path / "none")), host="127.0.0.1", port=0)


def test_who_makes_the_first_table_reads_before(tmp_path: Path) -> None:
    """Between `begin` and the first commit there is nothing to read, and that is no error."""
    tables = Tables(TablesConfig(uri=str(tmp_path / "new")))
    with pytest.raises(NoTables):
        tables.read("findings")
    tables.begin()
    assert not tables.read("findings").num_rows
