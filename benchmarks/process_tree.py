"""Processor time and peak memory of this process and of those below it (Linux)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Watch", "begin", "cpu_s", "peaks_mb", "resident_mb"]


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


def resident_mb(pid: int) -> float:
    """The memory in MB that the process `pid` and those below it hold now; pages that several share count for each."""
    pages = 0
    for process in _tree(pid):
        try:
            pages += int((process / "statm").read_text().split()[1])
        except (OSError, IndexError):
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


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


class Watch:
    """Processor time of a process and of all that were ever seen below it, also of those whose end nobody awaits."""

    def __init__(self) -> None:
        self._ticks: dict[str, int] = {}

    def look(self, pid: int) -> None:
        """See who is there. What a process does after the last look at it does not count."""
        for process in _tree(pid):
            try:
                fields = (process / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            self._ticks[f"{process.name}/{fields[19]}"] = int(fields[11]) + int(fields[12])

    @property
    def cpu_s(self) -> float:
        """Seconds so far."""
        return sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")


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
