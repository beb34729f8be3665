"""The trunk without a branch: a copy of the checkout in which the branch's folder and its tests are not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from acktrail.branches import ENTRY_POINT, registered

ROOT: Final = Path(__file__).parents[2]
PLACES: Final = ("connectors", "dags", "dashboards", "expectations", "spark_jobs", "simulation")
BRANCHES: Final = {
    "copied_logs": ("cli/test_main.py",),
    "demo": (),
    "expansion": ("change/test_plan.py", "view/test_table_metrics.py::test_a_scrape_follows_the_tables"),
    "plugins": ("connect/test_config_def.py",),
}
"""Of each branch, also of a new one: tests of the trunk where it is asked for, and is not there. All tests: `make
test-trunk`."""
WHERE_BRANCHES_ARE_NAMED: Final = ("model/test_quality_rules.py",)
COMMAND_OF: Final = {"copied_logs": "decode", "demo": "demo", "expansion": "expan"}
"""What the help says only where the branch is there."""
HELP: Final = "The help:"
ALONE: Final = f"""
import sys, pytest
from importlib.util import find_spec
gone, tests = sys.argv[1], sys.argv[2:]
sys.path = [place for place in sys.path if not any(place == "{ROOT}/" + own for own in {PLACES})]
assert find_spec(gone) is None
assert not pytest.main(["-qp", "no:cacheprovider", "-m", "not broker and not spark and not airflow", *tests])
print("{HELP}")
from acktrail.cli.main import _run
for words in ([], ["change", "plan", "reset"], ["doctor"]):
    assert _run([*words, "--help"]) == 0
"""


def _without(branch: str, folder: Path) -> Path:
    """The checkout, without what is made from it and what is the branch's."""
    made = (".git", ".venv", ".uv", ".test-java", ".demo", "dist", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*made, f"acktrail_{branch}"))
    shutil.rmtree(folder / "tests" / branch)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("branch", sorted(registered(ENTRY_POINT)))
def test_the_trunk_works_without_the_branch(branch: str, tmp_path: Path) -> None:
    """The help names no command of the branch, and quick tests pass. That no module of the trunk imports one of the
    branch is a contract."""
    folder = _without(branch, tmp_path / "checkout")
    places = {"PYTHONPATH": os.pathsep.join(str(folder / place) for place in PLACES)}
    tests = [f"tests/{each}" for each in (*WHERE_BRANCHES_ARE_NAMED, *BRANCHES[branch])]
    command = [sys.executable, "-c", ALONE, f"acktrail_{branch}", *tests]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **places}, capture_output=True, text=True, timeout=300, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert COMMAND_OF.get(branch, "Traceback") not in done.stdout.partition(HELP)[2]
