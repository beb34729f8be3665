"""Servers that modules of one process share, and that end with the last of these modules, not with the run: an idle
broker takes a hundredth of a core."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TypeVar

Server = TypeVar("Server")

_running: list[ExitStack] = []


@contextmanager
def shared_server(server: AbstractContextManager[Server]) -> Iterator[Server]:
    """`server` until `end_shared_servers`, or the end of the fixture that asks for it."""
    with ExitStack() as stack:
        _running.append(stack)
        yield stack.enter_context(server)


def end_shared_servers() -> None:
    """All that run. Who asks for one afterwards in the same run gets one that has ended."""
    while _running:
        _running.pop().close()
