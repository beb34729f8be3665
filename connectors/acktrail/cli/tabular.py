"""Plain tables for people: columns as wide as their content, hostile names made harmless."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["printable", "table"]


def printable(text: str) -> str:
    """`text` with every control or otherwise unprintable character escaped, so that it cannot steer a terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Left-aligned text, numbers right-aligned; None is ``-``."""
    cells = [[_cell(value) for value in row] for row in rows]
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
