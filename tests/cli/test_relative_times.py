"""A time may be relative wherever a command takes one: a duration is that long ago."""

from __future__ import annotations

import inspect
import re

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from acktrail.change.request.reset_request import StrategyKind, choose_strategy
from acktrail.cli.main import app
from acktrail.errors import InputError
from acktrail.offline.replay_files import parse_log_point
from acktrail.times import ago_ms, duration_ms, now_ms, time_ms

TIMES = frozenset({"--since", "--until", "--at", "--to-datetime", "--to-history"})


def options(command: object, path: str) -> list[tuple[str, str, str]]:
    """Every option of a command and of those below it: path, name, help."""
    below = {}
    if hasattr(command, "list_commands"):
        context = typer.Context(command)  # type: ignore[arg-type]
        below = {name: command.get_command(context, name) for name in command.list_commands(context)}  # type: ignore[attr-defined]
    found = [(path, name, each.help or "") for each in command.params for name in each.opts]  # type: ignore[attr-defined]
    return [*found, *(row for name, each in below.items() for row in options(each, f"{path} {name}"))]


def test_every_option_that_takes_a_time_says_so() -> None:
    """Those with a name of a time, and no other has one that this test does not know."""
    found = [row for row in options(typer.main.get_command(app), "acktrail") if row[1] in TIMES]
    assert len(found) >= 8
    assert [row for row in found if not re.search(r"how long ago", inspect.cleandoc(row[2]))] == []


@given(number=st.integers(1, 999_999), unit=st.sampled_from("smhd"))
def test_a_duration_is_that_long_ago(number: int, unit: str) -> None:
    """In every command alike, never before 1970."""
    text = f"{number}{unit}"
    before, length = now_ms(), duration_ms("--since", text)
    found, point = time_ms("--since", text), parse_log_point(text)
    assert isinstance(point, int)
    for each in (found, point):
        assert max(0, before - length) <= each <= max(0, now_ms() - length)
    now = 10**13
    for kind in (StrategyKind.TO_DATETIME, StrategyKind.TO_HISTORY):
        assert choose_strategy({kind: text}, now_ms=now).moment_ms == max(0, now - length) == ago_ms(text, now)


@pytest.mark.parametrize("text", ["0h", "1w", "1.5h", "-1h", "h", "now-1h", "1h ago", "\u0661h"])
def test_what_is_no_duration_is_no_time(text: str) -> None:
    """One form alone: a whole number and a unit."""
    with pytest.raises(InputError, match="is no time"):
        time_ms("--since", text)
