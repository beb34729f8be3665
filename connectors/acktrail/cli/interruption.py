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
    the main thread only.

    It is raised again twice a second until the block is left: a library may catch an exception that it does not expect
    and continue (kafka-python's event loop does).
    """
    interruption = _Interruption()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    taken = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in taken:
        signal.signal(number, interruption.interrupt)
    try:
        yield
    finally:
        interruption.end()
        for number in taken:
            signal.signal(number, before[number])


class _Interruption:
    """Raises once it was asked to, and again by the clock until its end."""

    def __init__(self) -> None:
        self._alarm: Any = None
        self._is_asked = False
        self._is_over = False

    def interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_over:
            return
        if not self._is_asked:
            self._is_asked = True
            self._alarm = signal.signal(signal.SIGALRM, self.interrupt)
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S, _AGAIN_S)
        raise KeyboardInterrupt

    def end(self) -> None:
        self._is_over = True
        if self._is_asked:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._alarm)
