"""Progress on stderr: one line that is rewritten on a terminal and gone before anything else is printed; elsewhere a
plain line every ten seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Protocol, Self

import typer

from acktrail.config import environment
from acktrail.connect.activity import listening

__all__ = ["Counter", "LiveLine", "file_counter", "showing_activity"]

_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
_LIVE_S: Final = 0.2
_PLAIN_S: Final = 10.0
_SHOWN_EVERY: Final = 100_000
_CLEAR: Final = "\r\033[K"


class LiveLine:
    """The line. Within a ``with`` block; what is printed after the block, or when it fails, begins on a clear line.

    `is_urgent` lines are shown at once on a terminal, others at most five times a second.
    """

    def __init__(self) -> None:
        self._is_live = sys.stderr.isatty()
        self._shown_at = time.monotonic()
        self._is_shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def show(self, text: str, *, is_urgent: bool = False) -> None:
        """Let `text` be the line, if it is time for one."""
        now = time.monotonic()
        wait = (0.0 if is_urgent else _LIVE_S) if self._is_live else _PLAIN_S
        if now - self._shown_at < wait:
            return
        self._shown_at = now
        if self._is_live:
            # The cursor waits at the beginning: a line that something else prints meanwhile does not start behind it.
            typer.echo(f"{_CLEAR}{text}\r", nl=False, err=True)
            self._is_shown = True
        else:
            typer.echo(text, err=True)

    def clear(self) -> None:
        """Leave the terminal's line empty."""
        if self._is_shown:
            typer.echo(_CLEAR, nl=False, err=True)
            self._is_shown = False


@contextmanager
def showing_activity() -> Iterator[None]:
    """Show what the calls within the block say that they do (``acktrail.connect.activity``).

    Nothing under ``spark-submit``: it writes the stderr of a Python program to stdout, into the results.
    """
    if _SUBMITTED in environment():
        yield
        return
    with LiveLine() as line, listening(_urgent(line)):
        yield


def _urgent(line: LiveLine) -> Callable[[str], None]:
    return lambda text: line.show(text, is_urgent=True)


class Counter(Protocol):
    def __call__(self, *, readable: bool, records: int = 1) -> None: ...


@contextmanager
def file_counter(verb: str, *, prints_meanwhile: bool = False) -> Iterator[Counter]:
    """Count records; say at the end how many were read, `verb`, and could not be read.

    `prints_meanwhile`: results go to stdout between the counts, so that no line is live where that is a terminal.
    """
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
