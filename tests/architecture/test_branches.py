"""Each branch keeps its import contracts, and they can fail."""

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
