"""Processes that end with their owner, until they are released from it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Final, Self

from acktrail.embedded.process import guardian
from acktrail.errors import MissingDependency

_MARGIN_S: Final = 20.0
_TICK_S: Final = 0.05
_PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A pid and when its process started (boot and clock ticks on Linux, ``ps`` elsewhere): no later process with the
    same pid is confused with it."""

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
        """Send a signal to this process, if it lives."""
        with contextlib.suppress(ProcessLookupError):
            if self.alive():
                os.kill(self.pid, number)

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
        command = ["ps", "-o", "lstart=", "-p", str(pid)]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    try:
        fields = _PROC.joinpath(str(pid), "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    boot = _PROC.joinpath("sys", "kernel", "random", "boot_id").read_text().strip()
    return "" if fields[0] in ("Z", "X") else f"{boot} {fields[19]}"


@dataclass(slots=True, eq=False, repr=False)
class GuardedProcess:
    """A child process that never outlives its owner, nor do its descendants, however the owner ends.

    Between the two stands a guardian (`acktrail.embedded.process.guardian`). The owner is the process that calls
    `start`. `env` None inherits; output is appended to `log_path`. `grace_s`: seconds between SIGTERM and SIGKILL.
    `remove`: a folder that the guardian deletes when the owner died without stopping the process.
    """

    command: Sequence[str]
    _: KW_ONLY
    log_path: Path
    env: Mapping[str, str] | None = None
    cwd: Path | None = None
    grace_s: float = 10.0
    remove: Path | None = None
    pid: int | None = field(default=None, init=False)
    """The command itself; None before the start."""
    _guardian: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def guardian_pid(self) -> int | None:
        """Pid of the guardian; None before the start."""
        return None if self._guardian is None else self._guardian.pid

    def start(self) -> Self:
        """Start the command. Raises MissingDependency when it cannot be executed."""
        if self._guardian is not None and self.poll() is None:
            raise RuntimeError(f"{self.command[0]} is already running")
        options = (os.getpid(), self.grace_s, self.remove or "", *self.command)
        with self.log_path.open("ab") as log:
            self._guardian = subprocess.Popen(
                [sys.executable, "-I", "-S", guardian.__file__, *map(str, options)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self.env,
                cwd=self.cwd,
                start_new_session=True,
            )
        try:
            self.pid = self._reported(self._guardian)
        except BaseException:
            self.stop()
            raise
        return self

    def poll(self) -> int | None:
        """None while the command or a descendant lives, else the command's exit code (128 + signal number)."""
        return None if self._guardian is None else self._guardian.poll()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for the end, at most `timeout_s` seconds; the result of `poll` then."""
        if self._guardian is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._guardian.wait(timeout_s)
        return self.poll()

    def stop(self) -> None:
        """End the command and all its descendants; returns when they are gone."""
        if self._guardian is None:
            return
        self._guardian.terminate()
        if self.wait(self.grace_s + _MARGIN_S) is None:
            self._guardian.kill()
            self._guardian.wait()

    def release(self) -> None:
        """Let the command continue without an owner; SIGTERM to the guardian ends it."""
        if self._guardian is None or self.poll() is not None:
            raise RuntimeError(f"{self.command[0]} does not run")
        self._guardian.send_signal(signal.SIGUSR1)
        self._guardian.returncode = 0  # no child to wait for any more, and none to be warned about
        self._guardian = None

    def _reported(self, started: subprocess.Popen[bytes]) -> int:
        """The command's pid, from the one line of the guardian."""
        assert started.stdout is not None
        with started.stdout as answer:
            kind, _, number = answer.readline().strip().partition(b" ")
        if kind != b"pid":
            reason = os.strerror(int(number)) if kind == b"error" else "its guardian ended"
            raise MissingDependency(f"cannot run {self.command[0]}: {reason}", hint=f"see {self.log_path}")
        return int(number)

    def __enter__(self) -> Self:
        return self if self._guardian is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
