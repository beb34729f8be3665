"""Runs a command and everything that it starts to its end: ``python whole_tree.py COMMAND...`` prints seconds of wall
and CPU time and the largest process in MB as one JSON object (Linux).

A process that outlives its parent (PySpark's JVM does, for a moment) is adopted and waited for, so its CPU time counts.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from measure import Run

__all__ = ["run_whole"]

_PR_SET_CHILD_SUBREAPER = 36


def run_whole(command: Sequence[str]) -> Run:
    """Run a command; what it prints is thrown away. Raises RuntimeError when it fails."""
    done = subprocess.run([sys.executable, __file__, *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:3])} failed: {done.stderr[-2000:]}")
    return Run(**json.loads(done.stdout))


def main(command: Sequence[str]) -> int:
    """Print the figures of `command`; its exit code."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    started = time.perf_counter()
    code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False).returncode
    wall_s = time.perf_counter() - started
    with contextlib.suppress(ChildProcessError):
        while os.wait():
            pass
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures = {"wall_s": wall_s, "cpu_s": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss / 1024}
    Path("/dev/stdout").write_text(json.dumps(figures))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
