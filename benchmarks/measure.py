"""Whole processes, measured: wall time, CPU of the process tree, peak memory."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One finished command: seconds of wall and CPU time, peak resident memory of the largest process in MB."""

    wall_s: float
    cpu_s: float
    peak_mb: float

    def __str__(self) -> str:
        return f"{self.wall_s:.2f} s, {self.cpu_s:.2f} s CPU"

    def ratio(self, peer: Run) -> str:
        """How much less of both this took than `peer`."""
        return f"{peer.wall_s / self.wall_s:.1f}x faster, {peer.cpu_s / self.cpu_s:.1f}x less CPU"


def run(command: Sequence[str], *, environment: dict[str, str] | None = None) -> Run:
    """Run a command to its end; what it prints is thrown away. Raises when it fails."""
    started = time.perf_counter()
    with subprocess.Popen(
        list(command),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **(environment or {})},
    ) as process:
        assert process.stderr is not None
        complaint = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - started
    if process.returncode:
        raise RuntimeError(f"{command[0]} failed: {complaint.decode(errors='replace')[-2000:]}")
    return Run(wall_s=wall, cpu_s=usage.ru_utime + usage.ru_stime, peak_mb=usage.ru_maxrss / 1024)


def in_turn(first: Sequence[str], second: Sequence[str], *, rounds: int) -> tuple[Run, Run]:
    """Medians of two commands run in turn, after one warm-up each."""
    run(first)
    run(second)
    pairs = [(run(first), run(second)) for _ in range(rounds)]
    return median([a for a, _ in pairs]), median([b for _, b in pairs])


def median(runs: Sequence[Run]) -> Run:
    """The median of each figure."""
    return Run(
        wall_s=statistics.median(r.wall_s for r in runs),
        cpu_s=statistics.median(r.cpu_s for r in runs),
        peak_mb=statistics.median(r.peak_mb for r in runs),
    )
