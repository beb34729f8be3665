"""What a broker has to say when a test fails: trouble in its log, and what its threads wait for."""

from __future__ import annotations

import os
import re
import signal
from typing import Final

from embedded.processes import eventually

from acktrail.embedded import EmbeddedBroker

__all__ = ["diagnosis"]

_TROUBLE: Final = re.compile(r" (WARN|ERROR|FATAL) |OutOfMemory|deadlock|Too many open files", re.IGNORECASE)
_DUMP_ENDS: Final = "JNI global refs"
_THREAD: Final = re.compile(
    r'^"(?:data-plane-kafka-request-handler|group-coordinator-event|share-coordinator-event|persister|'
    r'kafka-[^"]*network-thread|executor-|[^"]*reaper)[^"]*"'
)
_IDLE: Final = (
    "RequestChannel.receiveRequest",
    "SystemTimer.advanceClock",
    "EventAccumulator.poll",
    "Selector.poll",
    "getTask",
)
_FRAMES: Final = 16
_LINES: Final = 15


def diagnosis(broker: EmbeddedBroker) -> str:
    """The last lines of trouble in its log, its deadlocks, and the stacks of the threads that serve requests: the JVM
    writes them into the log when it is asked by SIGQUIT, which needs no tool of a JDK."""
    if broker.pid is None:
        return "it does not run\n" + "\n".join(_lines(broker)[-_LINES:])
    before = len(_lines(broker))
    os.kill(broker.pid, signal.SIGQUIT)
    eventually(lambda: any(_DUMP_ENDS in line for line in _lines(broker)[before:]), within_s=10.0)
    log = _lines(broker)
    trouble = [line[:300] for line in log[:before] if _TROUBLE.search(line)][-_LINES:]
    return "\n".join([*trouble, *_stacks(log[before:])])


def _lines(broker: EmbeddedBroker) -> list[str]:
    log = broker.log_path
    return log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []


def _stacks(dump: list[str]) -> list[str]:
    """Of the threads that do something, or wait for something else than work."""
    found = [line for line in dump if "deadlock" in line.lower()]
    for stack in "\n".join(dump).split("\n\n"):
        lines = stack.splitlines()[:_FRAMES]
        if lines and _THREAD.match(lines[0]) and not any(idle in stack for idle in _IDLE):
            found += [line[:200] for line in lines]
    return found
