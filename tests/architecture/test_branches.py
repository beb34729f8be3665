"""Each branch keeps its import contracts, and the trunk works without it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Final

import pytest
from architecture.test_contracts import SIMULATION, SOURCES
from architecture.test_rooms import shipped

ROOT: Final = Path(__file__).parents[2]
POINTS: Final[dict[str, dict[str, str]]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "entry-points"
]
FOLDERS: Final = {folder.name: folder for folder in shipped() if folder.is_dir()}
PACKAGES: Final = {name: target.partition(".")[0] for name, target in POINTS["acktrail.branches"].items()}
"""Of branches, by name; tests of a branch are in a folder of its name."""
THERE: Final = [name for name, package in PACKAGES.items() if package in FOLDERS]
PLACES: Final = ("connectors", "dags", "dashboards", "expectations", "spark_jobs", "simulation")
GONE: Final = ("__pycache__", "dist", ".git", ".venv", ".uv", ".test-java", ".demo", ".*_cache")
ALONE: Final = f"""
import sys, pytest
from importlib.util import find_spec
sys.path = [place for place in sys.path if not any(place == "{ROOT}/" + own for own in {PLACES})]
assert find_spec(sys.argv.pop(1)) is None
from acktrail.cli.main import _run
"""
COMMAND: Final = "sys.exit(_run(sys.argv[1:]))"
TESTS: Final = "sys.exit(pytest.main(sys.argv[1:]))"
CHOSEN: Final = (
    "reset/test_plan.py", "reset/test_edited_plan.py", "health/test_table_metrics.py", "connect/test_config_def.py",
    "architecture/test_requirements.py", "architecture/test_references.py", "architecture/test_documents.py",
    "architecture/test_rules_page.py", "architecture/test_contracts.py::test_every_module_imports",
)  # fmt: skip
"""Every module, and where branches are asked. All tests: `make test-trunk`."""


def lint(folder: Path, contracts: Path) -> tuple[int, str]:
    words = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo", "--config", str(contracts)]
    surroundings = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(words, cwd=folder, env=surroundings, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, " ".join(done.stdout.split())


def turned_arrows(contract: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Imports that a contract forbids: of each layer by the one below it, and of the first module by each source."""
    for container in contract.get("containers", ()):
        for upper, lower in pairwise(re.findall(r"\w+", layer)[0] for layer in contract["layers"]):
            yield f"{container}.{lower}", f"{container}.{upper}"
    yield from product(contract.get("source_modules", ()), contract.get("forbidden_modules", ())[:1])


@pytest.mark.parametrize("name", [name for name in THERE if (ROOT / f"tests/{name}/contracts.toml").is_file()])
def test_contracts_of_a_branch_are_kept_and_can_fail(name: str, tmp_path: Path) -> None:
    """Those in its folder of tests, by the sources as they are; each import against the arrows is named."""
    contracts = ROOT / f"tests/{name}/contracts.toml"
    for package, source in (SOURCES | SIMULATION | FOLDERS).items():
        shutil.copytree(source, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    code, said = lint(tmp_path, contracts)
    assert code == 0, said
    rules = tomllib.loads(contracts.read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    arrows = [arrow for rule in rules for arrow in turned_arrows(rule)]
    for importer, imported in arrows:
        place = tmp_path / importer.replace(".", "/")
        with (place / "__init__.py" if place.is_dir() else place.with_suffix(".py")).open("a") as text:
            text.write(f"\nimport {imported}\n")
    code, said = lint(tmp_path, contracts)
    assert code != 0
    assert [arrow for arrow in arrows if "{} -> {} ".format(*arrow) not in said] == []


def alone(folder: Path, package: str, program: str, *arguments: str) -> str:
    """What a program prints that runs there, without the package, to its end."""
    places = {"PYTHONPATH": os.pathsep.join(str(folder / place) for place in PLACES)}
    command = [sys.executable, "-c", ALONE + program, package, *arguments]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **places}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", THERE)
def test_the_trunk_works_without_a_branch(name: str, tmp_path: Path) -> None:
    """In a copy of the checkout without its folder and its tests every module imports, commands say nothing of it, and
    quick tests pass."""
    folder, package = tmp_path / "checkout", PACKAGES[name]
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(package, *GONE))
    shutil.rmtree(folder / f"tests/{name}", ignore_errors=True)
    commands = {word for word, target in POINTS["acktrail.commands"].items() if target.startswith(f"{package}.")}
    for words in ((), ("reset", "plan"), ("doctor",)):
        shown = alone(folder, package, COMMAND, *words, "--help")
        assert "Usage: acktrail" in shown
        assert not [word for word in (name, *commands) if word in shown]
    chosen = (f"tests/{each}" for each in CHOSEN)
    alone(folder, package, TESTS, "-qm", "not broker and not spark and not airflow", *chosen)
