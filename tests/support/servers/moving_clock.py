"""A wall clock for one process that a test moves by hours while the process runs, also below Python: a library that is
loaded before the C library's own functions."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ["MovingClock", "moving_clock"]

_SOURCE = Path(__file__).with_name("moving_clock.c")


@dataclass(frozen=True, slots=True)
class MovingClock:
    """`library` and the file with the seconds that are added to the real time."""

    library: Path
    seconds: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process is started with so that it has this clock."""
        return {"LD_PRELOAD": str(self.library), "ACKTRAIL_CLOCK": str(self.seconds)}

    def move(self, hours: float) -> None:
        """From now on the clock is so many hours ahead of the real time (below 0: behind)."""
        with self.seconds.open("r+b") as file:
            file.write(struct.pack("l", int(hours * 3600)))


def moving_clock(folder: Path) -> MovingClock:
    """A clock that shows the real time; skips where it cannot be built."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or os.uname().sysname != "Linux":
        pytest.skip("no clock that can be moved: it is built by a C compiler on Linux")
    clock = MovingClock(folder / "moving_clock.so", folder / "seconds")
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(clock.library), str(_SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no clock that can be moved: {compiler} failed: {done.stderr.strip()}")
    clock.seconds.write_bytes(struct.pack("l", 0))
    return clock
