"""What a person meets in the first minutes: help, completion, packages that are not installed; and a quick start, which
takes nothing away: pyarrow without pandas."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from drivers.command_line import loaded, run

from acktrail.branches import is_there
from acktrail.cli.main import EXTRAS

BIN = Path(sys.executable).parent
OF_EXTRAS = {"kafka": ("kafka", "confluent_kafka"), "tables": ("deltalake", "pyarrow")}
"""Packages that only the extra brings, by extra."""

BLOCK = """
import sys
class Blocked:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition('.')[0] in {names!r}:
            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)
sys.meta_path.insert(0, Blocked)
"""


def acktrail(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / "acktrail"), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("names", [["change"], ["groups", "config"]])
def test_a_group_of_commands_alone_shows_its_help(names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """As `--help` and `-h` have it, with its lines, on stdout; nothing on stderr."""
    alone, helped, short = (run(capsys, *names, *words) for words in ((), ("--help",), ("-h",)))
    assert (alone.code, alone.stdout, alone.stderr) == (0, helped.stdout, "")
    assert short.stdout == helped.stdout
    assert "\n  " in alone.stdout


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("statsu",), "'status'"),
        (("run", "reconcil"), "'reconcile'"),
        (("reconcile",), "'run reconcile'"),
        (("change", "aply"), "'apply'"),
        (("groups", "config", "shwo"), "'show'"),
        (("config", "profiles", "overviw"), "'overview'"),
        (("groups", "describe", "--jsn"), "--json"),
    ],
)
def test_a_misspelt_word_is_answered_with_the_right_one(
    words: tuple[str, ...], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """At every level: of the commands, of those below one, and of options."""
    assert meant in run(capsys, *words).complaint(2).partition("(see")[0]


def test_completion_of_commands(tmp_path: Path) -> None:
    """The script that `acktrail --show-completion` prints completes commands and what stands below them."""
    script = f"""
    export PATH={BIN}:$PATH
    acktrail --show-completion > {tmp_path}/script || exit 1
    source {tmp_path}/script || exit 2
    complete -p acktrail || exit 3
    for words in "acktrail record arch" "acktrail groups des"; do
        COMP_WORDS=($words); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()
        _acktrail_completion acktrail
        echo "${{COMPREPLY[@]}}"
    done
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == ["archived", "describe"]


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (("groups", "list", "--bootstrap-server", "127.0.0.1:1"), "kafka"),
        (("doctor", "--bootstrap-server", "127.0.0.1:1", "--tables", "TABLES"), "kafka"),
        (("change", "list", "--tables", "TABLES"), "tables"),
        (("dashboard", "report", "--out", "TABLES", "--tables", "TABLES"), "tables"),
        (("run", "reconcile", "--tables", "TABLES"), "tables"),
        *([(("demo", "--out", "TABLES"), "kafka")] if is_there("acktrail_demo:demo") else []),
    ],
)
def test_a_missing_extra_is_named(tmp_path: Path, arguments: tuple[str, ...], missing: str) -> None:
    """One line that says what to install, exit code 3."""
    (tmp_path / "sitecustomize.py").write_text(BLOCK.format(names=OF_EXTRAS[missing]))
    filled = [str(tmp_path / "tables") if argument == "TABLES" else argument for argument in arguments]
    done = acktrail(*filled, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (3, ""), done
    (line,) = done.stderr.splitlines()
    extras = EXTRAS.get(".".join(arguments[:2])) or EXTRAS[arguments[0]]
    assert line.endswith(f"(pip install 'acktrail[{extras}]')"), line


def test_a_missing_module_of_acktrail_is_a_defect(tmp_path: Path) -> None:
    """No extra would bring it."""
    (tmp_path / "sitecustomize.py").write_text(BLOCK.format(names=("acktrail_dashboard",)))
    done = acktrail("dashboard", "report", "--tables", str(tmp_path), PYTHONPATH=str(tmp_path), TMPDIR=str(tmp_path))
    assert (done.returncode, "defect" in done.stderr) == (1, True)


def printed(code: str) -> list[str]:
    """The lines that `code` prints in a fresh interpreter."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split("\n")


def test_an_export_does_not_import_pandas() -> None:
    """Everything an export needs is imported and pyarrow is used, and pandas is not there."""
    said = printed(
        "import sys\n"
        "from acktrail.cli.arrow_without_pandas import forgo_pandas\n"
        "forgo_pandas()\n"
        "import acktrail.kafka.state_source, acktrail.kafka.groups.offsets_connector\n"
        "import acktrail.tables.exported.delta_sink\n"
        "import pyarrow as pa\n"
        "print(pa.array([{'a': 1}]).to_pylist(), pa.scalar('x'), 'pandas' in sys.modules)"
    )
    assert said[0] == "[{'a': 1}] x False"


@pytest.mark.parametrize("words", ["record archived g", "dashboard report"])
def test_tables_are_read_without_pandas(words: str, tmp_path: Path) -> None:
    """It is forgone before the first import of a reader."""
    code, modules = loaded(*words.split(), "--tables", tmp_path)
    assert (code in (2, 3), modules & {"pyarrow", "pandas"}) == (True, {"pyarrow"})


def test_pandas_is_there_for_whoever_wants_it_later() -> None:
    """An import afterwards works, and so does pyarrow's way to pandas."""
    said = printed(
        "from acktrail.cli.arrow_without_pandas import forgo_pandas\n"
        "forgo_pandas()\n"
        "import pyarrow as pa\n"
        "print(pa.table({'a': [1, 2]}).to_pandas().a.sum())\n"
        "import pandas\n"
        "print(pandas.DataFrame({'b': [3]}).b.sum())"
    )
    assert said[:2] == ["3", "3"]
