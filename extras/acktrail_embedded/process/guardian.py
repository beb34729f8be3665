"""Runs one command and ends it, with all its descendants, when its owner is gone.

    python guardian.py OWNER_PID GRACE_SECONDS FOLDER COMMAND...

The owner is the parent of this process. It is gone, however it died, when this process has another parent: the command
gets SIGTERM, `GRACE_SECONDS` later SIGKILL, and so does every process that descends from it, in any session; `FOLDER`
is removed (empty: none). SIGTERM, SIGINT and SIGHUP to this process end the command without removing anything. SIGUSR1
releases it: from then on it needs no owner. The command starts with the default action of every signal and none
blocked, and writes to this process's standard error. On Linux it dies with this process when that gets SIGKILL. One
line is written to standard output: ``pid COMMAND_PID`` or ``error ERRNO``.

Standard library only and run by path, so that it starts fast. Where the system is not Linux, descendants are found by
the command's process group.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

_LINUX: Final = sys.platform.startswith("linux")
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_UNCHANGEABLE: Final = {signal.SIGKILL, signal.SIGSTOP}
_TICK_S: Final = 0.05
_STRAGGLERS_S: Final = 2.0
_GIVE_UP_S: Final = 10.0


def _prctl(option: int, value: int) -> None:
    if _LINUX:
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


class Owner:
    """The process that wants the command, and what it asked for by signals."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._heard: set[int] = set()
        for number in (*_ENDING, signal.SIGUSR1):
            signal.signal(number, lambda heard, _: self._heard.add(heard))

    @property
    def is_ending(self) -> bool:
        """Whether it asked for the end."""
        return not self._heard.isdisjoint(_ENDING)

    def is_gone(self) -> bool:
        """Whether the owner died before it released the command."""
        return os.getppid() != self._pid and signal.SIGUSR1 not in self._heard


class ProcessTree:
    """The command and everything that descends from it."""

    def __init__(self, child: int) -> None:
        self.child = child
        self.status: int | None = None

    def reap(self) -> None:
        """Collect every child that ended; orphaned descendants are our children too."""
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == self.child:
                    self.status = os.waitstatus_to_exitcode(found[1])

    def members(self) -> list[int]:
        """Pids of all living descendants (off Linux: the command's process group, as a negative number)."""
        self.reap()
        if _LINUX:
            return _descendants(os.getpid())
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child, 0)
            return [-self.child]
        return []

    def signal(self, number: int) -> None:
        """Send a signal to every descendant."""
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def end(self, grace_s: float) -> None:
        """The command first, so that it can end its own children in order; then every descendant that is left."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child, signal.SIGTERM)
            _wait_while(self._is_running, grace_s)
        if self.status is not None and self.members():
            self.signal(signal.SIGTERM)
            _wait_while(self.members, min(grace_s, _STRAGGLERS_S))
        deadline = time.monotonic() + _GIVE_UP_S
        while self.members() and time.monotonic() < deadline:
            self.signal(signal.SIGKILL)
            time.sleep(_TICK_S)

    def _is_running(self) -> bool:
        self.reap()
        return self.status is None


def _wait_while(condition: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while condition() and time.monotonic() < deadline:
        time.sleep(_TICK_S)


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        children.setdefault(_living_parent(entry), []).append(int(entry))
    found: list[int] = []
    level = [root]
    while level:
        level = [child for pid in level for child in children.get(pid, ())]
        found += level
    return found


def _living_parent(pid: str) -> int:
    """The parent of a process, or 0 when it has ended (a zombie's children already belong to this process)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            state, parent = stat.read().rpartition(b")")[2].split()[:2]
    except OSError:
        return 0
    return 0 if state in (b"Z", b"X") else int(parent)


def _as_a_new_process() -> None:
    for number in signal.valid_signals() - _UNCHANGEABLE:
        signal.signal(number, signal.SIG_DFL)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _report(line: str) -> None:
    with contextlib.suppress(OSError):  # the owner may be gone
        os.write(1, f"{line}\n".encode())


def main(arguments: Sequence[str]) -> int:
    """Run, watch, end. The exit code is the command's (128 + number when a signal ended it)."""
    owner_pid, grace_s, remove, *command = arguments
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the thread that started this process may block signals
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    owner = Owner(int(owner_pid))
    try:
        child = subprocess.Popen(
            command,
            stdout=2,
            stderr=2,
            start_new_session=True,
            preexec_fn=_as_a_new_process,  # noqa: PLW1509  # this process has one thread
        )
    except OSError as error:
        _report(f"error {error.errno}")
        return 127
    tree = ProcessTree(child.pid)
    _report(f"pid {child.pid}")
    while tree.status is None and not (owner.is_ending or owner.is_gone()):
        time.sleep(_TICK_S)
        tree.reap()
    has_died = not owner.is_ending and owner.is_gone()
    tree.end(float(grace_s))
    if remove and has_died:
        shutil.rmtree(remove, ignore_errors=True)
    status = 1 if tree.status is None else tree.status
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
