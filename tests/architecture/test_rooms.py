"""The architecture is executable: small folders, one name for one module and one class, a wheel of a known size;
arrows, exported names, the environment; examples in docstrings, and templates."""

from __future__ import annotations

import ast
import doctest
import importlib
import os
import re
import shutil
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from itertools import pairwise, permutations, product
from pathlib import Path
from typing import Any, Final

import grimp
import pytest
from drivers.own_process import finished
from jinja2 import Environment, nodes

from acktrail.branches import branches

ROOT: Final = Path(__file__).parents[2]
MOST_MODULES: Final = 16
LIMITS: Final = {
    "lines of the wheel": 50_200,
    "lines of the trunk": 41_150,
    "lines of tests": 43_600,
    "lines of the largest room": 4_100,
    "modules": 375,
}
"""Lines of code, Python and templates, without blanks, comments and docstrings. They rise with what users gain."""
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
    return [*shipped(), ROOT / "simulation/acktrail_simulation"]


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
    trunk = [package for package in packages if package.parent.name != "extras"]
    large = [ROOT / "acktrail", ROOT / "connectors/acktrail_connect"]
    inside = [place for package in large for place in package.iterdir() if place.is_dir()]
    rooms = [*inside, *(package for package in packages if package not in large)]
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
    modules = defaultdict(list)
    for package in sources():
        for file in package.rglob("*.py"):
            for name in re.findall(r"^class ([A-Z]\w*)", file.read_text("utf-8"), re.MULTILINE):
                modules[name].append(str(file.relative_to(ROOT)))

    assert {name: where for name, where in modules.items() if len(where) > 1} == {}


SOURCES = {folder.name: folder for folder in sources() if folder.is_dir()}
CONTRACTS = [ROOT / "pyproject.toml", *sorted(ROOT.glob("tests/extras/*/contracts.toml"))]
"""Of the trunk, and of each extra that is there."""
_FIRST = re.compile(r"[.\w]+")


def _lint(folder: Path, contracts: Path) -> tuple[int, str]:
    words = [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo", "--config", contracts]
    done = finished(*words, cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)})
    return done.returncode, " ".join(done.stdout.split())


def _turned_arrows(contract: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Imports that a contract forbids: of each layer by the one below it, of the first forbidden module by each source,
    and of each forbidden module by the first source."""
    for container in contract.get("containers", ("",)):
        names = (_FIRST.findall(layer)[0] for layer in contract.get("layers", ()))
        firsts = [f"{container}.{name}".lstrip(".") for name in names]
        yield from ((lower, upper) for upper, lower in pairwise(firsts))
    sources, forbidden = contract.get("source_modules", ()), contract.get("forbidden_modules", ())
    yield from product(sources, forbidden[:1])
    yield from product(sources[:1], forbidden[1:])


@pytest.mark.parametrize("contracts", CONTRACTS, ids=lambda file: file.parent.name)
def test_every_contract_is_kept_and_can_fail(contracts: Path, tmp_path: Path) -> None:
    """By the sources as they are. Each import against the arrows is named."""
    for package, source in SOURCES.items():
        shutil.copytree(source, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    code, said = _lint(tmp_path, contracts)
    assert code == 0, said
    rules = tomllib.loads(contracts.read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    arrows = [arrow for rule in rules for arrow in _turned_arrows(rule)]
    assert len(arrows) >= 2 * len(rules)
    for importer, imported in arrows:
        place = tmp_path / importer.replace(".", "/")
        with (place / "__init__.py" if place.is_dir() else place.with_suffix(".py")).open("a") as text:
            text.write(f"\nimport {imported}\n")
    code, said = _lint(tmp_path, contracts)
    assert code != 0
    assert [arrow for arrow in arrows if "{} -> {} ".format(*arrow) not in said] == []


def test_no_modules_import_each_other_in_a_circle_and_no_extra_another() -> None:
    """Imports inside functions, and those for types alone, count as well. CycleError names the circle. No text of an
    extra even names another: each can be left out."""
    graph = grimp.build_graph(*SOURCES, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > len(SOURCES)
    TopologicalSorter(imports).prepare()
    for one, other in permutations([branch.package for branch in branches() if _is_extra(branch.package)], 2):
        assert [file for file in SOURCES[one].rglob("*.py") if other in file.read_text("utf-8")] == []


def _is_extra(package: str) -> bool:
    return SOURCES[package].parent.name == "extras"


def _private_imports(text: str) -> list[str]:
    imported = re.findall(r"^ *from acktrail[\w.]* import ([^(\n]+|\([^)]*\))", text, re.MULTILINE)
    return [name for names in imported for name in re.findall(r"(?<! as )\b_[a-zA-Z]\w*", names)]


def test_private_names_stay_in_their_module() -> None:
    """A leading underscore is the only mark of a private name, and no module imports one from another."""
    taken = {
        str(file.relative_to(ROOT)): names
        for source in SOURCES.values()
        for file in sorted(source.rglob("*.py"))
        if (names := _private_imports(file.read_text()))
    }

    assert taken == {}
    assert _private_imports("from acktrail.model.replay import (\n    apply,\n    _fold,\n)") == ["_fold"]


def test_only_config_reads_the_environment() -> None:
    """os.environ and os.getenv appear in acktrail.config, and where references to secrets are resolved."""
    readers = {
        str(file.relative_to(ROOT))
        for source in SOURCES.values()
        for file in source.rglob("*.py")
        if "os.environ" in file.read_text() or "getenv(" in file.read_text()
    }

    assert readers == {"acktrail/config.py", "acktrail/secrets.py"}


def test_no_module_is_a_collection_of_odds_and_ends() -> None:
    """Modules are nouns of the domain; files stay short enough to be read in one go: 400 lines, 310 of them code."""
    for source in SOURCES.values():
        for file in source.rglob("*.py"):
            assert file.stem not in {"utils", "util", "helpers", "common", "misc", "base"}, file
            assert len(file.read_text("utf-8").splitlines()) <= 400, file
            assert _code_lines(file) <= 310, file


MODULES: Final = sorted(
    ".".join(file.relative_to(package.parent).with_suffix("").parts)
    for package in sources()
    for file in package.rglob("*.py")
    if ">>> " in file.read_text("utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name: str) -> None:
    """Each example prints what it shows."""
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted
    assert not results.failed


TEMPLATES: Final = sorted(file for root in ("dashboards", "extras") for file in (ROOT / root).rglob("*.html"))


def test_every_macro_is_called() -> None:
    """All templates know the macros: one that none of them calls is left over."""
    trees = [Environment(autoescape=True).parse(path.read_text()) for path in TEMPLATES]
    macros = {each.name for tree in trees for each in tree.find_all(nodes.Macro)}
    assert macros
    assert macros - {getattr(each.node, "name", "") for tree in trees for each in tree.find_all(nodes.Call)} == set()
