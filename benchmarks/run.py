"""All benchmarks, one table: figures measured side by side in one run. `python benchmarks/run.py [NAME ...]`."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import decode
import describe
import export
import fate
import replay
import reset_plan
import scale
import spark
from table import heading, lines

BENCHMARKS = {
    "decode": decode.compare,
    "replay": replay.compare,
    "scale": scale.compare,
    "export": lambda: export.compare(1_000_000),
    "fate": fate.compare,
    "describe": describe.compare,
    "reset": reset_plan.compare,
    "spark": spark.compare,
}
_ALONE = "--alone"


def main(names: list[str]) -> None:
    """Each benchmark in a process of its own: the memory that one took is in no other's figures."""
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(*heading(), sep="\n", flush=True)
    for name in names or BENCHMARKS:
        subprocess.run([sys.executable, __file__, _ALONE, name], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == [_ALONE]:
        print(*lines(sys.argv[2], BENCHMARKS[sys.argv[2]]()), sep="\n")
    else:
        main(sys.argv[1:])
