"""Plain tables for people: columns as wide as their content, long names cut, hostile names made harmless."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

__all__ = ["printable", "shortened", "table"]

_LONGEST: Final = 64
"""A SHA-256 in hex is shown in full."""
_HEAD: Final = 40


def printable(text: str) -> str:
    """`text` with every control or otherwise unprintable character escaped, so that it cannot steer a terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


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
