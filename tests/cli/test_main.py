"""The command line as a person and a program meet it: usage, help, completion, packages that are not installed; tables
and JSON lines with any names in a cluster, times that may be relative; a quick start, which takes nothing away: pyarrow
without pandas."""

from __future__ import annotations

import json
import os
import sys
from itertools import takewhile
from pathlib import Path

import pytest
from drivers.command_line import loaded, run
from drivers.own_process import finished, printed
from hypothesis import given
from hypothesis import strategies as st

from acktrail.change.request.reset_request import StrategyKind, choose_strategy
from acktrail.cli.common_options import OfTables, json_line
from acktrail.cli.group_answers import GroupAnswer, states_text
from acktrail.cli.main import CommandGroup
from acktrail.errors import InputError
from acktrail.kafka.descriptions import GroupDescription
from acktrail.package_data import install_hint
from acktrail.text_tables import KnownSum, shortened, table
from acktrail.times import ago_ms, duration_ms, now_ms, time_ms


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Every command that is registered can be loaded and is listed with a line of help. None prints a script of its own
    for completion: it would complete nothing."""
    for path in CommandGroup.targets():
        *group, name = path.split(".")
        assert f"\n  {name} " in run(capsys, *group, "--help").stdout, path
        helped = run(capsys, *group, name, "--help")
        assert (helped.code, "completion" in helped.stdout) == (0, False), path


@pytest.mark.parametrize(
    "arguments",
    [
        ["--bogus"],
        ["bogus"],
        ["record", "show"],
        ["record", "show", "--bogus"],
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong call ends with exit code 2 and one line on stderr that names the help."""
    said = run(capsys, *arguments).complaint(2)
    assert "--help" in said or arguments[-1] in said


APPLIED = "--out PLAN, then acktrail change apply PLAN --execute"


@pytest.mark.parametrize(
    ("of_kafka", "here"),
    [
        (
            "--bootstrap-server localhost:9092 --group S1 --topic T1 --reset-offsets --to-earliest --execute",
            f"change plan reset --bootstrap-server localhost:9092 --group S1 --topic T1 --to-earliest {APPLIED}",
        ),
        (
            "change plan reset --group S1 --topic T1 --reset-offsets --to-latest --dry-run",
            f"change plan reset --group S1 --topic T1 --to-latest --dry-run {APPLIED}",
        ),
        ("groups --describe --group S1 --members", "groups describe S1 --members"),
        ("--command-config c --delete-offsets --group S1", "groups delete-offsets --client-config c --group S1"),
    ],
)
def test_kafkas_command_line_is_answered_with_ours(
    of_kafka: str, here: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """R004-07: who types what Kafka's tool takes is told the command that does it here, in one line; its options are
    options of that command."""
    assert run(capsys, *of_kafka.split()).complaint(2).endswith(f"(here: acktrail {here})")
    command = here.partition(",")[0].split()
    known = run(capsys, *takewhile(lambda word: word[0] != "-", command), "--help").stdout
    assert {each for each in command if each.startswith("--")} <= set(known.split())


def test_a_start_loads_nothing_heavy() -> None:
    """No help, and no module of a command, imports an engine, a client or a table library."""
    heavy = {"pyspark", "great_expectations", "deltalake", "pyarrow", "kafka", "confluent_kafka", "pandas", "numpy"}
    said = printed(
        sys.executable,
        "-c",
        "import sys\n"
        "from pkgutil import resolve_name\n"
        "from acktrail.cli.main import CommandGroup, _run\n"
        "assert len([*map(resolve_name, CommandGroup.targets().values())]) > 20\n"
        "for words in ('', 'run validate', 'dashboard report'):\n"
        "    assert _run([*words.split(), '--help']) == 0\n"
        "print('\\n', *sys.modules)",
    )
    assert heavy.isdisjoint(said.splitlines()[-1].split())


def test_a_long_name_does_not_pad_every_row() -> None:
    """Kafka allows names of 249 characters: no line grows with them, and both ends of the name are there."""
    name = "orders-" + "x" * 235 + "-eu-west"
    text = table(("GROUP", "PARTITION", "NOTE"), [("g", 0, ""), (name, 1, "a note"), ("h", 2, "")])
    assert max(map(len, text.splitlines())) < 90
    (line,) = (line for line in text.splitlines() if "…" in line)
    assert line.startswith("orders-")
    assert "-eu-west" in line


def test_only_names_beyond_the_limit_are_cut() -> None:
    """A hash of 64 digits is whole, and the last column is whole at any length."""
    note = "why " * 100
    text = table(("HASH", "NOTE"), [("f" * 64, note)])
    assert "f" * 64 in text
    assert note.strip() in text
    assert len(shortened("f" * 65)) == 64


@given(numbers=st.lists(st.none() | st.integers(-10, 10**6)))
def test_a_sum_says_what_it_leaves_out(numbers: list[int | None]) -> None:
    """One text for every total: the whole number, at least what is known, or unknown; a lag below zero is not known."""
    lags = [number for number in numbers if number is not None and number >= 0]
    known, is_whole, found = sum(lags), len(lags) == len(numbers), KnownSum.of(numbers)
    assert found.total == (known if is_whole else None)
    assert str(found) == (f"{known:,}" if is_whole else f">={known:,}" if known else "unknown")


def test_options_of_the_storage_may_come_through_a_pipe() -> None:
    """They are read once, also where a command needs no tables."""
    reading, writing = os.pipe()
    os.write(writing, b"region=here\n")
    os.close(writing)
    found = OfTables("s3://bucket/tables", Path(f"/dev/fd/{reading}")).optional
    os.close(reading)
    assert getattr(found, "options", None) == {"region": "here"}


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_one_harmless_line(text: str) -> None:
    """Any name of a group: one line, no control character, and the same once parsed."""
    line = json_line({"group": text})

    assert json.loads(line) == {"group": text}
    assert len(line.splitlines()) == 1
    assert not any(ord(char) < 0x20 or 0x7F <= ord(char) <= 0x9F or char in "\u202e\u2066\u200b" for char in line)


def test_a_group_without_offsets_has_no_lag() -> None:
    """Not 0, which would be that it has read everything."""
    group = GroupDescription(error_code=0, error=None, group_id="g", coordinator_id=1, state="Empty")
    line = states_text([GroupAnswer(group_id="g", group=group)]).splitlines()[1]
    assert line.split()[-2:] == ["0", "-"]


@given(number=st.integers(1, 999_999), unit=st.sampled_from("smhd"))
def test_a_duration_is_that_long_ago(number: int, unit: str) -> None:
    """In every command alike, never before 1970."""
    text = f"{number}{unit}"
    before, length = now_ms(), duration_ms("--since", text)
    assert max(0, before - length) <= time_ms("--since", text) <= max(0, now_ms() - length)
    now = 10**13
    for kind in (StrategyKind.TO_DATETIME, StrategyKind.TO_HISTORY):
        assert choose_strategy({kind: text}, now_ms=now).moment_ms == max(0, now - length) == ago_ms(text, now)


@pytest.mark.parametrize("text", ["0h", "1w", "1.5h", "-1h", "h", "now-1h", "1h ago", "\u0661h"])
def test_what_is_no_duration_is_no_time(text: str) -> None:
    """One form alone: a whole number and a unit."""
    with pytest.raises(InputError, match="is not a time"):
        time_ms("--since", text)


BIN = Path(sys.executable).parent
OF_EXTRAS = {"kafka": ("kafka",), "tables": ("deltalake", "pyarrow")}
"""Packages that only the extra brings, by extra."""

BLOCK = """
import sys
class Blocked:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition('.')[0] in {names!r}:
            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)
sys.meta_path.insert(0, Blocked)
from acktrail.cli.main import _run
"""


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
    said = printed("bash", "-c", script)
    assert said.splitlines()[1:] == ["archived", "describe"]


MISSING: dict[str, list[str]] = {
    "kafka": [
        "groups list --bootstrap-server 127.0.0.1:1",
        "doctor --bootstrap-server 127.0.0.1:1 --tables tables",
    ],
    "tables": [
        "change list --tables tables",
        "dashboard report --out tables --tables tables",
        "run reconcile --tables tables",
    ],
}
"""Commands that need an extra."""


@pytest.mark.parametrize("missing", MISSING)
def test_a_missing_extra_is_named(tmp_path: Path, missing: str) -> None:
    """One line that says what to install, exit code 3."""
    commands = [command.split() for command in MISSING[missing]]
    code = f"{BLOCK.format(names=OF_EXTRAS[missing])}print(*map(_run, {commands}))"
    done = finished(sys.executable, "-c", code, cwd=tmp_path)
    assert done.stdout.split() == ["3"] * len(commands), done
    for line in done.stderr.splitlines():
        assert line.endswith(f"({install_hint(missing)})"), line


@pytest.mark.parametrize(("blocked", "extras"), [("kafka", "kafka"), ("kafka,deltalake", "kafka,tables")])
def test_what_is_missing_is_named_before_anything_is_asked(tmp_path: Path, blocked: str, extras: str) -> None:
    """Not first the address of a broker, then the package; and no extra that is there."""
    code = BLOCK.format(names=blocked.split(",")) + "sys.exit(_run(['run', 'export']))"
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("ACKTRAIL_")}
    done = finished(sys.executable, "-c", code, cwd=tmp_path, env=surroundings)
    assert (done.returncode, install_hint(extras) in done.stderr) == (3, True), done


def test_a_missing_module_of_acktrail_is_a_defect(tmp_path: Path) -> None:
    """No extra would bring it."""
    code = BLOCK.format(names=("acktrail_dashboard",)) + "sys.exit(_run(['dashboard', 'report', '--tables', '.']))"
    done = finished(sys.executable, "-c", code, cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert (done.returncode, "defect" in done.stderr) == (1, True)


def test_pandas_is_imported_for_whoever_wants_it_alone() -> None:
    """Everything an export needs is imported and pyarrow is used, and pandas is not there; an import afterwards works,
    and so does pyarrow's way to pandas."""
    said = printed(
        sys.executable,
        "-c",
        "import sys\n"
        "from acktrail.format.columns.arrow_without_pandas import forgo_pandas\n"
        "forgo_pandas()\n"
        "import acktrail_connect.sources.state_source, acktrail_connect.sources.observation\n"
        "import acktrail_connect.sinks.delta_sink\n"
        "import pyarrow as pa\n"
        "print(pa.array([{'a': 1}]).to_pylist(), pa.scalar('x'), 'pandas' in sys.modules)\n"
        "print(pa.table({'a': [1, 2]}).to_pandas().a.sum())\n"
        "import pandas\n"
        "print(pandas.DataFrame({'b': [3]}).b.sum())",
    )
    assert said.splitlines() == ["[{'a': 1}] x False", "3", "3"]


def test_tables_are_read_without_pandas(tmp_path: Path) -> None:
    """It is forgone before the first import of a reader."""
    codes, modules = loaded(f"record archived g --tables {tmp_path}", f"dashboard report --tables {tmp_path}")
    assert set(codes) <= {2, 3}
    assert modules & {"pyarrow", "pandas"} == {"pyarrow"}
