"""What commands show on stderr while they work: what a long call does, and how many records were read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import typer

from acktrail.config import environment
from acktrail.connect.activity import listening
from acktrail.stderr_lines import LiveLine

_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
_SHOWN_EVERY: Final = 100_000

RecordCounter = Callable[..., None]
"""Takes ``readable=`` and, of several at once, ``records=``."""


@contextmanager
def showing_activity() -> Iterator[None]:
    """Show what the calls within the block do now (``acktrail.connect.activity``). Nothing under ``spark-submit``,
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
