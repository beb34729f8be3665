"""The branch's import contracts are kept, and can fail."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from architecture.test_contracts import SIMULATION, SOURCES

HERE = Path(__file__).parent
PACKAGES = SOURCES | SIMULATION | {"acktrail_expansion": HERE.parents[1] / "connectors/acktrail_expansion"}
TURNED_ARROWS = [
    ("law/turned.py", "import numpy"),
    ("law/turned.py", "import acktrail_expansion.looks"),
    ("quality/turned.py", "import acktrail_expansion.audit"),
    ("resets/turned.py", "import kafka"),
    ("audit/turned.py", "import deltalake"),
    ("pages/turned.py", "import airflow"),
    ("dags/turned.py", "import acktrail.cli"),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    for name, source in PACKAGES.items():
        shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def _lint(folder: Path) -> tuple[int, str]:
    lint = Path(sys.executable).with_name("lint-imports")
    words = [str(lint), "--no-cache", "--no-logo", "--config", str(HERE / "contracts.toml")]
    surroundings = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(words, cwd=folder, env=surroundings, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout


def test_every_contract_of_the_branch_is_kept(copy: Path) -> None:
    code, said = _lint(copy)
    assert code == 0, said


def test_an_import_against_a_contract_is_found(copy: Path) -> None:
    """Each import against the arrows is named."""
    files = {copy / "acktrail_expansion" / file for file, _ in TURNED_ARROWS}
    try:
        for file, line in TURNED_ARROWS:
            with (copy / "acktrail_expansion" / file).open("a") as text:
                text.write(f"{line}\n")
        code, said = _lint(copy)
    finally:
        for path in files:
            path.unlink()
    assert code != 0
    for file, line in TURNED_ARROWS:
        importer = f"acktrail_expansion.{file.removesuffix('.py').replace('/', '.')}"
        named = re.compile(rf"{re.escape(importer)} -> {re.escape(line.removeprefix('import '))}\b")
        assert named.search(" ".join(said.split())), said
