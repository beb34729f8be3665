"""Callers that begin a request and never end it, and processes that may open few files."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

__all__ = ["half_sent", "with_few_files"]


def with_few_files(limit: int, command: Sequence[str]) -> list[str]:
    """`command` as one that may open `limit` files."""
    return ["bash", "-c", f'ulimit -n {limit}; exec "$@"', "bash", *command]


@contextmanager
def half_sent(address: str, count: int) -> Iterator[list[socket.socket]]:
    """`count` connections, each with the first lines of a request, open within the block."""
    host, _, port = address.rpartition(":")
    with ExitStack() as opened:
        found = []
        for _ in range(count):
            found.append(opened.enter_context(socket.create_connection((host, int(port)), timeout=30)))
            found[-1].sendall(f"GET / HTTP/1.1\r\nHost: {address}\r\n".encode())
        yield found
