"""All benchmarks, one table: figures measured side by side in one run. `python benchmarks/run.py [NAME ...]`."""

from __future__ import annotations

import os
import platform
import sys

import decode
import describe
import export
import replay
import reset_plan
import scale
import spark

BENCHMARKS = {
    "decode": decode.compare,
    "replay": replay.compare,
    "scale": scale.compare,
    "export": lambda: export.compare(1_000_000),
    "describe": describe.compare,
    "reset": reset_plan.compare,
    "spark": spark.compare,
}


def main(names: list[str]) -> None:
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    for name in names or BENCHMARKS:
        print(f"\n{name}")
        for what, figure in BENCHMARKS[name]():
            print(f"  {what:<48} {figure}")


if __name__ == "__main__":
    main(sys.argv[1:])
