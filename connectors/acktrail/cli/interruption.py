"""Signals that ask a command to end, as one exception, so that the command can report how far it came."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN_S: Final = 0.5


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt inside the block; one that was ignored before stays so. For
    the main thread only. It is raised again twice a second until the block is left: a library may catch an exception
    that it does not expect and continue (kafka-python's event loop does)."""
    alarms: list[Any] = []  # the handler of SIGALRM before, once asked
    is_over = False

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if is_over:
            return
        if not alarms:
            alarms.append(signal.signal(signal.SIGALRM, interrupt))
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S, _AGAIN_S)
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    taken = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in taken:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        is_over = True
        if alarms:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, alarms[0])
        for number in taken:
            signal.signal(number, before[number])
