"""The architecture is executable: arrows, exported names, the environment, the wheel."""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = {
    "acktrail": ROOT / "connectors/acktrail",
    "acktrail_jobs": ROOT / "spark_jobs/acktrail_jobs",
    "acktrail_expectations": ROOT / "expectations/acktrail_expectations",
    "acktrail_dashboard": ROOT / "dashboards/acktrail_dashboard",
    "acktrail_dags": ROOT / "dags/acktrail_dags",
}
SIMULATION = {"acktrail_simulation": ROOT / "simulation/acktrail_simulation"}

TURNED_ARROWS = [
    ("acktrail/model/turned.py", "import acktrail.format.wire"),
    ("acktrail/format/wire/turned.py", "import logging"),
    ("acktrail/format/wire/turned.py", "import acktrail.format.columns"),
    ("acktrail/connect/turned.py", "import acktrail.tables"),
    ("acktrail/connect/runtime/turned.py", "import fastapi"),
    ("acktrail/kafka/turned.py", "import acktrail.tables.delta.store"),
    ("acktrail/tables/turned.py", "import confluent_kafka"),
    ("acktrail/cli/turned.py", "import deltalake"),
    ("acktrail/embedded/turned.py", "import pyspark"),
    ("acktrail/format/wire/turned.py", "import datetime"),
    ("acktrail/offline/turned.py", "import acktrail_drafts"),
    ("acktrail/change/turned.py", "import acktrail.embedded"),
    ("acktrail/change/turned.py", "import kafka"),
    ("acktrail/change/turned.py", "import deltalake"),
    ("acktrail/change/turned.py", "import acktrail_simulation"),
    ("acktrail/export/turned.py", "import acktrail.reconcile"),
    ("acktrail/view/turned.py", "import acktrail.reconcile"),
    ("acktrail/executors.py", "import acktrail.reconcile"),
    ("acktrail/reconcile/turned.py", "import pyspark"),
    ("acktrail/kafka/turned.py", "import acktrail.change"),
    ("acktrail_dags/turned.py", "import acktrail.cli"),
    ("acktrail_simulation/turned.py", "import acktrail.format.columns"),
    ("acktrail_simulation/turned.py", "import time"),
    ("acktrail_jobs/turned.py", "import acktrail_dags"),
    ("acktrail_jobs/turned.py", "import acktrail_simulation"),
    ("acktrail_jobs/turned.py", "import acktrail_expectations"),
    ("acktrail_jobs/turned.py", "import airflow"),
    ("acktrail_dashboard/turned.py", "import great_expectations"),
    ("acktrail_dashboard/terminal.py", "import fastapi"),
    ("acktrail/view/turned.py", "import jinja2"),
    ("acktrail/errors.py", "import acktrail.config"),
    ("acktrail/change/turned.py", "import acktrail_expansion"),
    ("acktrail_dags/turned.py", "import acktrail_expansion"),
    ("acktrail/cli/turned.py", "import acktrail_demo"),
    ("acktrail/connect/turned.py", "import acktrail_plugins"),
]


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    for name, source in (SOURCES | SIMULATION).items():
        shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def test_every_import_contract_is_kept(copy: Path) -> None:
    """Every import contract is kept by the sources as they are."""
    done = _lint(copy)

    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def broken(copy: Path) -> str:
    """What import-linter prints of sources with every import of ``TURNED_ARROWS`` added."""
    texts = {copy / file: (copy / file).read_text() if (copy / file).exists() else None for file, _ in TURNED_ARROWS}
    added = {target: text or "" for target, text in texts.items()}
    for file, line in TURNED_ARROWS:
        added[copy / file] += f"\n{line}\n"
    try:
        for target, text in added.items():
            target.write_text(text)
        done = _lint(copy)
    finally:
        for target, before in texts.items():
            if before is None:
                target.unlink()
            else:
                target.write_text(before)
    assert done.returncode != 0
    return done.stdout


@pytest.mark.parametrize(("file", "line"), TURNED_ARROWS)
def test_an_import_against_a_contract_is_found(broken: str, file: str, line: str) -> None:
    """An import against the arrows breaks a contract and is named: the contracts can fail."""
    importer = file.removesuffix(".py").replace("/", ".")
    imported = line.removeprefix("import ")
    named = re.compile(rf"{re.escape(importer)} -> {re.escape(imported)}\b")
    assert named.search(" ".join(broken.split())), broken


def test_every_module_imports() -> None:
    """A module can be imported, and what it re-exports is there."""
    names = [
        info.name
        for package, source in SOURCES.items()
        for info in pkgutil.walk_packages([str(source)], prefix=f"{package}.")
        if not info.name.endswith(("__main__", ".guardian"))
    ]
    modules = [importlib.import_module(name) for name in names]
    missing = [(m.__name__, name) for m in modules for name in getattr(m, "__all__", ()) if not hasattr(m, name)]

    assert len(modules) > 100
    assert missing == []


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
    """Modules are nouns of the domain; files stay short enough to be read in one go."""
    for source in SOURCES.values():
        for file in source.rglob("*.py"):
            assert file.stem not in {"utils", "util", "helpers", "common", "misc", "base"}, file
            assert len(file.read_text().splitlines()) <= 400, file
