"""Tables for people and JSON lines for programs stay readable with any names in a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from drivers.command_line import run
from hypothesis import given
from hypothesis import strategies as st

from acktrail.cli.common_options import json_line
from acktrail.cli.group_answers import GroupAnswer, states_text
from acktrail.kafka.descriptions import GroupDescription
from acktrail.plain_tables import KnownSum, shortened, table


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


def test_wide_characters_take_two_columns() -> None:
    """Names in East Asian scripts leave the columns after them aligned on a terminal."""
    lines = table(("GROUP", "PARTITION", "NOTE"), [("\N{CJK UNIFIED IDEOGRAPH-754C}" * 3, 7, "x"), ("plain", 12, "y")])
    assert lines.splitlines()[1:] == ["\N{CJK UNIFIED IDEOGRAPH-754C}" * 3 + "          7  x", "plain          12  y"]


def test_report_takes_the_options_of_the_storage(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """As every other command that reads tables: a file of options that is not there is named."""
    options = tmp_path / "options.properties"
    line = run(capsys, "dashboard", "report", "--tables", "s3://bucket/tables", "--tables-options", options).complaint(
        3
    )
    assert str(options) in line


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_one_harmless_line(text: str) -> None:
    """Any name of a group: one line, no control character, and the same once parsed."""
    line = json_line({"group": text})

    assert json.loads(line) == {"group": text}
    assert len(line.splitlines()) == 1
    assert not any(ord(char) < 0x20 or 0x7F <= ord(char) <= 0x9F or char in "\u202e\u2066\u200b" for char in line)


def test_text_stays_readable() -> None:
    """Letters of any language are printed as they are."""
    assert json_line(["böse gruppe 群"]) == '["böse gruppe 群"]'


def test_a_group_without_offsets_has_no_lag() -> None:
    """Not 0, which would be that it has read everything."""
    group = GroupDescription(error_code=0, error=None, group_id="g", coordinator_id=1, state="Empty")
    line = states_text([GroupAnswer(group_id="g", group=group)]).splitlines()[1]
    assert line.split()[-2:] == ["0", "-"]
