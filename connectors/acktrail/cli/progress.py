"""Progress on stderr: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import typer

__all__ = ["Counter", "file_counter"]


class Counter(Protocol):
    def __call__(self, *, readable: bool, records: int = 1) -> None: ...


@contextmanager
def file_counter(verb: str) -> Iterator[Counter]:
    """Count records; say at the end how many were read, `verb`, and could not be read."""
    read = readable_records = 0

    def count(*, readable: bool, records: int = 1) -> None:
        nonlocal read, readable_records
        read += records
        readable_records += readable * records
        if read % 100_000 == 0 and sys.stderr.isatty():
            typer.echo(f"\r{read:,} records read", nl=False, err=True)

    yield count
    if sys.stderr.isatty() and read >= 100_000:
        typer.echo("\r", nl=False, err=True)
    typer.echo(f"{read:,} read, {readable_records:,} {verb}, {read - readable_records:,} not readable", err=True)
