"""Process trees for the tests: owners that die, commands with unruly descendants."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["DEFAULT_SIGNALS", "FAMILY", "eventually", "ignored_signals", "lives", "run_owner"]

DEFAULT_SIGNALS = (
    sys.executable,
    "-ISc",
    "import os, signal, sys\n"  # noqa: ISC004 (one argument)
    "for number in {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM}:\n"
    "    signal.signal(number, signal.SIG_DFL)\n"
    "signal.pthread_sigmask(signal.SIG_SETMASK, ())\n"
    "os.execv(sys.argv[1], sys.argv[1:])",
)
"""Prefix of a command that a test ends with a signal: ``nohup`` and ``&`` let a whole test run ignore some of them, and
a child inherits that."""

# A command with a child of its own session that ignores SIGTERM and has a child too. Each writes its pid to a file.
FAMILY = """
import os, signal, subprocess, sys, time
folder, depth = sys.argv[1], int(sys.argv[2])
if depth < 2:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.setsid()
if depth:
    subprocess.Popen([sys.executable, "-c", sys.orig_argv[2], folder, str(depth - 1)])
open(f"{folder}/{depth}.new", "w").write(str(os.getpid()))
os.rename(f"{folder}/{depth}.new", f"{folder}/{depth}.pid")
time.sleep(600)
"""


def lives(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def eventually(condition: Callable[[], bool], *, within_s: float = 120.0) -> bool:
    """Whether the condition holds before the deadline."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def run_owner(script: str, *arguments: str) -> subprocess.Popen[str]:
    """A Python process that owns what it starts, and that every signal ends."""
    command = (*DEFAULT_SIGNALS, sys.executable, "-c", script, *arguments)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextmanager
def ignored_signals() -> Iterator[None]:
    """What is started here inherits what ``nohup`` and a shell's ``&`` do: SIGHUP, SIGINT and SIGQUIT are ignored."""
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
