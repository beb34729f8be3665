"""All benchmarks, one table: figures measured side by side in one run. `python benchmarks/run.py [NAME ...]`."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import day
import decode
import describe
import export
import fate
import history_changes
import maintenance
import pages
import readers
import reconcile
import replay
import reset_plan
import soak
import spark
import statuses
import steady
import validation
from table import Row, heading, lines

from acktrail_embedded import EmbeddedBroker

BENCHMARKS: dict[str, Callable[..., list[Row]]] = {
    "decode": decode.compare,
    "replay": replay.compare,
    "export": export.compare,
    "readers": readers.compare,
    "steady": steady.compare,
    "soak": soak.compare,
    "history": history_changes.compare,
    "fate": fate.compare,
    "describe": describe.compare,
    "reset": reset_plan.compare,
    "maintenance": maintenance.compare,
    "statuses": statuses.compare,
    "pages": pages.compare,
    "spark": spark.compare,
    "reconcile": reconcile.compare,
    "validation": validation.compare,
    "day": day.compare,
}
"""What runs, in this order. Keyword arguments make each smaller: the tests run all of them so."""

OF_BRANCHES = frozenset({"gate_cost", "expansion_audit"})
"""Those that need the branch of expansions; where it is, they run last."""
if find_spec("acktrail_expansion"):
    BENCHMARKS |= {name: import_module(name).compare for name in sorted(OF_BRANCHES)}

ON_A_BROKER = frozenset({"export", "describe", "reset"})
"""Those whose first argument is a fresh broker."""

_ALONE = "--alone"


def main(names: list[str]) -> None:
    """Each benchmark in a process of its own: the memory that one took is in no other's figures."""
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(*heading(), sep="\n", flush=True)
    for name in names or BENCHMARKS:
        subprocess.run([sys.executable, __file__, _ALONE, name], check=True)


def part(name: str, **smaller: Any) -> list[str]:
    """The table's lines for one benchmark."""
    if name not in ON_A_BROKER:
        return lines(name, BENCHMARKS[name](**smaller))
    with EmbeddedBroker() as broker:
        return lines(name, BENCHMARKS[name](broker, **smaller))


if __name__ == "__main__":
    if sys.argv[1:2] == [_ALONE]:
        print(*part(sys.argv[2]), sep="\n")
    else:
        main(sys.argv[1:])
