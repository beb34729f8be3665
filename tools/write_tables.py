"""Write the pages of tables: ``tools/write_tables.py`` makes docs/reference/tables.md of ``tables.toml`` beside
`acktrail.format.columns.schemas`, ``tables.md`` of each branch that has a ``tables.toml``, and the picture of keys.

The same files always give the same pages and picture. `faults` checks what the pages need and the schemas do not.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import key_picture

from acktrail.format.columns.schemas.table_comments import GRAINS, STABILITY

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCES: Final = {
    ROOT / "docs/reference/tables.md": ROOT / "acktrail/format/columns/schemas/tables.toml",
    **{file.with_suffix(".md"): file for file in sorted(ROOT.glob("extras/*/tables.toml"))},
}
"""The file that each page is made of."""
PICTURE: Final = ROOT / "docs/images/keys.svg"
MOST_TABLES: Final = 25
UNITS: Final = frozenset({"ms", "offset", "records", "bytes"})
_NESTED: Final = re.compile(r"(?:list of |map of string to )*(\w+)")

Rows = Sequence[Mapping[str, str]]


def pages() -> dict[Path, str]:
    """Each page, and the picture, with its text."""
    files = {page: "\n".join(_lines(_read(source), source)) for page, source in SOURCES.items()}
    return files | {PICTURE: key_picture.picture(_read(SOURCES[ROOT / "docs/reference/tables.md"]))}


def _read(source: Path) -> dict[str, Any]:
    return tomllib.loads(source.read_text("utf-8"))


def _lines(file: Mapping[str, Any], source: Path) -> Iterator[str]:
    yield from (f"# {file['title']}", "", file["introduction"].strip())
    yield f"This page is written by `tools/write_tables.py` from `{source.relative_to(ROOT)}`."
    structs = {name: own["fields"] for name, own in file.get("structs", {}).items()}
    if "joins" in file:
        yield from ("", *_KEYS_AND_JOINS, *_joins(file["joins"]))
    for name, table in (*file["tables"].items(), *file.get("views", {}).items()):
        key = ", ".join(f"`{column}`" for column in table["key"])
        kind = "A view. " if name in file.get("views", {}) else ""
        said = f"{kind}{_STABLE[table['stability']]}; {GRAINS[table['rows']]}. Key: {key}."
        yield from ("", f"## {name}", "", f"{table['question']} {said}", "", table["row"].strip(), "")
        yield from ("| column | type | meaning |", "|---|---|---|", *_rows(table["columns"], structs))
        if "notes" in table:
            yield from ("", table["notes"].strip())
    yield ""


_STABLE: Final = {"stable": "Stable", "internal": "Internal: only acktrail reads it"}
_KEYS_AND_JOINS: Final = (
    *("## Keys and joins", "", "![Tables by the columns that join them](../images/keys.svg)", ""),
    "A full dot is a part of the table's key, an open one a column to join by. Join by `topic_id`, not by the name: a",
    "topic that is created again has the same name and another id. A table is *stable* (its columns change only with a",
    "line in the changelog) or *internal* (only acktrail reads it; any release may change it).",
    *("", "| join by | columns |", "|---|---|"),
)


def _joins(joins: Mapping[str, Sequence[Sequence[str]]]) -> Iterator[str]:
    for name, ways in joins.items():
        columns = ", or ".join(" and ".join(f"`{column}`" for column in way) for way in ways)
        yield f"| {name.replace('_', ' ')} | {columns} |"


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
        for name, table in (*file["tables"].items(), *file.get("views", {}).items()):
            if not re.fullmatch(r"[A-Z][^?.]*\?", table["question"]):
                yield f"{source.name}: table {name} has no question"
            if table.get("stability") not in STABILITY or table.get("rows") not in GRAINS:
                yield f"{source.name}: table {name} lacks stability or rows"
            if not table.get("key") or not {*table["key"]} <= {column["name"] for column in table["columns"]}:
                yield f"{source.name}: table {name}: its key is none of its columns"
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
            yield f"column {name}: no unit {unit!r}; there are {', '.join(sorted(UNITS))}"
        if is_whole and unit != wanted:
            yield f"column {name}: its unit is {wanted}"
        if not column["meaning"] or "|" in column["meaning"] or column["meaning"].endswith("."):
            yield f"column {name}: its meaning is no part of a row"


if __name__ == "__main__":
    if wrong := [*faults()]:
        sys.exit("\n".join(wrong))
    for page, text in pages().items():
        page.write_text(text, "utf-8")
