"""A long call: what it does now, reported by the working code and shown by the command that made the call; and the
signals that ask it to end.

A context variable carries the listener, so that jobs need no parameter for it; a thread or a worker process has none.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event
from types import FrameType
from typing import Final

_Show = Callable[[str], None]
_LISTENER: Final[ContextVar[tuple[_Show, _Show] | None]] = ContextVar("acktrail_activity", default=None)


def doing(text: str, *, stays: bool = False) -> None:
    """Report to the listener, if there is one, what begins now: a few words without a full stop.

    `stays`: the user should find it afterwards.
    """
    listeners = _LISTENER.get()
    if listeners is not None:
        listeners[stays](text)


@contextmanager
def listening(listener: _Show, lasting: _Show | None = None) -> Iterator[None]:
    """Within the block, `listener` gets every ``doing`` of this thread; `lasting`, where given, those that stay."""
    token = _LISTENER.set((listener, lasting or listener))
    try:
        yield
    finally:
        _LISTENER.reset(token)


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
