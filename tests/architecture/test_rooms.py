"""Small folders, one name for one module, one name for one class, a wheel of a known size."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
MOST_MODULES: Final = 16
LIMITS: Final = {
    "lines of the wheel": 44_630,
    "lines of the trunk": 35_717,
    "lines of tests": 37_039,
    "lines of the largest room": 4_128,
    "modules": 303,
}
"""Lines of code, Python and templates, without blank lines, comments and docstrings; these numbers only fall."""
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


@cache
def _code_lines(file: Path) -> int:
    """Lines with code: of a template those that are not blank, of Python those without comments and docstrings, too."""
    text = file.read_text("utf-8")
    if file.suffix == ".html":
        return sum(bool(line.strip()) for line in text.splitlines())
    notes, strings = set[int](), set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant | ast.JoinedStr):
            strings.update(range(node.lineno, (node.end_lineno or 0) + 1) if node.end_lineno != node.lineno else ())
        elif _is_text(node):
            notes.update(range(node.lineno, (node.end_lineno or 0) + 1))
    lines = enumerate(map(str.strip, text.split("\n")), 1)
    return sum(bool((line and line[0] != "#") or at in strings) and at not in notes for at, line in lines)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _lines(*places: Path) -> int:
    files = [file for place in places for file in ([place] if place.is_file() else place.rglob("*"))]
    return sum(_code_lines(file) for file in files if file.suffix in PRODUCT_CODE)


def test_the_house_stays_small() -> None:
    """Wheel, trunk, tests and largest room have no more lines of code than their limits, the wheel no more modules."""
    dag_files, packages = [*(ROOT / "dags").glob("*.py")], shipped()
    trunk = [package for package in packages if package.parent.name != "connectors" or package.name == "acktrail"]
    inside = [place for place in (ROOT / "connectors/acktrail").iterdir() if place.is_dir()]
    rooms = [*inside, *(package for package in packages if package.name != "acktrail")]
    modules = [file for package in packages for file in package.rglob("*.py") if file.name != "__init__.py"]
    found = {
        "lines of the wheel": _lines(*dag_files, *packages),
        "lines of the trunk": _lines(*dag_files, *trunk),
        "lines of tests": _lines(ROOT / "tests"),
        "lines of the largest room": max(map(_lines, rooms)),
        "modules": len([*modules, *dag_files]),
    }

    assert {what: count for what, count in found.items() if count > LIMITS[what]} == {}


def test_no_two_public_classes_have_one_name() -> None:
    """A class name means one thing everywhere, so that no reader takes one for the other."""
    modules = defaultdict(set)
    for package in sources():
        for file in package.rglob("*.py"):
            for node in ast.parse(file.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    modules[node.name].add(str(file.relative_to(ROOT)))

    assert {name: sorted(where) for name, where in modules.items() if len(where) > 1} == {}
