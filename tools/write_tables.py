"""Write the pages of tables: ``tools/write_tables.py`` makes docs/reference/tables.md of ``tables.toml`` beside
`acktrail.format.columns.schemas`, and ``tables.md`` of each branch that has a ``tables.toml``.

The same files always give the same pages. `faults` checks what the pages need and the schemas do not.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCES: Final = {
    ROOT / "docs/reference/tables.md": ROOT / "acktrail/format/columns/schemas/tables.toml",
    **{file.with_suffix(".md"): file for file in sorted(ROOT.glob("extras/*/tables.toml"))},
}
"""The file that each page is made of."""
MOST_TABLES: Final = 25
UNITS: Final = frozenset({"ms", "offset", "records", "bytes"})
_NESTED: Final = re.compile(r"(?:list of |map of string to )*(\w+)")

Rows = Sequence[Mapping[str, str]]


def pages() -> dict[Path, str]:
    """Each page with its text."""
    return {page: "\n".join(_lines(_read(source), source)) for page, source in SOURCES.items()}


def _read(source: Path) -> dict[str, Any]:
    return tomllib.loads(source.read_text("utf-8"))


def _lines(file: Mapping[str, Any], source: Path) -> Iterator[str]:
    yield from (f"# {file['title']}", "", file["introduction"].strip())
    yield f"This page is written by `tools/write_tables.py` from `{source.relative_to(ROOT)}`."
    structs = {name: own["fields"] for name, own in file.get("structs", {}).items()}
    for name, table in file["tables"].items():
        yield from ("", f"## {name}", "", table["question"], "", table["row"].strip(), "")
        yield from ("| column | type | meaning |", "|---|---|---|", *_rows(table["columns"], structs))
        if "notes" in table:
            yield from ("", table["notes"].strip())
    yield ""


def _rows(columns: Rows, structs: Mapping[str, Rows], above: str = "") -> Iterator[str]:
    """A row for each column, and below it one for each field of its struct."""
    for column in columns:
        unit = f", {column['unit']}" if "unit" in column else ""
        yield f"| `{above}{column['name']}` | {column['type']}{unit} | {column['meaning']} |"
        yield from _rows(structs.get(_struct(column), ()), structs, f"{above}{column['name']}.")


def _struct(column: Mapping[str, str]) -> str:
    found = _NESTED.fullmatch(column["type"])
    return found[1] if found else ""


def faults() -> Iterator[str]:
    """What is wrong in the files, by table and column: a table without a question, a column or field that occurs twice,
    an unknown unit, numbers that look like times or offsets and have no unit, a meaning that is none."""
    for source in SOURCES.values():
        file = _read(source)
        if len(file["tables"]) > MOST_TABLES:
            yield f"{source.name}: {len(file['tables'])} tables are too many"
        for name, table in file["tables"].items():
            if not re.fullmatch(r"[A-Z][^?.]*\?", table["question"]):
                yield f"{source.name}: table {name} has no question"
            yield from (f"{source.name}: table {name}, {fault}" for fault in _faults_of(table["columns"]))
        for name, struct in file.get("structs", {}).items():
            yield from (f"{source.name}: struct {name}, {fault}" for fault in _faults_of(struct["fields"]))


def _faults_of(columns: Rows) -> Iterator[str]:
    names = [column["name"] for column in columns]
    for column in columns:
        name, unit = column["name"], column.get("unit")
        expected = {"_ms": "ms", "_offset": "offset", "_bytes": "bytes", "_records": "records"}
        wanted = next((own for end, own in expected.items() if f"_{name}".endswith(end)), unit)
        is_whole = column["type"] in ("int32", "int64")
        if names.count(name) > 1:
            yield f"column {name} occurs twice"
        if unit is not None and unit not in UNITS:
            yield f"column {name}: no unit {unit!r}"
        if is_whole and unit != wanted:
            yield f"column {name}: its unit is {wanted}"
        if not column["meaning"] or "|" in column["meaning"] or column["meaning"].endswith("."):
            yield f"column {name}: its meaning is no part of a row"


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, "utf-8")
