"""What a long call does now: reported by the working code, shown by the command that made the call.

A context variable carries the listener, so that jobs need no parameter for it; a thread or a worker process has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_LISTENER: Final[ContextVar[Callable[[str], None] | None]] = ContextVar("acktrail_activity", default=None)


def doing(text: str) -> None:
    """Report to the listener, if there is one, what begins now: a few words without a full stop."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(text)


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Within the block, `listener` gets every ``doing`` of this thread."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)
