"""Install the wheel with its extras and the tests' tools at one end of the ranges in pyproject.toml, whatever uv.lock
says. Run by `make test-lowest` and `make test-newest`.

    python tools/lane.py lowest|newest UV PYTHON WHEEL FOLDER

`lowest`: what acktrail names has the lowest release that its range allows. Everything else has the release of the day
when that Airflow came out, because it does not run with later ones, unless acktrail needs one. `newest`: the newest
Airflow, and beside it the newest of everything. The environment is FOLDER/venv.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
OLDEST_AIRFLOW: Final = "2025-10-01"
"""The day on which Airflow 3.1.0, the lowest of the range, was the newest."""
NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


def extras() -> dict[str, list[str]]:
    """What each extra requires. Not of `demo` and `all`, which take new releases of Airflow only."""
    found = _project()["optional-dependencies"].items()
    return {name: required for name, required in found if name not in ("demo", "all")}


def required() -> dict[str, str]:
    """Every requirement of acktrail and these extras by its package."""
    of_extras = (each for required in extras().values() for each in required)
    found = {match[0]: each for each in (*_project()["dependencies"], *of_extras) if (match := NAME.match(each))}
    return {name: each for name, each in found.items() if name != "acktrail"}


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return project


def main(lane: str, uv: str, python: str, wheel: str, folder: str) -> None:
    """Resolve, install, and print what was chosen of acktrail's own requirements."""
    chosen, own = Path(folder) / "versions.txt", required()
    compiled = (uv, "pip", "compile", "--quiet", "--no-config", "--python", python)
    everything = (*(f"--extra={name}" for name in extras()), "--group", "test", "pyproject.toml")

    def run(*command: str, text: str | None = None) -> None:
        subprocess.run(command, check=True, cwd=ROOT, input=text, text=True)

    if lane == "lowest":
        lowest, airflow = ("--resolution", "lowest-direct"), own["apache-airflow"]
        run(*compiled, *lowest, "--exclude-newer", OLDEST_AIRFLOW, "--output-file", str(chosen), "-", text=airflow)
        again = (option for name in own for option in ("--upgrade-package", name))
        run(*compiled, *lowest, "--output-file", str(chosen), *again, *everything)
    else:
        airflow = Path(folder) / "airflow.txt"
        run(*compiled, "--no-deps", "--output-file", str(airflow), "-", text=own["apache-airflow"])
        run(*compiled, "--constraint", str(airflow), "--output-file", str(chosen), *everything)
    venv = Path(folder) / "venv"
    run(uv, "venv", "--quiet", "--python", python, str(venv))
    install = (
        uv,
        "pip",
        "install",
        "--quiet",
        "--no-config",
        "--compile-bytecode",
        "--python",
        str(venv / "bin/python"),
    )
    run(*install, "--requirement", str(chosen), f"{wheel}[{','.join(extras())}]")
    listed = subprocess.check_output([uv, "pip", "list", "--format", "json", "--python", str(venv / "bin/python")])
    print(lane, *(f"{each['name']}={each['version']}" for each in json.loads(listed) if each["name"] in own))


if __name__ == "__main__":
    main(*sys.argv[1:])
