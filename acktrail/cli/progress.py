"""What commands show on stderr while they work: what a long call does, and how many records were read. Signals that
ask a command to end are one exception, so that the command can report how far it came."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import typer

from acktrail.activity import listening
from acktrail.config import environment
from acktrail.text_tables import LiveLine

_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
_SHOWN_EVERY: Final = 100_000

RecordCounter = Callable[..., None]
"""Takes ``readable=`` and, of several at once, ``records=``."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN_S: Final = 0.5


@contextmanager
def showing_activity() -> Iterator[None]:
    """Show what the calls within the block do now (``acktrail.activity``). Nothing under ``spark-submit``,
    which writes the stderr of a Python program to stdout, into the results."""
    if _SUBMITTED in environment():
        yield
        return
    with LiveLine() as line, listening(lambda text: line.show(text, is_urgent=True), line.say):
        yield


@contextmanager
def table_progress() -> Iterator[Callable[[str, int], None]]:
    """Gives a function that shows how many rows of a table were read."""
    with LiveLine() as line:
        yield lambda table, rows: line.show(f"{table}: {rows:,} rows read")


@contextmanager
def record_counter(verb: str, *, prints_meanwhile: bool = False) -> Iterator[RecordCounter]:
    """Count records; print at the end how many were read, `verb`, and not readable. `prints_meanwhile`: results go to
    stdout between the counts, so that no line is live where that is a terminal."""
    read = readable_records = 0
    is_shown = sys.stderr.isatty() and not (prints_meanwhile and sys.stdout.isatty())
    with LiveLine() as line:

        def count(*, readable: bool, records: int = 1) -> None:
            nonlocal read, readable_records
            read += records
            readable_records += readable * records
            if is_shown and read % _SHOWN_EVERY == 0:
                line.show(f"{read:,} records read", is_urgent=True)

        yield count
    typer.echo(f"{read:,} read, {readable_records:,} {verb}, {read - readable_records:,} not readable", err=True)


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt inside the block; one that was ignored before stays so. For
    the main thread only. It is raised again twice a second until the block is left: a library may catch an exception
    that it does not expect and continue (kafka-python's event loop does)."""
    alarms: list[Any] = []  # the handler of SIGALRM before, once asked
    is_over = False

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if is_over:
            return
        if not alarms:
            alarms.append(signal.signal(signal.SIGALRM, interrupt))
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S, _AGAIN_S)
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    taken = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in taken:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        is_over = True
        if alarms:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, alarms[0])
        for number in taken:
            signal.signal(number, before[number])
