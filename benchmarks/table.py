"""The one table that the benchmarks fill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

_HEADINGS = ("what", "acktrail", "beside it", "ratio")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One comparison: what was measured, acktrail's figure, that of a peer or a bound, and how they compare."""

    what: str
    ours: str
    beside: str = ""
    ratio: str = ""


def pace(seconds: float) -> str:
    """CPU seconds that one record takes."""
    return f"{1e9 * seconds:,.0f} ns/record"


def lines(name: str, rows: Sequence[Row]) -> list[str]:
    """The table's part for the benchmark `name`."""
    return [_line(name if number == 0 else "", *astuple(row)) for number, row in enumerate(rows)]


def heading() -> list[str]:
    """What stands above all parts."""
    return [_line("benchmark", *_HEADINGS), _line(*("-" * width for width in _WIDTHS))]


_WIDTHS = (9, 47, 38, 54, 32)


def _line(*cells: str) -> str:
    return "| " + " | ".join(f"{cell:<{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)) + " |"
