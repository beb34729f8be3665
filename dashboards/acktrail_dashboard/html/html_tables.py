"""Tables of the report: real table elements, numbers aligned, long ones cut with the rest counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from acktrail_dashboard.html.markup import Child, Markup, element, joined
from acktrail_dashboard.verdicts import canonical, severity_tone, verdict_tone
from acktrail_dashboard.wording import counted, number

RowT = TypeVar("RowT")
Cells = tuple[Child, ...]

ROWS_SHOWN: Final = 200
"""Rows of a table with one body; the others are counted."""

_MARKS: Final = {
    "ok": "\N{CHECK MARK}",
    "warning": "\N{BLACK UP-POINTING TRIANGLE}",
    "critical": "\N{BLACK SQUARE}",
    "unknown": "?",
    "info": "\N{BULLET}",
}


@dataclass(frozen=True, slots=True)
class Column:
    """`kind` is ``text``, ``number``, ``picture`` or ``note``: a class of the style sheet for the cells."""

    title: str
    kind: str = "text"


def text_columns(*titles: str) -> tuple[Column, ...]:
    return tuple(map(Column, titles))


def section(anchor: str, title: str, *content: Child, note: Child = None) -> Markup:
    """A part of the page with a heading of its own."""
    head = element(
        "header", element("h2", title, id=f"{anchor}-title"), element("p", note, class_="note") if note else None
    )
    return element("section", head, *content, id=anchor, class_="card", aria_labelledby=f"{anchor}-title")


def data_table(
    caption: str,
    columns: tuple[Column, ...],
    rows: Sequence[RowT],
    cells: Callable[[RowT], Cells],
    *,
    nothing: str = "",
) -> Markup:
    """A table with one body, the first `ROWS_SHOWN` of `rows`; the text `nothing` in place of an empty one."""
    if not rows:
        return element("p", nothing, class_="nothing")
    lines = [body_row(columns, cells(row)) for row in rows[:ROWS_SHOWN]]
    body = element("tbody", *lines, role="rowgroup")
    return joined((table(caption, columns, (body,)), left_off_line(len(rows) - len(lines), "row")))


def table(caption: str, columns: tuple[Column, ...], bodies: Iterable[Markup]) -> Markup:
    """A table in a frame of its own that can be scrolled by keyboard where the page is too narrow."""
    inner = element("table", element("caption", caption), _head_row(columns), *bodies, role="table", class_="stacks")
    return element("div", inner, class_="frame", tabindex=0, role="region", aria_label=caption)


def _head_row(columns: tuple[Column, ...]) -> Markup:
    cells = (element("th", c.title, scope="col", role="columnheader", class_=f"c-{c.kind}") for c in columns)
    return element("thead", element("tr", *cells, role="row"), role="rowgroup")


def body_row(columns: tuple[Column, ...], cells: Cells) -> Markup:
    """One row; its first cell is the row's header."""
    elements = (
        element(
            "td" if index else "th",
            element("div", cell, class_="v"),
            scope=None if index else "row",
            role="cell" if index else "rowheader",
            class_=f"c-{column.kind}",
            data_label=column.title,
        )
        for index, (column, cell) in enumerate(zip(columns, cells, strict=True))
    )
    return element("tr", *elements, role="row")


def left_off_line(left_off: int, noun: str) -> Markup | None:
    """How many rows are not shown; None for none."""
    return element("p", f"{counted(left_off, 'more ' + noun)} not shown", class_="more") if left_off else None


def badge(text: str, tone: str) -> Markup:
    """A word with a tone; the mark distinguishes the tones without colour."""
    mark = element("span", _MARKS[tone], class_="mark", aria_hidden="true")
    return element("span", mark, text, class_=f"badge {tone}")


def unknown(reason: str = "") -> Markup:
    """``unknown``, and why in small print."""
    return joined((element("span", "unknown", class_="unknown-value"), element("small", reason) if reason else None))


def value(known: int | None) -> Child:
    """A number, or ``unknown``."""
    return unknown() if known is None else number(known)


def verdict_badge(word: str) -> Markup:
    return badge(canonical(word).replace("_", " "), verdict_tone(word))


def severity_badge(word: str) -> Markup:
    return badge(canonical(word).replace("_", " "), severity_tone(word))
