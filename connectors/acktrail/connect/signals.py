"""Signals that ask a run to end: it commits the records it has and ends."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType


@contextmanager
def stop_on_signals() -> Iterator[Event]:
    """An event that SIGINT and SIGTERM set; a second signal does what it did before. For the main thread only."""
    stop = Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def request_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()
        restore()

    for number in before:
        signal.signal(number, request_stop)
    try:
        yield stop
    finally:
        restore()
