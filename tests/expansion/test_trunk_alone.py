"""The trunk without this branch: a copy of the checkout in which the branch's folder and its tests are not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = ("connectors", "dags", "dashboards", "expectations", "spark_jobs", "simulation")
GONE = ("acktrail_expansion", "__pycache__", ".git", ".venv", ".uv", ".test-java", ".demo", "dist", ".*_cache")
ALONE = f"""
import sys
sys.path = [place for place in sys.path if not any(place == "{ROOT}/" + own for own in {PLACES})]
"""
IMPORTS = """
import importlib, importlib.util, pkgutil
assert importlib.util.find_spec("acktrail_expansion") is None
for top in ("acktrail", "acktrail_jobs", "acktrail_expectations", "acktrail_dashboard", "acktrail_dags"):
    package = importlib.import_module(top)
    assert sys.argv[1] in package.__file__, package.__file__
    for module in pkgutil.walk_packages(package.__path__, f"{top}."):
        if not module.name.endswith((".__main__", ".guardian")):
            importlib.import_module(module.name)
"""
HELP = """
from acktrail.cli.main import _run
sys.exit(_run(sys.argv[2:]))
"""
QUICK = """
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-m", "not broker and not spark and not airflow", *sys.argv[2:]]))
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trunk") / "checkout"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*GONE))
    shutil.rmtree(folder / "tests/expansion")
    return folder


def alone(folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(str(folder / place) for place in PLACES)}
    command = [sys.executable, "-c", ALONE + program, str(folder), *arguments]
    return subprocess.run(
        command, cwd=folder, env=surroundings, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.slow
def test_every_module_of_the_trunk_imports_without_the_branch(copy: Path) -> None:
    done = alone(copy, IMPORTS)
    assert done.returncode == 0, done.stderr


def test_the_command_line_has_all_commands_but_the_branchs(copy: Path) -> None:
    """Its commands, its ACLs, and what it adds to others are gone; nothing fails."""
    done = alone(copy, HELP, "--help")
    assert done.returncode == 0, done.stderr
    assert "reset" in done.stdout
    assert "expand" not in done.stdout
    for words in (("reset", "plan", "--help"), ("doctor", "--help")):
        done = alone(copy, HELP, *words)
        assert done.returncode == 0, done.stderr
        assert "expan" not in done.stdout


@pytest.mark.slow
def test_quick_tests_of_the_trunk_pass_without_the_branch(copy: Path) -> None:
    """Plans of resets, metrics, requirements and documents: where branches are asked. All tests: `make test-trunk`."""
    chosen = (
        "reset/test_plan",
        "reset/test_edited_plan",
        "health/test_table_metrics",
        "connect/test_config_def",
        "architecture/test_requirements",
    )
    documents = ("architecture/test_references", "architecture/test_documents", "architecture/test_rules_page")
    done = alone(copy, QUICK, *(f"tests/{each}.py" for each in (*chosen, *documents)))
    assert done.returncode == 0, done.stdout
