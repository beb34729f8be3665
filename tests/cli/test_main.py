"""The command line as a person and a program meet it: usage, tables and JSON lines with any names in a cluster, times
that may be relative."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from drivers.command_line import run
from hypothesis import given
from hypothesis import strategies as st
from jobs import world

from acktrail.change.request.reset_request import StrategyKind, choose_strategy
from acktrail.cli import main as command_line
from acktrail.cli.common_options import OfTables, json_line
from acktrail.cli.group_answers import GroupAnswer, states_text
from acktrail.errors import InputError
from acktrail.kafka.descriptions import GroupDescription
from acktrail.model.records import ShareSnapshot
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail.plain_tables import KnownSum, shortened, table
from acktrail.times import ago_ms, duration_ms, now_ms, time_ms

ACKTRAIL = Path(sys.executable).with_name("acktrail")
GOLDEN = Path(__file__).parents[1] / "support/golden/state_topic/4.2.1.jsonl.gz"
TOPIC_ID = TopicId("AQIDBAUGBwgJCgsMDQ4PEA")


def snapshot(group: str, start: int) -> ShareSnapshot:
    key = SharePartition(group_id=GroupId(group), topic_id=TOPIC_ID, partition=7)
    epochs = {"snapshot_epoch": 3, "state_epoch": 4, "leader_epoch": 5}
    return world.snapshot(key, start, delivery_complete_count=None, **epochs)


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Every command that is registered can be loaded and is listed with a line of help. None prints a script of its own
    for completion: it would complete nothing."""
    for path in command_line.CommandGroup.targets():
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


def test_a_start_loads_nothing_heavy() -> None:
    """No help, and no module of a command, imports an engine, a client or a table library."""
    code = (
        "import sys\n"
        "from acktrail.branches import load\n"
        "from acktrail.cli.main import CommandGroup, _run\n"
        "assert len([*map(load, CommandGroup.targets().values())]) > 20\n"
        "for words in ('', 'run validate', 'dashboard report'):\n"
        "    assert _run([*words.split(), '--help']) == 0\n"
        "heavy = {'pyspark', 'great_expectations', 'deltalake', 'pyarrow', 'kafka', 'confluent_kafka', 'pandas'}\n"
        "heavy |= {'numpy'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)

    assert done.stderr.strip() == "[]"


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
    with pytest.raises(InputError, match="is no time"):
        time_ms("--since", text)
