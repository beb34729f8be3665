"""Processor time and peak memory of this process and of those below it (Linux)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["begin", "cpu_s", "peaks_mb"]


def begin() -> None:
    """Peaks count from here on."""
    for process in _tree(os.getpid()):
        try:
            (process / "clear_refs").write_text("5")
        except OSError:
            continue


def peaks_mb() -> dict[str, float]:
    """The peak resident memory in MB of the largest process by its program: ``java``, ``python3`` and so on; ``self``
    is this one."""
    found: dict[str, float] = {}
    for process in _tree(os.getpid()):
        try:
            name = "self" if process.name == str(os.getpid()) else (process / "comm").read_text().strip()
            peak = next(line for line in (process / "status").read_text().splitlines() if line.startswith("VmHWM"))
        except (OSError, StopIteration):
            continue
        found[name] = max(found.get(name, 0.0), int(peak.split()[1]) / 1024)
    return found


def cpu_s() -> float:
    """Seconds of processor time so far, of those that live and of those that they waited for."""
    ticks = 0
    for process in _tree(os.getpid()):
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _tree(pid: int) -> Iterator[Path]:
    process = Path("/proc", str(pid))
    yield process
    for listing in process.glob("task/*/children"):
        try:
            below = listing.read_text().split()
        except OSError:
            continue
        for child in below:
            yield from _tree(int(child))
