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
from typing import Final

ROOT: Final = Path(__file__).parents[1]
OLDEST_AIRFLOW: Final = "2025-10-01"
"""The day on which Airflow 3.1.0, the lowest of the range, was the newest."""
NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


def required() -> dict[str, str]:
    """Every requirement of acktrail and its extras by its package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    of_extras = (each for extra in project["optional-dependencies"].values() for each in extra)
    found = {match[0]: each for each in (*project["dependencies"], *of_extras) if (match := NAME.match(each))}
    return {name: each for name, each in found.items() if name != "acktrail"}


def main(lane: str, uv: str, python: str, wheel: str, folder: str) -> None:
    """Resolve, install, and print what was chosen of acktrail's own requirements."""
    chosen, own = Path(folder) / "versions.txt", required()
    compiled = (uv, "pip", "compile", "--quiet", "--no-config", "--python", python)
    everything = ("--all-extras", "--group", "test", "pyproject.toml")

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
    run(*install, "--requirement", str(chosen), f"{wheel}[all]")
    listed = subprocess.check_output([uv, "pip", "list", "--format", "json", "--python", str(venv / "bin/python")])
    print(lane, *(f"{each['name']}={each['version']}" for each in json.loads(listed) if each["name"] in own))


if __name__ == "__main__":
    main(*sys.argv[1:])
