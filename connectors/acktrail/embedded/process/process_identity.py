"""A process that is not confused with a later one with the same pid."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_PROC: Final = Path("/proc")
_TICK_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A pid and when its process started (boot and clock ticks on Linux, ``ps`` elsewhere)."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Self:
        """The identity of a living process. Raises ProcessLookupError when there is none."""
        started = _started(pid)
        if not started:
            raise ProcessLookupError(pid)
        return cls(pid=pid, started=started)

    def alive(self) -> bool:
        """Whether exactly this process lives."""
        return _started(self.pid) == self.started

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to this process, never to another one that got its pid."""
        with contextlib.suppress(ProcessLookupError):
            if not hasattr(os, "pidfd_open"):
                if self.alive():
                    os.kill(self.pid, number)
                return
            handle = os.pidfd_open(self.pid)
            try:
                if self.alive():
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is gone; False when it still lives after `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(_TICK_S)
        return True


def _started(pid: int) -> str:
    """When the process started, or nothing when it has ended (a zombie has)."""
    if not _PROC.joinpath("self", "stat").exists():
        return _started_by_ps(pid)
    try:
        fields = _PROC.joinpath(str(pid), "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    boot = _PROC.joinpath("sys", "kernel", "random", "boot_id").read_text().strip()
    return "" if fields[0] in ("Z", "X") else f"{boot} {fields[19]}"


def _started_by_ps(pid: int) -> str:
    answer = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return answer.stdout.strip()
