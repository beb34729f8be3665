"""Text for people: names from a cluster made harmless, plain tables with long names cut, and progress on stderr: on a
terminal one line that is rewritten, gone before anything else is printed; plain lines elsewhere.

rich's ``Live`` was tried: what another process writes meanwhile, such as Spark's Java, begins behind its line, for the
cursor waits there.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Self
from unicodedata import combining, east_asian_width

_LONGEST: Final = 64
"""A SHA-256 in hex is shown in full."""
_HEAD: Final = 40
_LIVE_S: Final = 0.2
_PLAIN_S: Final = 10.0
_CLEAR: Final = "\r\033[K"
_BAR_WIDTH: Final = 30


def known_lag(number: int | None) -> int | None:
    """A lag, where it is one. Kafka computes one below zero where a state reaches beyond its log's end, by a reset or
    because the log was truncated: how many records are unfinished there is not known.

    >>> known_lag(7), known_lag(-10)
    (7, None)
    """
    return None if number is None or number < 0 else number


@dataclass(frozen=True, slots=True)
class KnownSum:
    """A number of records over several share partitions: the sum of those that are `known`, and of how many share
    partitions it is `unknown`. The one way to add up lags, and unfinished records."""

    known: int
    unknown: int

    @classmethod
    def of(cls, numbers: Iterable[int | None]) -> KnownSum:
        """The sum of `numbers`, each as `known_lag` has it."""
        every = [*map(known_lag, numbers)]
        return cls(known=sum(each for each in every if each is not None), unknown=every.count(None))

    @property
    def total(self) -> int | None:
        """The whole sum; None while one share partition's number is not known."""
        return None if self.unknown else self.known

    def __str__(self) -> str:
        """For people: ``>=7`` leaves out what is not known; of nothing more than that, ``unknown``."""
        if not self.unknown:
            return f"{self.known:,}"
        return f">={self.known:,}" if self.known else "unknown"


def printable(text: str) -> str:
    """`text` with every character that is not printable as an escape (``\\n``, ``\\u202e``): one line that moves no
    cursor and turns no reading direction. Group ids and topic names are any text that a client sent."""
    return "".join(part for part, _ in printable_parts(text))


def printable_parts(text: str) -> Iterator[tuple[str, bool]]:
    """Runs of `printable` text in order, each with whether it is an escape."""
    for is_printable, characters in groupby(text, str.isprintable):
        run = "".join(characters)
        yield (run, False) if is_printable else (run.encode("unicode_escape").decode("ascii"), True)


def few(names: Sequence[str], most: int = 3, between: str = ", ") -> str:
    """The first names, and the number of the others."""
    shown = between.join(map(printable, names[:most]))
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def shortened(text: str) -> str:
    """`text` without its middle where it is longer than 64 characters: one long name must not pad every row."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_HEAD]}…{text[_HEAD + 1 - _LONGEST :]}"


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Collection[int] | None = None) -> str:
    """Left-aligned text, numbers right-aligned; None is ``-``. Only the last column has its text in full. `numbers` are
    the indices of the columns to align right; None: those with nothing but whole numbers."""
    printed = [["-" if value is None else printable(str(value)) for value in row] for row in rows]
    cells = [[*map(shortened, row[:-1]), *row[-1:]] for row in printed]
    if numbers is None:
        numbers = {
            i
            for i in range(len(headers))
            if cells and all(row[i] == "-" or row[i].lstrip("-").isdigit() for row in cells)
        }
    widths = [max(_width(row[i]) for row in [headers, *cells]) for i in range(len(headers))]
    return "\n".join(_line(row, widths, numbers) for row in [headers, *cells])


def _width(text: str) -> int:
    """Columns of a terminal: East Asian wide characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(c) in "WF" else not combining(c) for c in text)


def _line(row: Sequence[str], widths: Sequence[int], numbers: Collection[int]) -> str:
    padded = []
    for i, (cell, width) in enumerate(zip(row, widths, strict=True)):
        space = " " * (width - _width(cell))
        padded.append(space + cell if i in numbers else cell + space)
    return "  ".join(padded).rstrip()


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
