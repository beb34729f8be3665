"""The picture of keys: a line for each join in ``tables.toml``, a row for each table, a dot where they meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from xml.sax.saxutils import escape

_LEFT: Final = 210
_LANE: Final = 96
_TOP: Final = 64
_ROW: Final = 26
_STYLE: Final = (
    "text{font:13px sans-serif;fill:#1d2429}.join{text-anchor:middle;font-weight:bold}.part{font-weight:bold;"
    "fill:#4b5660}.name{text-anchor:end}.internal{fill:#6b7780;font-style:italic}.page{fill:#fff}.band{fill:#f3f6f8}"
    ".lane{stroke-width:2}.dot{stroke-width:2.5}.other{font-size:11px;fill:#4b5660}"
)
_COLOURS: Final = ("#5b6770", "#8a5a9e", "#b5552a", "#2f7d4f", "#2a6fb5", "#a3333d", "#8a6d1f")


def picture(file: Mapping[str, Any]) -> str:
    """Return the drawing as SVG text, out of the parsed file of tables."""
    joins: Mapping[str, Sequence[Sequence[str]]] = file["joins"]
    rows = [("tables", None), *file["tables"].items(), ("views", None), *file["views"].items()]
    width, height = _LEFT + _LANE * len(joins) + 30, _TOP + _ROW * len(rows) + 16
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        "<title>Tables and views by the columns that join them</title>",
        f"<style>{_STYLE}</style>",
        '<rect class="page" width="100%" height="100%"/>',
        *(_band(number, width) for number in range(0, len(rows), 2)),
        *(_lane(number, name, height) for number, name in enumerate(joins)),
    ]
    for number, (name, table) in enumerate(rows):
        lines += (
            [_name(number, name, table)]
            if table is None
            else [_name(number, name, table), *_dots(number, table, joins)]
        )
    return "\n".join([*lines, "</svg>", ""])


def _y(row: int) -> int:
    return _TOP + _ROW * row + _ROW // 2


def _x(lane: int) -> int:
    return _LEFT + _LANE * lane + _LANE // 2


def _band(row: int, width: int) -> str:
    return f'<rect class="band" x="0" y="{_y(row) - _ROW // 2}" width="{width}" height="{_ROW}"/>'


def _lane(number: int, name: str, height: int) -> str:
    colour, x = _COLOURS[number % len(_COLOURS)], _x(number)
    return (
        f'<text class="join" x="{x}" y="36" style="fill:{colour}">{escape(name.replace("_", " "))}</text>'
        f'<line class="lane" x1="{x}" y1="48" x2="{x}" y2="{height - 12}" stroke="{colour}" stroke-opacity="0.35"/>'
    )


def _name(row: int, name: str, table: Mapping[str, Any] | None) -> str:
    kind = "part" if table is None else "internal" if table["stability"] == "internal" else ""
    return f'<text class="name {kind}" x="{_LEFT - 14}" y="{_y(row) + 5}">{escape(name)}</text>'


def _dots(row: int, table: Mapping[str, Any], joins: Mapping[str, Sequence[Sequence[str]]]) -> Iterator[str]:
    """A dot for each join that the table has columns for, full where they are in its key; beside it names that differ
    from the first way to join."""
    columns = {column["name"] for column in table["columns"]}
    for lane, ways in enumerate(joins.values()):
        way = next((own for own in ways if columns.issuperset(own)), None)
        if way is None:
            continue
        colour = _COLOURS[lane % len(_COLOURS)]
        fill = colour if {*way} <= {*table["key"]} else "#fff"
        yield f'<circle class="dot" cx="{_x(lane)}" cy="{_y(row)}" r="6" stroke="{colour}" fill="{fill}"/>'
