"""Small folders, one name for one module, one name for one class, a wheel of a known size."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
MOST_MODULES: Final = 16
MOST_LINES_OF_THE_WHEEL: Final = 86_000
"""Of Python and of templates, with blank lines and comments. 57,000 before the dashboard, 72,000 before expansions,
84,000 before what an observer cannot see was told apart from what is proven."""
PRODUCT_CODE: Final = frozenset({".py", ".html"})

SAME_ROLE: Final = frozenset({"__init__", "__main__", "command", "schemas"})
"""Module names that a package may have in several folders: each says the same of its own folder."""

NAMED_AFTER_THEIR_SUBJECT: Final = frozenset({"commands", "suites"})
"""Folders whose modules are named after a command or a table."""


def shipped() -> list[Path]:
    """The packages of the wheel."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return [ROOT / package for package in settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]


def sources() -> list[Path]:
    """All packages, the DAGs and the simulation among them."""
    return [*shipped(), ROOT / "dags/acktrail_dags", ROOT / "simulation/acktrail_simulation"]


def test_no_folder_has_more_modules_than_a_reader_takes_in() -> None:
    """At most 16 modules stand directly in one folder."""
    crowded = {
        str(folder.relative_to(ROOT)): count
        for package in sources()
        for folder in (package, *(path for path in package.rglob("*") if path.is_dir()))
        if (count := len(list(folder.glob("*.py")))) > MOST_MODULES
    }

    assert crowded == {}


def test_no_two_modules_of_a_package_have_one_name() -> None:
    """A module's name alone leads to it; commands, which are named after what a user types, and roles apart."""
    for package in sources():
        folders = defaultdict(list)
        for file in package.rglob("*.py"):
            if file.stem not in SAME_ROLE and file.parent.name not in NAMED_AFTER_THEIR_SUBJECT:
                folders[file.stem].append(str(file.parent.relative_to(ROOT)))
        assert {name: where for name, where in folders.items() if len(where) > 1} == {}


def test_the_wheel_stays_small() -> None:
    """Product code in the wheel has fewer lines than the limit."""
    files = (*(ROOT / "dags").glob("*.py"), *(file for package in shipped() for file in package.rglob("*")))
    lines = sum(len(file.read_text("utf-8").splitlines()) for file in files if file.suffix in PRODUCT_CODE)

    assert lines < MOST_LINES_OF_THE_WHEEL


def test_no_two_public_classes_have_one_name() -> None:
    """A class name means one thing everywhere, so that no reader takes one for the other."""
    modules = defaultdict(set)
    for package in sources():
        for file in package.rglob("*.py"):
            for node in ast.parse(file.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    modules[node.name].add(str(file.relative_to(ROOT)))

    assert {name: sorted(where) for name, where in modules.items() if len(where) > 1} == {}
