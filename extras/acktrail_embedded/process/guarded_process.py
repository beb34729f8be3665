"""Processes that end with their owner, until they are released from it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Final, Self

from acktrail.errors import ConfigurationError, MissingDependency
from acktrail_embedded.process import guardian

_MARGIN_S: Final = 20.0


def is_held(lock: Path) -> bool:
    """Whether a process that was started with `lock` lives, or a descendant of it."""
    try:
        with lock.open("r") as opened:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@dataclass(slots=True, eq=False, repr=False)
class GuardedProcess:
    """A child process that never outlives its owner, nor do its descendants, however the owner ends.

    Between the two stands a guardian (`acktrail_embedded.process.guardian`). The owner is the process that calls
    `start`. `env` None inherits; output is appended to `log_path`. `grace_s`: seconds between SIGTERM and SIGKILL.
    `remove`: a folder that the guardian deletes when the owner died without stopping the process. `lock`: a file that
    the guardian holds locked as long as it lives (`is_held`); a pid can be another's by then.
    """

    command: Sequence[str]
    _: KW_ONLY
    log_path: Path
    env: Mapping[str, str] | None = None
    cwd: Path | None = None
    grace_s: float = 10.0
    remove: Path | None = None
    lock: Path | None = None
    pid: int | None = field(default=None, init=False)
    """The command itself; None before the start."""
    _guardian: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def guardian_pid(self) -> int | None:
        """Pid of the guardian; None before the start."""
        return None if self._guardian is None else self._guardian.pid

    def start(self) -> Self:
        """Start the command. Raises MissingDependency when it cannot be executed, ConfigurationError when its lock is
        held."""
        if self._guardian is not None and self.poll() is None:
            raise RuntimeError(f"{self.command[0]} is already running")
        options = (os.getpid(), self.grace_s, self.remove or "", *self.command)
        with contextlib.ExitStack() as opened:
            log = opened.enter_context(self.log_path.open("ab"))
            held = [] if self.lock is None else [opened.enter_context(self.lock.open("w"))]
            try:
                for each in held:
                    fcntl.flock(each, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                folder = self.log_path.parent if self.lock is None else self.lock.parent
                raise ConfigurationError(
                    f"another process runs in {folder}", hint="stop it, or name another folder"
                ) from None
            self._guardian = subprocess.Popen(
                [sys.executable, "-I", "-S", guardian.__file__, *map(str, options)],
                pass_fds=[each.fileno() for each in held],
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
            raise RuntimeError(f"{self.command[0]} is not running")
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
