"""Runs one command and ends it, with all its descendants, when its owner is gone.

    python guardian.py OWNER_PID OWNER_FD REPORT_FD GRACE_SECONDS FOLDER COMMAND...

The owner holds the other end of the pipe `OWNER_FD`. End of file on it, or the death of `OWNER_PID`, means the owner is
gone however it died: the command gets SIGTERM, `GRACE_SECONDS` later SIGKILL, and so does every process that descends
from it, in any session; `FOLDER` is removed (empty: none). A byte ``s`` asks for the same without removing anything, a
byte ``r`` releases the command: from then on it needs no owner. SIGTERM, SIGINT and SIGHUP to this process end it as
``s`` does. The command starts with the default action of every signal and none blocked, also when the owner ignores
some. It dies with this process when that gets SIGKILL. On `REPORT_FD` one line is written: ``pid COMMAND_PID`` or
``error ERRNO``.

Standard library only and run by path, so that it starts in some ten milliseconds. Where the system is not Linux,
descendants are found by the command's process group.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from typing import Final, NoReturn

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


class Alarm:
    """Wakes a wait when a signal arrives, or the owner sends a command or dies."""

    def __init__(self, owner_pid: int, owner_fd: int) -> None:
        self.ending = False
        self.owner_died = False
        self._wake, writer = os.pipe()
        for fd in (self._wake, writer):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in _ENDING:
            signal.signal(number, self._end)
        self._owner_fd = owner_fd
        self._owner = [owner_fd]
        # Processes that the owner forked may hold the pipe open when it dies, so watch the owner itself as well.
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._owner.append(os.pidfd_open(owner_pid))
        if os.getppid() != owner_pid:
            self.ending = self.owner_died = True
        self._poll = select.poll()
        self._poll.register(self._wake, select.POLLIN)
        for fd in self._owner:
            self._poll.register(fd, select.POLLIN | select.POLLHUP)

    def _end(self, *_: object) -> None:
        self.ending = True

    def wait(self, seconds: float) -> None:
        """Wait for a signal or for the owner, at most `seconds` (negative: without end)."""
        for fd, _ in self._poll.poll(seconds * 1000 if seconds >= 0 else None):
            if fd == self._wake:
                with contextlib.suppress(BlockingIOError):
                    os.read(fd, 4096)
            elif fd in self._owner:
                command = os.read(fd, 1) if fd == self._owner_fd else b""
                for each in self._owner:
                    self._poll.unregister(each)
                self._owner.clear()
                self.ending |= command != b"r"
                self.owner_died |= not command  # end of file, or the process itself


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


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            parent = _living_parent(entry)
            children.setdefault(parent, []).append(int(entry))
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


def _start(command: list[str]) -> tuple[int, int]:
    """Fork and execute; the command's pid and the error number of a failed execution (0 when it runs)."""
    reader, writer = os.pipe()
    guardian = os.getpid()
    child = os.fork()
    if child == 0:
        _execute(command, guardian, writer)
    os.close(writer)
    failure = os.read(reader, 16)
    os.close(reader)
    return child, int(failure or b"0")


def _execute(command: list[str], guardian: int, writer: int) -> NoReturn:
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - _UNCHANGEABLE:
            signal.signal(number, signal.SIG_DFL)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == guardian:
            os.execvp(command[0], command)  # noqa: S606  # the command is the owner's
    except OSError as error:
        os.write(writer, str(error.errno).encode())
    finally:
        os._exit(127)


def _end(alarm: Alarm, tree: ProcessTree, grace_s: float) -> None:
    """The command first, so that it can end its own children in order; then every descendant that is left."""
    if tree.status is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(tree.child, signal.SIGTERM)
        _wait_until_gone(alarm, tree, grace_s, only_command=True)
    if tree.status is not None and tree.members():
        tree.signal(signal.SIGTERM)
        _wait_until_gone(alarm, tree, min(grace_s, _STRAGGLERS_S))
    deadline = time.monotonic() + _GIVE_UP_S
    while tree.members() and time.monotonic() < deadline:
        tree.signal(signal.SIGKILL)
        alarm.wait(_TICK_S)


def _wait_until_gone(alarm: Alarm, tree: ProcessTree, seconds: float, *, only_command: bool = False) -> None:
    deadline = time.monotonic() + seconds
    while (tree.status is None if only_command else tree.members()) and time.monotonic() < deadline:
        alarm.wait(_TICK_S)
        tree.reap()


def main(arguments: Sequence[str]) -> int:
    """Run, watch, end. The exit code is the command's (128 + number when a signal ended it)."""
    owner_pid, owner_fd, report_fd = map(int, arguments[:3])
    grace_s, remove, *command = float(arguments[3]), *arguments[4:]
    for fd in (owner_fd, report_fd):
        fcntl.fcntl(fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the thread that started this process may block signals
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    alarm = Alarm(owner_pid, owner_fd)
    child, failure = _start(command)
    tree = ProcessTree(child)
    with contextlib.suppress(OSError):
        os.write(report_fd, (f"error {failure}\n" if failure else f"pid {child}\n").encode())
        os.close(report_fd)
    tree.reap()
    while tree.status is None and not alarm.ending:
        alarm.wait(-1)
        tree.reap()
    _end(alarm, tree, grace_s)
    if remove and alarm.owner_died:
        import shutil

        shutil.rmtree(remove, ignore_errors=True)
    status = 1 if tree.status is None else tree.status
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
