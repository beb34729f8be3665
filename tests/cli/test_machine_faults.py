"""What is wrong with a machine is one line and exit code 3 or 4, never "a defect", and no file is left half-written."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest
from drivers.command_line import run
from drivers.own_process import finished
from samples.health_tables import HealthTables

from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, RetryableError
from acktrail.machine_faults import machine_fault
from acktrail.tables.delta.storage_errors import storage_failure
from acktrail.tables.delta.store import Tables

ACKTRAIL = str(Path(sys.executable).with_name("acktrail"))


@pytest.fixture(scope="module")
def health(tmp_path_factory: pytest.TempPathFactory) -> HealthTables:
    found = HealthTables(tmp_path_factory.mktemp("machine") / "tables")
    found.exported(1)
    found.reconciled([found.queue("größe", "stuck", topic="漢")])
    return found


@pytest.mark.parametrize("name", ["a%20b", "a%2Fb", "a\\b", "a\nb", "a\tb"])
def test_a_root_that_delta_rs_misreads_is_refused_before_the_first_commit(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would write one commit and never read it."""
    root = str(tmp_path / name / "tables")
    with pytest.raises(ConfigurationError, match="the root of the tables cannot have"):
        Tables(TablesConfig(uri=root)).prepare()
    assert "cannot have" in run(capsys, "findings", "--tables", root).complaint(3)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("name", ["a b", "a#b", "a?b", "a%zz", "größe", "*[x]", "a:b", "s3:", "'\"", "\u202e"])
def test_other_roots_work(name: str, tmp_path: Path) -> None:
    """What is written is read again, through a second commit."""
    tables = Tables(TablesConfig(uri=str(tmp_path / name)))
    tables.prepare()
    for number in (0, 1):
        tables.append("export_ranges", [{"state_partition": number}])
    Tables.open_anew()
    assert Tables(tables.config).read("export_ranges").num_rows == 2


@pytest.mark.parametrize(
    ("surroundings", "said"),
    [
        ({"LC_ALL": "C", "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}, "\\u6f22"),
        ({"LC_ALL": "C"}, "größe"),
        ({"HOME": "/nonexistent"}, "größe"),
        ({"HOME": ""}, "größe"),
        ({"TMPDIR": "/nonexistent"}, "größe"),
        ({"LC_ALL": "xx_YY.nonsense"}, "größe"),
    ],
)
def test_odd_surroundings_do_not_matter(health: HealthTables, surroundings: dict[str, str], said: str) -> None:
    """A name that a terminal cannot show is escaped; folders that are not needed are not missed."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONIOENCODING", "LC_ALL", "LANG")}
    encoding = surroundings.get("PYTHONIOENCODING", "utf-8")
    done = finished(ACKTRAIL, "status", "--tables", health.config.uri, env={**env, **surroundings}, encoding=encoding)
    assert (done.returncode, said in done.stdout) == (6, True), done


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("dashboard", "report", "--out", "{file}/x/report.html"), "Not a directory"),
        (("dashboard", "report", "--out", "{folder}"), "Is a directory"),
        (("dashboard", "evidence", "write", "--out", "{file}"), ""),
        (("tables", "metrics", "--out", "{folder}/none/m.prom"), "No such file or directory"),
        (("status", "--tables-options", "{folder}"), ""),
        (("status", "--tables-options", "{folder}/none"), ""),
        (("change", "show", "{folder}/none.json"), ""),
        (("change", "audit", "--anchor", "{folder}"), ""),
    ],
)
def test_wrong_files_are_one_line(
    arguments: tuple[str, ...],
    said: str,
    health: HealthTables,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of any command: the file is named, and nothing is left of it."""
    (tmp_path / "file").write_text("x")
    given = [each.format(file=tmp_path / "file", folder=tmp_path) for each in arguments]
    done = run(capsys, *given, "--tables", health.config.uri)
    assert done.code in (2, 3), done
    assert str(tmp_path) in done.stderr
    assert said in done.stderr
    assert "defect" not in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/data/x"), RetryableError, "/data/x: No space left"),
        (OSError(errno.EROFS, "Read-only file system", "/data/x"), ConfigurationError, "/data/x: Read-only"),
        (OSError(errno.EMFILE, "Too many open files"), RetryableError, "Too many open files"),
        (PermissionError(errno.EACCES, "Permission denied", "x"), ConfigurationError, "x: Permission denied"),
        (FileNotFoundError(errno.ENOENT, "No usable temporary directory found"), ConfigurationError, "temporary"),
        (RuntimeError("Could not determine home directory."), ConfigurationError, "no home folder"),
        (MemoryError(), RetryableError, "memory ran out"),
        (ImportError("libx.so: cannot open", name="numpy.core"), ConfigurationError, "numpy cannot be loaded: libx.so"),
        (ImportError("no such name", name="acktrail.view"), None, ""),
        (ModuleNotFoundError("No module named 'acktrail.x'", name="acktrail.x"), None, ""),
        (ValueError("a defect"), None, ""),
        (OSError("without a number"), None, ""),
        (AssertionError(), None, ""),
    ],
)  # fmt: skip
def test_faults_of_the_machine_are_told_from_defects(error: Exception, kind: type[Exception] | None, said: str) -> None:
    """By what the system says; the rest stays a defect."""
    found = machine_fault(error)
    assert (None if found is None else type(found)) == kind
    assert found is None or (said in found.message and found.hint)


def test_a_missing_temporary_folder_is_named(tmp_path: Path) -> None:
    """Also for a defect, whose traceback then has no file."""
    code = (
        "import sys, tempfile; from acktrail.cli import main\n"
        "tempfile.tempdir = '/nonexistent/folder'\n"
        "def broken(*_): raise ValueError('odd')\n"
        "main.typer.main.get_command = broken\n"
        "sys.exit(main._run(['status']))"
    )
    done = finished(sys.executable, "-c", code, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "acktrail: unexpected ValueError: odd (a defect; details above)"


def test_what_the_storage_said_is_shown_for_folders_alone() -> None:
    """An object storage's text may hold keys. `tables repair` is not the advice where no damage is known."""
    error = OSError("Invalid table version: 1")
    shown = storage_failure(error, "/data/tables", "findings")
    assert shown.message == "tables at /data/tables: table findings: the storage failed: Invalid table version: 1"
    assert "repair" not in shown.hint
    assert "backup" not in shown.hint
    assert storage_failure(error, "s3://bucket", "findings").message.endswith("the storage failed: OSError")
