"""The architecture is executable: arrows, exported names, the environment; examples in docstrings, and templates."""

from __future__ import annotations

import ast
import doctest
import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from itertools import pairwise, permutations, product
from pathlib import Path
from typing import Any, Final

import grimp
import pytest
from architecture.test_rooms import _code_lines, shipped
from jinja2 import Environment, nodes

from acktrail.branches import branches

ROOT = Path(__file__).parents[2]
SOURCES = {
    "acktrail": ROOT / "connectors/acktrail",
    "acktrail_jobs": ROOT / "spark_jobs/acktrail_jobs",
    "acktrail_expectations": ROOT / "expectations/acktrail_expectations",
    "acktrail_dashboard": ROOT / "dashboards/acktrail_dashboard",
    "acktrail_dags": ROOT / "dags/acktrail_dags",
}
SIMULATION = {"acktrail_simulation": ROOT / "simulation/acktrail_simulation"}

FOLDERS = {folder.name: folder for folder in shipped() if folder.is_dir()}
CONTRACTS = [ROOT / "pyproject.toml", *sorted(ROOT.glob("tests/*/contracts.toml"))]
"""Of the trunk, and of each branch that is there."""
_FIRST = re.compile(r"[.\w]+")


def _lint(folder: Path, contracts: Path) -> tuple[int, str]:
    words = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo", "--config", str(contracts)]
    surroundings = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(words, cwd=folder, env=surroundings, capture_output=True, text=True, timeout=120, check=False)
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
    for package, source in (SOURCES | SIMULATION | FOLDERS).items():
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


def test_no_modules_import_each_other_in_a_circle_and_no_branch_another() -> None:
    """Imports inside functions, and those for types alone, count as well. CycleError names the circle."""
    graph = grimp.build_graph(*SIMULATION, *FOLDERS, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > len(FOLDERS)
    TopologicalSorter(imports).prepare()
    packages = [branch.package for branch in branches()]
    assert [pair for pair in permutations(packages, 2) if graph.find_shortest_chain(*pair, as_packages=True)] == []


def _private_imports(text: str) -> list[str]:
    return [
        alias.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("acktrail")
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    ]


def test_private_names_stay_in_their_module() -> None:
    """A leading underscore is the only mark of a private name, and no module imports one from another."""
    taken = {
        str(file.relative_to(ROOT)): names
        for source in (SOURCES | SIMULATION).values()
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

    assert readers == {"connectors/acktrail/config.py", "connectors/acktrail/secrets.py"}


def _imports(file: Path) -> set[str]:
    """The top-level packages that a file imports."""
    found = set[str]()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
    return found


def test_what_lies_in_the_jobs_runs_on_spark() -> None:
    """Every other module of the jobs than commands and steps imports PySpark: what does not need it has its rooms."""
    files = [file for file in SOURCES["acktrail_jobs"].glob("*.py") if file.name != "__init__.py"]
    others = [folder.name for folder in SOURCES["acktrail_jobs"].iterdir() if folder.is_dir()]

    assert files
    assert {file.name for file in files if "pyspark" not in _imports(file)} == set()
    assert set(others) <= {"commands", "pipeline", "__pycache__"}


def test_no_module_is_a_collection_of_odds_and_ends() -> None:
    """Modules are nouns of the domain; files stay short enough to be read in one go: 400 lines, 310 of them code."""
    for source in (SOURCES | FOLDERS).values():
        for file in source.rglob("*.py"):
            assert file.stem not in {"utils", "util", "helpers", "common", "misc", "base"}, file
            assert len(file.read_text("utf-8").splitlines()) <= 400, file
            assert _code_lines(file) <= 310, file


SOURCE_ROOTS: Final = ("connectors", "spark_jobs", "expectations", "dashboards", "simulation")
MODULES: Final = sorted(
    ".".join(file.relative_to(ROOT / root).with_suffix("").parts)
    for root in SOURCE_ROOTS
    for file in (ROOT / root).rglob("*.py")
    if ">>> " in file.read_text("utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name: str) -> None:
    """Each example prints what it shows."""
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted
    assert not results.failed


TEMPLATES: Final = sorted(file for folder in ("dashboards", "connectors") for file in (ROOT / folder).rglob("*.html"))


def test_every_macro_is_called() -> None:
    """All templates know the macros: one that none of them calls is left over."""
    trees = [Environment(autoescape=True).parse(path.read_text()) for path in TEMPLATES]
    macros = {each.name for tree in trees for each in tree.find_all(nodes.Macro)}
    assert macros
    assert macros - {getattr(each.node, "name", "") for tree in trees for each in tree.find_all(nodes.Call)} == set()
