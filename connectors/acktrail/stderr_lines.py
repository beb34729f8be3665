"""Progress on stderr: on a terminal one line that is rewritten, gone before anything else is printed; plain lines
elsewhere.

rich's ``Live`` was tried: what another process writes meanwhile, such as Spark's Java, begins behind its line, for the
cursor waits there.
"""

from __future__ import annotations

import sys
import time
from typing import Final, Self

_LIVE_S: Final = 0.2
_PLAIN_S: Final = 10.0
_CLEAR: Final = "\r\033[K"
_BAR_WIDTH: Final = 30


class LiveLine:
    """The line. Within a ``with`` block; what is printed after the block, or when it fails, begins on a clear line.

    `is_urgent` lines are shown at once on a terminal, others at most five times a second; elsewhere a plain line
    appears every ten seconds.
    """

    def __init__(self) -> None:
        self.is_live: Final = sys.stderr.isatty()
        self._shown_at = time.monotonic()
        self._is_shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, text: str, *, is_urgent: bool = False) -> None:
        """Replace the line by `text`, if it is time for one."""
        now = time.monotonic()
        wait = (0.0 if is_urgent else _LIVE_S) if self.is_live else _PLAIN_S
        if now - self._shown_at < wait:
            return
        self._shown_at = now
        # The cursor waits at the beginning: a line that something else prints meanwhile does not start behind it.
        _write(f"{_CLEAR}{text}\r" if self.is_live else f"{text}\n")
        self._is_shown = self.is_live

    def say(self, text: str) -> None:
        """Print a line that stays, above the live one."""
        self.clear()
        _write(f"{text}\n")

    def clear(self) -> None:
        """Leave the terminal's line empty."""
        if self._is_shown:
            _write(_CLEAR)
            self._is_shown = False


class StepLines(LiveLine):
    """The steps of a long command: `say` prints a line with the seconds since the start, `count` shows a live bar, and
    a line for each quarter where no terminal is. Within a ``with`` block."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = time.monotonic()
        self._quarters: dict[str, int] = {}

    def say(self, text: str) -> None:
        """A step began or ended."""
        super().say(f"{time.monotonic() - self._begun:6.1f} s  {text}")

    def count(self, doing: str, done: int, steps: int) -> None:
        """`done` of `steps` are done."""
        share = min(done / max(steps, 1), 1.0)
        if self.is_live:
            bar = "#" * int(share * _BAR_WIDTH)
            self.show(f"{doing} [{bar:<{_BAR_WIDTH}}] {share:4.0%}")
        elif int(4 * share) > self._quarters.get(doing, 0):
            self._quarters[doing] = int(4 * share)
            self.say(f"{doing}: {100 * done // steps} %")


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
