"""Runs one command and ends it, with all its descendants, when its owner is gone.

    python guardian.py [--owner-pid PID] [--owner-fd FD] [--report-fd FD] [--grace SECONDS] [--remove FOLDER]
                       -- COMMAND...

The owner holds the other end of the pipe `FD`. End of file on it, or the death of `PID`, means the owner is gone
however it died: the command gets SIGTERM, `SECONDS` later SIGKILL, and so does every process that descends from it,
in any session; `FOLDER` is removed. A byte ``s`` asks for the same without removing anything, a byte ``r``
releases the command: from then on it needs no owner. SIGTERM, SIGINT and SIGHUP to this process end it as ``s`` does.
The command starts with the default action of every signal and none blocked, also when the owner ignores some. It dies
with this process when that gets SIGKILL. On `--report-fd` one line is written:
``pid COMMAND_PID`` or ``error ERRNO``.

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


class Options:
    """The command line: `owner_pid`, `owner_fd`, `report_fd` are None where not given."""

    def __init__(self, arguments: Sequence[str]) -> None:
        at = list(arguments).index("--")
        self.command = list(arguments[at + 1 :])
        given = dict(zip(arguments[:at:2], arguments[1:at:2], strict=True))
        self.owner_pid = _number(given.get("--owner-pid"))
        self.owner_fd = _number(given.get("--owner-fd"))
        self.report_fd = _number(given.get("--report-fd"))
        self.grace_s = float(given.get("--grace", "10"))
        self.remove = given.get("--remove")
        for fd in (self.owner_fd, self.report_fd):
            if fd is not None:
                fcntl.fcntl(fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _prctl(option: int, value: int) -> None:
    if _LINUX:
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


class Alarm:
    """Wakes a wait when a signal arrives, or the owner sends a command or dies."""

    def __init__(self, options: Options) -> None:
        self.ending = False
        self.owner_died = False
        self._wake, writer = os.pipe()
        for fd in (self._wake, writer):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in _ENDING:
            signal.signal(number, self._end)
        self._poll = select.poll()
        self._poll.register(self._wake, select.POLLIN)
        self._owner_fd = options.owner_fd
        self._owner: set[int] = set()
        if options.owner_fd is not None:
            self._watch(options.owner_fd)
        if options.owner_pid is not None:
            self._watch_process(options.owner_pid)

    def _watch(self, fd: int) -> None:
        self._owner.add(fd)
        self._poll.register(fd, select.POLLIN | select.POLLHUP)

    def _watch_process(self, pid: int) -> None:
        """Processes that the owner forked may hold the pipe open when it dies, so watch the owner itself as well."""
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._watch(os.pidfd_open(pid))
        if os.getppid() != pid:
            self.ending = self.owner_died = True

    def _end(self, *_: object) -> None:
        self.ending = True

    def wait(self, seconds: float) -> None:
        """Wait for a signal or for the owner, at most `seconds` (negative: without end)."""
        for fd, _ in self._poll.poll(seconds * 1000 if seconds >= 0 else None):
            if fd == self._wake:
                with contextlib.suppress(BlockingIOError):
                    os.read(fd, 4096)
            elif fd in self._owner:
                self._take_command(os.read(fd, 1) if fd == self._owner_fd else b"")

    def _take_command(self, command: bytes) -> None:
        """The owner's command; an empty one means that it is dead."""
        for fd in self._owner:
            self._poll.unregister(fd)
        self._owner.clear()
        self.ending |= command != b"r"
        self.owner_died |= not command


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
            os.execvp(command[0], command)  # noqa: S606 (the command is the owner's)
    except OSError as error:
        os.write(writer, str(error.errno).encode())
    finally:
        os._exit(127)


def _await(alarm: Alarm, tree: ProcessTree) -> None:
    """Wait until the command ends or has to be ended."""
    tree.reap()
    while tree.status is None and not alarm.ending:
        alarm.wait(-1)
        tree.reap()


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


def _report(fd: int | None, line: str) -> None:
    if fd is not None:
        with contextlib.suppress(OSError):
            os.write(fd, f"{line}\n".encode())
            os.close(fd)


def _remove(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def main(arguments: Sequence[str]) -> int:
    """Run, watch, end. The exit code is the command's (128 + number when a signal ended it)."""
    options = Options(arguments)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the thread that started this process may block signals
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    alarm = Alarm(options)
    child, failure = _start(options.command)
    tree = ProcessTree(child)
    _report(options.report_fd, f"error {failure}" if failure else f"pid {child}")
    _await(alarm, tree)
    _end(alarm, tree, options.grace_s)
    if options.remove and alarm.owner_died:
        _remove(options.remove)
    status = 1 if tree.status is None else tree.status
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
