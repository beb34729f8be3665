"""What goes on, on stderr: one line a step with the seconds since the start; a live line below on a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["Narration"]


class Narration:
    """`say` writes a line; `count` moves the live bar (a line for each quarter where no terminal is)."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._quarter: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_bar()

    def say(self, text: str) -> None:
        """A step began or ended."""
        self._end_bar()
        sys.stderr.write(f"{time.monotonic() - self._begun:6.1f} s  {text}\n")
        sys.stderr.flush()

    def count(self, doing: str, done: int, steps: int) -> None:
        """`done` of `steps` are done."""
        if sys.stderr.isatty():
            self._show_bar(doing, done, steps)
            return
        quarter = 4 * done // max(steps, 1)
        if quarter > self._quarter.get(doing, 0):
            self._quarter[doing] = quarter
            self.say(f"{doing}: {100 * done // steps} %")

    def _show_bar(self, doing: str, done: int, steps: int) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(doing, total=steps)
            self._bar.start()
        if self._task is not None:
            self._bar.update(self._task, description=doing, completed=done, total=steps)

    def _end_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
