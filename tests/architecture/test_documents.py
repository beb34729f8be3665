"""The documents say what the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from architecture.test_references import without_gone_branches

from acktrail.cli.main import CommandGroup
from acktrail.format.columns.schemas.table_schemas import parse_tables

ROOT = Path(__file__).parents[2]
MOST_TABLES = 24


def test_the_page_of_tables_says_what_each_column_means() -> None:
    """docs/tables.md, which tables get their columns from, says something beside every row of columns."""
    text = (ROOT / "docs/tables.md").read_text(encoding="utf-8")
    meanings = re.findall(r"^\| `.*? \| (.*) \|$", text, re.MULTILINE)

    assert meanings.count("") == 0
    assert len(meanings) == len(re.findall(r"^\| `", text, re.MULTILINE))


def test_each_table_answers_a_question() -> None:
    """Its section begins with the question; there are no more tables than the limit, which only falls."""
    text = (ROOT / "docs/tables.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (\w+)\n\n(.*)$", text, re.MULTILINE))

    assert len(sections) <= MOST_TABLES
    assert [name for name, first in sections.items() if not re.fullmatch(r"[A-Z][^?.]*\?", first)] == []


@pytest.mark.parametrize("cell", ["`a`: text", "`a`", "`a`, b: string", "`a`: list of {`b`}", "`a`: string `b`: int32"])
def test_columns_that_cannot_be_read_are_refused(cell: str) -> None:
    """No column is left out silently."""
    with pytest.raises(ValueError, match=r"tables\.md: no"):
        parse_tables(f"## topics\n\n| {cell} | what |\n")


def test_every_command_is_documented() -> None:
    """docs/command-line.md has a section for each command, or for its group."""
    text = (ROOT / "docs/command-line.md").read_text(encoding="utf-8")

    titles = {title.replace(" ", ".") for title in re.findall(r"^## (.+)$", text, re.MULTILINE)}

    assert {path for path in CommandGroup.targets() if not {path, path.split(".")[0]} & titles} == set()


def test_links_lead_somewhere() -> None:
    """Every relative link in the documents names a file that is there, but for a branch that is not."""
    for document in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#]+)", without_gone_branches(document.read_text(encoding="utf-8"))):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name}: {target}"
