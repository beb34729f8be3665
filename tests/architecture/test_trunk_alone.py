"""The trunk without its branches: a copy of the checkout in which their folders and their tests are not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PLACES: Final = ("connectors", "dags", "dashboards", "expectations", "spark_jobs", "simulation")
BRANCHES: Final = sorted(folder.name for folder in (ROOT / "connectors").glob("acktrail_*"))
ASKED_FOR: Final = (
    "format/wire/dialects/test_bytes.py",
    "offline/test_replay_files.py",
    "change/test_plan.py",
    "connect/test_config_def.py",
    "model/test_quality_rules.py",
    "view/test_table_metrics.py::test_a_scrape_follows_the_tables",
)
"""Tests of the trunk where a branch is asked for, and is not there. All tests: `make test-trunk`."""
COMMANDS: Final = ("demo", "expan")
"""What the help says only where branches are there."""
HELP: Final = "The help:"
ALONE: Final = f"""
import sys, pytest
from importlib.util import find_spec
sys.path = [place for place in sys.path if not any(place == "{ROOT}/" + own for own in {PLACES})]
assert not any(map(find_spec, {BRANCHES}))
assert not pytest.main(["-qp", "no:cacheprovider", "-m", "not broker and not spark and not airflow", *sys.argv[1:]])
print("{HELP}")
from acktrail.cli.main import _run
for words in ([], ["change", "plan", "reset"], ["doctor"]):
    assert _run([*words, "--help"]) == 0
"""


def _trunk(folder: Path) -> Path:
    """The checkout, without what is made from it and what is a branch's."""
    made = (".git", ".venv", ".uv", ".test-java", ".demo", "dist", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*made, *BRANCHES))
    for branch in BRANCHES:
        shutil.rmtree(folder / "tests" / branch.removeprefix("acktrail_"))
    return folder


@pytest.mark.slow
def test_the_trunk_works_without_its_branches(tmp_path: Path) -> None:
    """The help names no command of theirs, and quick tests pass. That no module of the trunk imports one of a branch is
    a contract."""
    folder = _trunk(tmp_path / "checkout")
    places = {"PYTHONPATH": os.pathsep.join(str(folder / place) for place in PLACES)}
    command = [sys.executable, "-c", ALONE, *(f"tests/{each}" for each in ASKED_FOR)]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **places}, capture_output=True, text=True, timeout=300, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert not any(command in done.stdout.partition(HELP)[2] for command in COMMANDS)
