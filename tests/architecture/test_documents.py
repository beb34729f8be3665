"""The documents say what the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from acktrail.cli.main import _targets
from acktrail.columnar.schemas.table_schemas import TABLES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("table", sorted(TABLES))
def test_every_column_is_documented(table: str) -> None:
    """docs/tables.md has a section for each table that names each column, and no other."""
    text = (ROOT / "docs/tables.md").read_text(encoding="utf-8")
    section = text.split(f"\n## {table}\n")[1].split("\n## ")[0]
    first_cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    named = [name for cell in first_cells for name in re.findall(r"`([a-z_]+)`", cell)]

    assert sorted(named) == sorted(TABLES[table].names)


def test_every_command_is_documented() -> None:
    """docs/command-line.md has a section for each command."""
    text = (ROOT / "docs/command-line.md").read_text(encoding="utf-8")

    assert {name for name in _targets() if f"\n## {name}\n" not in text} == set()


def test_links_lead_somewhere() -> None:
    """Every relative link in the documents names a file that is there."""
    for document in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name}: {target}"
