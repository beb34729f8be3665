"""The tables of requirements and the tests tell the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = (ROOT / "tests/requirements.md", *sorted((ROOT / "tests").glob("*/requirements.md")))
"""The trunk's, and those that go with a branch."""
SECTIONS = {"R000": 68, "R001": 39, "R002": 83, "R004": 32, "R003": 22}
IDENTIFIER = r"R00[0-4]-\d\d"
ROW = re.compile(rf"^\| ({IDENTIFIER}) \| (.+) \| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`([^`:]+\.py)::(\w+)`")


@cache
def _rows() -> tuple[tuple[str, str, str], ...]:
    return tuple(row for document in DOCUMENTS for row in ROW.findall(document.read_text(encoding="utf-8")))


@cache
def _tests(file: str) -> dict[str, str]:
    """The docstring of every test function of a file."""
    nodes = ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
    return {n.name: ast.get_docstring(n) or "" for n in nodes if isinstance(n, ast.FunctionDef)}


def _named(text: str) -> Iterator[str]:
    """The requirements that a docstring names, ranges spelt out."""
    yield from re.findall(IDENTIFIER, text)
    for first, last in re.findall(rf"({IDENTIFIER})\s+to\s+({IDENTIFIER})", text):
        yield from (f"{first[:5]}{number:02d}" for number in range(int(first[5:]), int(last[5:]) + 1))


def test_every_requirement_is_listed_once() -> None:
    """All 244, in order; without the branch of its own those of R003 are not there."""
    expected = [f"{section}-{number:02d}" for section, count in SECTIONS.items() for number in range(1, count + 1)]
    own = expected if len(DOCUMENTS) > 1 else [each for each in expected if not each.startswith("R003")]

    assert len(expected) == 244
    assert [identifier for identifier, _, _ in _rows()] == own


@pytest.mark.parametrize(("identifier", "shown_by"), [(row[0], row[2]) for row in _rows()])
def test_what_shows_it_is_there(identifier: str, shown_by: str) -> None:
    """A row names tests that exist, or says documentation."""
    found = TEST.findall(shown_by)
    if not found:
        assert shown_by == "documentation"
        return
    for file, name in found:
        if not (ROOT / "tests" / file.split("/")[1]).exists():
            continue  # a branch's, whose folder is gone
        assert name in _tests(file), f"{identifier}: {file} has no {name}"
    assert TEST.sub("", shown_by).replace("<br>", "") == ""


def test_what_a_test_names_is_shown_by_a_test() -> None:
    """Every requirement that a test's docstring names has a test in the table; the rows know what the tests claim."""
    shown = {identifier for identifier, _, shown_by in _rows() if TEST.search(shown_by)}
    claimed = {
        identifier
        for file in sorted((ROOT / "tests").rglob("test_*.py"))
        for docstring in _tests(str(file.relative_to(ROOT))).values()
        for identifier in _named(docstring)
    }

    assert claimed <= shown, sorted(claimed - shown)
    assert claimed


@pytest.mark.parametrize("folder", ["tests/drafts/", "tests/format/wire/dialects"])
def test_the_tests_of_the_drafts_name_what_they_show(folder: str) -> None:
    """Where the table leads to a test of the drafts, that test names the requirement."""
    for identifier, _, shown_by in _rows():
        for file, name in TEST.findall(shown_by):
            if file.startswith(folder) and (ROOT / file).exists():
                assert identifier in set(_named(_tests(file)[name])), f"{file}::{name} does not name {identifier}"
