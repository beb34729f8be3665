"""Progress on a terminal: seen while it lasts, gone before results are printed. A command that is asked to end does
end, also where a library swallows the first exception."""

from __future__ import annotations

import io
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from jobs.world import World, batch, key_of, snapshot, update

from acktrail import text_tables
from acktrail.activity import doing
from acktrail.cli import progress
from acktrail.cli.main import _run
from acktrail.cli.progress import interruptible
from acktrail_connect.commands.export import _shown
from acktrail_connect.task_execution import Progress


class Terminal(io.StringIO):
    """What stdout and stderr write to where both are one terminal: `screen` is what a person sees of it."""

    def isatty(self) -> bool:
        return True

    @property
    def screen(self) -> list[str]:
        lines, column = [""], 0
        text = self.getvalue()
        while text:
            if text.startswith("\033[K"):
                lines[-1], text = lines[-1][:column], text[3:]
                continue
            char, text = text[0], text[1:]
            if char == "\n":
                lines, column = [*lines, ""], 0
            elif char == "\r":
                column = 0
            else:
                lines[-1] = lines[-1][:column].ljust(column) + char + lines[-1][column + 1 :]
                column += 1
        return lines


@contextmanager
def at(terminal: Terminal) -> Iterator[None]:
    """Both streams of this process; pytest sets its own between a fixture and its test."""
    with redirect_stdout(terminal), redirect_stderr(terminal):
        yield


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


@pytest.fixture
def world(tmp_path: Path) -> World:
    found = World(tmp_path / "tables", state_partitions=1)
    found.write(snapshot(key_of("g"), 0, snapshot_epoch=0), update(key_of("g"), 0, 1, (batch(0, 0),)))
    found.observe("r1")
    return found


def test_results_do_not_run_into_it(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long line of an export, then a shorter result: the result alone is seen; so is an error of the block."""
    monkeypatch.setattr(text_tables, "_LIVE_S", 0.0)

    def fail() -> None:
        with at(terminal), text_tables.LiveLine() as line:
            _shown(line, Progress(records_read=1_234, records_committed=1_000, partitions=50, partitions_finished=7))
            assert terminal.screen[-1].startswith("1,234 records read")
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    terminal.write("run r1" + "\n")
    assert terminal.screen == ["run r1", ""]


def test_what_something_else_prints_meanwhile_begins_its_line(terminal: Terminal) -> None:
    """Spark's Java warns on the same terminal, whenever it likes."""
    with at(terminal), text_tables.LiveLine() as line:
        line.show("replaying", is_urgent=True)
        terminal.write("WARNING: Using incubator modules\n")
    terminal.write("done" + "\n")
    assert terminal.screen == ["WARNING: Using incubator modules", "done", ""]


@pytest.mark.parametrize("verb", ["decoded", "replayed"])
def test_a_count_of_records(terminal: Terminal, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results between the counts have no live line beside them on the same terminal; the sum stands alone."""
    monkeypatch.setattr(progress, "_SHOWN_EVERY", 1)
    with at(terminal), progress.record_counter(verb, prints_meanwhile=verb == "decoded") as count:
        count(readable=True)
        assert (terminal.screen != [""]) is (verb == "replayed")
        if verb == "decoded":
            terminal.write("{}\n")
    expected = f"1 read, 1 {verb}, 0 not readable"
    assert terminal.screen == (["{}", expected, ""] if verb == "decoded" else [expected, ""])


def test_a_bar_is_gone_before_the_next_step_is_printed(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the bar is one line that is rewritten; a step begins on a clear line."""
    monkeypatch.setattr(text_tables, "_LIVE_S", 0.0)
    with at(terminal), text_tables.StepLines() as lines:
        lines.count("fetching", 1, 4)
        lines.count("fetching", 3, 4)
        assert terminal.screen[-1].startswith("fetching [######################        ]  75%")
        lines.say("fetched")
    assert [line.split("s  ")[-1] for line in terminal.screen] == ["fetched", ""]


def test_quarters_are_lines_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Each quarter of each step is printed once, with the seconds since the start."""
    with text_tables.StepLines() as lines:
        for done in range(11):
            lines.count("fetching", done, 10)
    shown = [line.split(" s  ")[1] for line in capsys.readouterr().err.splitlines()]
    assert shown == ["fetching: 30 %", "fetching: 50 %", "fetching: 80 %", "fetching: 100 %"]


def test_reconcile_validate_and_verify_say_what_they_do(world: World, terminal: Terminal) -> None:
    """Each shows its steps, and its result begins on a clear line."""
    for command, step, result in (
        ("run reconcile", "replaying about 2 records", "run r1: 1 share partitions"),
        ("run validate", "validating reconciliations", "SUITE"),
        ("tables verify", "replaying about 2 records again", "1 share partitions"),
    ):
        terminal.truncate(0)
        terminal.seek(0)
        with at(terminal):
            assert _run([*command.split(), "--tables", world.config.uri]) == 0, terminal.getvalue()
        assert step in terminal.getvalue()
        assert terminal.screen[0].startswith(result), terminal.screen


@pytest.mark.parametrize(("gateway", "is_shown"), [(None, True), ("1", False)])
def test_no_progress_runs_into_results(
    gateway: str | None, is_shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Shown elsewhere after a while; never under spark-submit."""
    monkeypatch.setattr(text_tables, "_PLAIN_S", 0.0)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    if gateway is not None:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", gateway)
    with progress.showing_activity():
        doing("replaying")
        doing("writing")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert ("writing" in shown.err) is is_shown


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_swallowed_interruption_comes_again(number: signal.Signals) -> None:
    """Twice lost it is raised a third time; after the block every handler is as it was and no alarm is set."""
    before = {each: signal.getsignal(each) for each in (number, signal.SIGALRM)}
    signal.signal(number, signal.SIG_DFL)
    lost = 0
    with pytest.raises(KeyboardInterrupt), interruptible():  # noqa: PT012  # it ends by itself
        while lost < 2:
            try:
                if not lost:
                    os.kill(os.getpid(), number)
                time.sleep(30)
            except KeyboardInterrupt:
                lost += 1
        time.sleep(30)
    assert lost == 2
    assert signal.getsignal(number) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGALRM) is before[signal.SIGALRM]
    signal.signal(number, before[number])


def test_an_ignored_signal_stays_ignored() -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interruptible():
        os.kill(os.getpid(), signal.SIGHUP)
    signal.signal(signal.SIGHUP, before)
