"""A disk that is soon full: a file system of its own in memory, where this user may make one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ["SmallDisk", "small_disk"]

_BALLAST = "ballast"


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """The file system at `folder`."""

    folder: Path

    def fill(self) -> None:
        """Leave no room, not even for an empty file's name."""
        with (self.folder / _BALLAST).open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while file.write(bytes(size)):
                        pass
                except OSError:
                    continue

    def make_room(self) -> None:
        """Take away what ``fill`` wrote."""
        (self.folder / _BALLAST).unlink()


@contextmanager
def small_disk(folder: Path, size_mib: int) -> Iterator[SmallDisk]:
    """A disk of `size_mib` at `folder` that ends with the block; skips where this user may mount nothing."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "acktrail-tests", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip()
        pytest.skip(f"no disk that can be full: {said}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
