"""What the documents name in the code is there, and the words that are ours are explained."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SOURCE_ROOTS: Final = ("connectors", "spark_jobs", "expectations", "dashboards", "dags", "simulation")
REFERENCE: Final = re.compile(r"`((?:acktrail\w*)(?:\.\w+)*):(\w+(?:\.\w+)*)`")
"""A module and what it defines, as `acktrail.model.replay:replay`."""
PATH: Final = re.compile(r"`((?:connectors|spark_jobs|expectations|dashboards|dags|simulation|tests|tools)/[\w./]+)`")
DOCUMENTS: Final = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


def without_gone_branches(text: str) -> str:
    """`text` without the words that name a branch whose folder is not there."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    packages = {target.split(".")[0] for target in points["acktrail.branches"].values()}
    gone = [package for package in sorted(packages) if not (ROOT / "connectors" / package).exists()]
    for package in gone:
        names = rf"{package}\b|tests/{package.removeprefix('acktrail_')}/"
        text = re.sub(rf"[^\s`(]*\b(?:{names})[^\s`)]*", "", text)
    return text


@cache
def _defined(module: str) -> frozenset[str]:
    """Names that a module defines, those of its classes' members as `Class.member`."""
    path = Path(*module.split("."))
    files = [ROOT / root / path.with_suffix(".py") for root in SOURCE_ROOTS]
    files += [ROOT / root / path / "__init__.py" for root in SOURCE_ROOTS]
    file = next((file for file in files if file.exists()), None)
    return frozenset(_names(ast.parse(file.read_text("utf-8")).body)) if file else frozenset()


def _names(body: list[ast.stmt], prefix: str = "") -> list[str]:
    names: list[str] = []
    for node in body:
        if isinstance(node, ast.ClassDef):
            names += [prefix + node.name, *_names(node.body, f"{prefix}{node.name}.")]
        elif isinstance(node, ast.FunctionDef):
            names.append(prefix + node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(prefix + node.target.id)
        elif isinstance(node, ast.Assign):
            names += [prefix + target.id for target in node.targets if isinstance(target, ast.Name)]
    return names


def _section(document: str, title: str) -> str:
    return (ROOT / document).read_text("utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]


def _is_source(path: Path) -> bool:
    """A file, or a folder with more than caches of modules that moved away."""
    return path.is_file() or any(file.suffix != ".pyc" for file in path.rglob("*") if file.is_file())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_names_exists(document: Path) -> None:
    """Each `module:name` is defined in that module, each path of a source or test is a file or folder."""
    text = without_gone_branches(document.read_text("utf-8"))
    missing = [f"{module}:{name}" for module, name in REFERENCE.findall(text) if name not in _defined(module)]
    missing += [path for path in PATH.findall(text) if not _is_source(ROOT / path)]

    assert missing == []


def test_a_name_that_is_gone_is_found() -> None:
    """The check above can fail: a module, a function and a member that do not exist are not defined."""
    assert "replay" in _defined("acktrail.model.replay")
    assert "SharePartition.group_id" in _defined("acktrail.model.share_partition")
    assert "replays" not in _defined("acktrail.model.replay")
    assert _defined("acktrail.model.no_such_module") == frozenset()


def test_every_task_leads_to_a_place_in_the_code() -> None:
    """Each line of the table of tasks has a reference or a path; there are about thirty."""
    rows = [line for line in _section("docs/architecture.md", "Where do I change what").splitlines() if "|" in line][2:]
    without = [row for row in rows if not (REFERENCE.search(row) or PATH.search(row))]

    assert without == []
    assert len(rows) >= 28


@pytest.mark.parametrize(
    "walk", ["A record, from poll to page", "A change, from the form to the audit", "A run of the pipeline"]
)
def test_a_walk_names_every_hop(walk: str) -> None:
    """Each numbered line of a walk names where it happens, below a picture of the rooms."""
    text = _section("docs/walks.md", walk)
    hops = re.findall(r"^\d+\. .*", text, re.MULTILINE)

    assert "sequenceDiagram" in text
    assert len(hops) >= 8
    assert [hop for hop in hops if not REFERENCE.search(hop)] == []


def test_the_glossary_is_in_order_and_says_each_word_once() -> None:
    """Words of docs/glossary.md stand in alphabetical order, each with an explanation."""
    words = re.findall(r"^\| \*\*([^*]+)\*\* \| \S", (ROOT / "docs/glossary.md").read_text("utf-8"), re.MULTILINE)

    assert len(words) >= 25
    assert words == sorted(set(words), key=str.casefold)
