"""Contradict requirements one by one and count which contradictions the tests notice; `make mutants`.

Each mutant of ``tests/mutants.toml`` goes into a copy of the sources; there the tests run that its rows of
``requirements.md`` name, without those that start a broker, Spark or Airflow. A mutant that the tests of one row do not
notice ends the run with 1. Arguments: parts of names, to run some mutants only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
_TABLES: Final = ("tests/requirements.md", "tests/extras/expansion/requirements.md")
_TEST: Final = re.compile(r"`(tests/[^`]+\.py::\w+)`")
_QUICK: Final = "not broker and not spark and not airflow"
_PASSED, _FAILED = 0, 1


def main(names: list[str]) -> int:
    """Print a line a mutant; 1: one survived, or the tests fail without any."""
    shown = tests_of_rows()
    chosen = [each for each in mutants() if not names or any(name in each["name"] for name in names)]
    tests = sorted({test for each in chosen for row in each["rows"] for test in shown[row]})
    with tempfile.TemporaryDirectory() as folder:
        copy = _copy(Path(folder))
        if _run(copy, tests) != _PASSED:
            print("the tests fail without a mutant")
            return 1
        survived = 0
        for each in chosen:
            passed = _unnoticed(copy, each["edits"], {row: shown[row] for row in each["rows"]})
            survived += bool(passed)
            of = f" (by the tests of {', '.join(passed)})" if passed else ""
            verdict = "SURVIVED" if passed else "killed"
            print(f"{verdict:9} {', '.join(each['rows']):34} {each['name']}{of}", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} mutants killed")
    return min(survived, 1)


def mutants() -> list[dict[str, Any]]:
    """Those of ``tests/mutants.toml``: a name, rows, and edits (file, text before, text after)."""
    return tomllib.loads((ROOT / "tests/mutants.toml").read_text("utf-8"))["mutant"]


def tests_of_rows() -> dict[str, list[str]]:
    """The tests of each requirement."""
    lines = [line for table in _TABLES for line in (ROOT / table).read_text("utf-8").splitlines()]
    return {line[2:9]: _TEST.findall(line) for line in lines if line.startswith("| R0")}


def _copy(folder: Path) -> Path:
    """The sources as they are now, without what git does not know."""
    listed = subprocess.run(("git", "ls-files"), cwd=ROOT, check=True, capture_output=True, text=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def _unnoticed(copy: Path, edits: list[tuple[str, str, str]], rows: dict[str, list[str]]) -> list[str]:
    """The rows whose tests all pass with the edits in place, which are taken back. Raises ValueError: an edit fits
    nothing, or tests cannot run."""
    originals: dict[Path, str] = {}
    for name, before, after in edits:
        file = copy / name
        text = file.read_text("utf-8")
        originals.setdefault(file, text)
        if before not in text:
            raise ValueError(f"{name} has no {before.strip()!r}")
        file.write_text(text.replace(before, after), "utf-8")
    try:
        codes = {row: _run(copy, tests) for row, tests in rows.items()}
    finally:
        for file, text in originals.items():
            file.write_text(text, "utf-8")
    if not {_PASSED, _FAILED}.issuperset(codes.values()):
        raise ValueError(f"pytest could not run the tests of a row: {codes}")
    return [row for row, code in codes.items() if code == _PASSED]


def _run(copy: Path, tests: list[str]) -> int:
    """The exit code of pytest in `copy`, whose packages come before the installed ones."""
    folders = ("", "connectors", "dags", "dashboards", "expectations", "extras", "spark_jobs", "simulation")
    path = os.pathsep.join(str(copy / folder) for folder in folders)
    python = ("env", f"PYTHONPATH={path}", "PYTHONDONTWRITEBYTECODE=1", sys.executable)
    command = (*python, "-m", "pytest", "-q", "-x", "-n", "0", "-m", _QUICK, "-p", "no:cacheprovider", *tests)
    return subprocess.run(command, cwd=copy, check=False, stdout=subprocess.DEVNULL).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
