"""Text for people: names from a cluster made harmless, and plain tables with long names cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

__all__ = ["printable", "printable_parts", "shortened", "table"]

_LONGEST: Final = 64
"""A SHA-256 in hex is shown in full."""
_HEAD: Final = 40


def printable(text: str) -> str:
    """`text` with every character that is not printable as an escape (``\\n``, ``\\u202e``): group ids and topic names
    are any text that a client sent.

    The result is one line that moves no cursor and turns no reading direction.
    """
    return "".join(part for part, _ in printable_parts(text))


def printable_parts(text: str) -> Iterator[tuple[str, bool]]:
    """Runs of `printable` text in order, each with whether it is an escape."""
    for is_printable, characters in groupby(text, str.isprintable):
        run = "".join(characters)
        yield (run, False) if is_printable else (run.encode("unicode_escape").decode("ascii"), True)


def shortened(text: str) -> str:
    """`text` without its middle where it is longer than 64 characters: one long name must not pad every row."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_HEAD]}…{text[_HEAD + 1 - _LONGEST :]}"


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Left-aligned text, numbers right-aligned; None is ``-``. Only the last column has its text in full."""
    last = len(headers) - 1
    cells = [[_cell(value) if i == last else shortened(_cell(value)) for i, value in enumerate(row)] for row in rows]
    widths = [max(len(row[i]) for row in [list(headers), *cells]) for i in range(len(headers))]
    numeric = [bool(cells) and all(_is_number(row[i]) for row in cells) for i in range(len(headers))]
    lines = [_line(headers, widths, numeric), *(_line(row, widths, numeric) for row in cells)]
    return "\n".join(lines)


def _cell(value: object) -> str:
    return "-" if value is None else printable(str(value))


def _is_number(text: str) -> bool:
    return text == "-" or text.lstrip("-").isdigit()


def _line(row: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = (
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(row, widths, numeric, strict=True)
    )
    return "  ".join(padded).rstrip()
