"""Pieces of work inside this process, one after the other in rounds, measured by the CPU time of their thread."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping

Work = Callable[[], float]
"""Does its work once and gives the CPU seconds that it took."""


def timed(work: Callable[[], object]) -> Work:
    """`work`, measured by the CPU time of this process, helper threads included."""

    def once() -> float:
        gc.collect()
        before = time.process_time()
        work()
        return time.process_time() - before

    return once


def rounds(works: Mapping[str, Work], *, count: int, warm_up: int = 2) -> dict[str, float]:
    """The median of each work's CPU seconds. All works run once in every round, so that what slows the machine down
    slows down all of them; the first `warm_up` rounds do not count."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for number in range(warm_up + count):
        for name, work in works.items():
            seconds = work()
            if number >= warm_up:
                found[name].append(seconds)
    return {name: statistics.median(times) for name, times in found.items()}
