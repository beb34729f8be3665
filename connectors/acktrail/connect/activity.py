"""What a long call does now: reported by the working code, shown by the command that made the call.

A context variable carries the listener, so that jobs need no parameter for it; a thread or a worker process has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
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
