"""Progress on standard error: a bar on a terminal, a line for each quarter elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

__all__ = ["progress", "say"]


def say(line: str) -> None:
    """One line on standard error."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


@contextlib.contextmanager
def progress(title: str, *, steps: int) -> Iterator[Callable[[int], None]]:
    """Gives a function to call with the steps done since the last call."""
    show = _bar if sys.stderr.isatty() else _lines
    with show(title, steps) as advance:
        yield advance


@contextlib.contextmanager
def _bar(title: str, steps: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=steps)
        yield lambda done: bar.advance(task, done)


@contextlib.contextmanager
def _lines(title: str, steps: int) -> Iterator[Callable[[int], None]]:
    done = 0

    def advance(more: int) -> None:
        nonlocal done
        before, done = done, min(done + more, steps)
        if 4 * done // steps > 4 * before // steps:
            say(f"{title}: {100 * done // steps} %")

    say(title)
    yield advance
