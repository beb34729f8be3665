"""Processes that end with their owner, until they are released from it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from acktrail.embedded.process import guardian
from acktrail.embedded.process.process_identity import ProcessIdentity
from acktrail.errors import MissingDependency

_MARGIN_S: Final = 20.0


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
    _guardian: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _tether: BinaryIO | None = field(default=None, init=False)
    _pid: int | None = field(default=None, init=False)

    @property
    def pid(self) -> int | None:
        """Pid of the command itself; None before the start."""
        return self._pid

    @property
    def guardian_pid(self) -> int | None:
        """Pid of the guardian; None before the start."""
        return None if self._guardian is None else self._guardian.pid

    def start(self) -> Self:
        """Start the command. Raises MissingDependency when it cannot be executed."""
        if self._guardian is not None and self.poll() is None:
            raise RuntimeError(f"{self.command[0]} is already running")
        reader, writer = os.pipe()
        self._tether = os.fdopen(writer, "wb", buffering=0)
        try:
            self._guardian, report = self._spawn(reader)
            self._pid = self._started_pid(report)
        except BaseException:
            self.stop()
            raise
        finally:
            os.close(reader)
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
        self._send(b"s")
        if self._guardian is None:
            return
        if self.wait(self.grace_s + _MARGIN_S) is None:
            self._guardian.kill()
            self._guardian.wait()

    def kill(self) -> None:
        """SIGKILL the command, without warning; returns when it is gone."""
        if self._pid is not None and self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self.wait(_MARGIN_S)
        self.stop()

    def release(self) -> ProcessIdentity:
        """Let the command continue without an owner; SIGTERM to the guardian, whose identity is returned, ends it."""
        if self._guardian is None or self.poll() is not None:
            raise RuntimeError(f"{self.command[0]} does not run")
        identity = ProcessIdentity.of(self._guardian.pid)
        self._send(b"r")
        self._guardian.returncode = 0  # no child to wait for any more, and none to be warned about
        self._guardian = None
        return identity

    def _send(self, command: bytes) -> None:
        """Send the guardian its last command."""
        if self._tether is not None:
            with contextlib.suppress(OSError):
                self._tether.write(command)
            self._tether.close()
            self._tether = None

    def _spawn(self, reader: int) -> tuple[subprocess.Popen[bytes], bytes]:
        """Start the guardian with its end of the tether; it and the line it reports."""
        report, writer = os.pipe()
        options = ["--owner-pid", str(os.getpid()), "--owner-fd", str(reader), "--report-fd", str(writer)]
        options += ["--grace", str(self.grace_s)]
        if self.remove is not None:
            options += ["--remove", str(self.remove)]
        with os.fdopen(report, "rb") as answer:
            try:
                with self.log_path.open("ab") as log:
                    process = subprocess.Popen(
                        [sys.executable, "-I", "-S", guardian.__file__, *options, "--", *self.command],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        env=self.env,
                        cwd=self.cwd,
                        pass_fds=(reader, writer),
                        start_new_session=True,
                    )
            finally:
                os.close(writer)
            return process, answer.readline()

    def _started_pid(self, report: bytes) -> int:
        """The command's pid. Raises MissingDependency when it did not start."""
        kind, _, number = report.strip().partition(b" ")
        if kind == b"pid":
            return int(number)
        reason = os.strerror(int(number)) if kind == b"error" else "its guardian ended"
        raise MissingDependency(f"cannot run {self.command[0]}: {reason}", hint=f"see {self.log_path}")

    def __enter__(self) -> Self:
        return self if self._guardian is not None else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
