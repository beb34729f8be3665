"""A listening socket with a bounded number of open connections: callers cannot take the files that the work needs."""

from __future__ import annotations

import resource
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

PATIENCE_S: Final = 10.0
"""Seconds that a caller may take to begin a request, to send it, and to take each 64 KiB of the answer."""
_MOST: Final = 256
_LEAST: Final = 8
_SHARE: Final = 8
_CREDENTIALS: Final = struct.Struct("3i")
"""Process, user and group."""


def most_connections(soft_limit: int) -> int:
    """How many connections one listener may hold of a process that may open `soft_limit` files: an eighth of them.

    >>> most_connections(1_024), most_connections(resource.RLIM_INFINITY)
    (128, 256)
    """
    share = _MOST if soft_limit == resource.RLIM_INFINITY else soft_limit // _SHARE
    return max(_LEAST, min(_MOST, share))


@dataclass(slots=True)
class _Connection:
    """`waits_since` None: the server works on an answer."""

    socket: socket.socket
    waits_since: float | None


class LocalCaller(socket.socket):
    """A connection of a Unix socket. Its address is the caller's user and a number of its own: servers distinguish
    connections by their addresses."""

    def __init__(self, connection: socket.socket, number: int) -> None:
        super().__init__(fileno=connection.detach())
        _, user, _ = _CREDENTIALS.unpack(self.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        self._name = (f"user {user}", number)

    def getpeername(self) -> tuple[str, int]:
        return self._name


class BoundedListener(socket.socket):
    """Takes over a listening socket. While it holds as many connections as it may, a new one takes the place of the one
    that has waited longest for its caller: for a request, or until the caller takes the answer. Where the server works
    for all of them, the new one is closed. The server reports what it does by ``working``."""

    def __init__(
        self, listening: socket.socket, *, most: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`most` None: by this process's limit of open files."""
        super().__init__(fileno=listening.detach())
        self.most: Final = most or most_connections(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._clock = clock
        self._numbers = count(1)
        self._connections: dict[Any, _Connection] = {}

    def accept(self) -> tuple[socket.socket, Any]:
        """As a socket's. Raises BlockingIOError: not now; servers ask again."""
        self.close_late()
        is_full = len(self._connections) >= self.most
        if is_full and self._close_longest_waiting():
            raise BlockingIOError
        connection, address = super().accept()
        if self.family == socket.AF_UNIX:
            connection = LocalCaller(connection, next(self._numbers))
            address = connection.getpeername()
        if is_full:
            connection.close()
            raise BlockingIOError
        connection.settimeout(PATIENCE_S)
        self._connections[address[:2]] = _Connection(connection, self._clock())
        return connection, address

    @property
    def is_crowded(self) -> bool:
        """Whether more than half of the places are taken."""
        return 2 * len(self._connections) > self.most

    def working(self, address: Any, *, is_so: bool) -> None:
        """The server works for the caller at `address` from now on, or waits for it."""
        found = self._connections.get(address)
        if found is not None:
            found.waits_since = None if is_so else self._clock()

    def close_late(self) -> None:
        """Close the connections whose callers let it wait for too long; forget the closed ones."""
        self._connections = {key: each for key, each in self._connections.items() if each.socket.fileno() >= 0}
        latest = self._clock() - PATIENCE_S
        for each in self._connections.values():
            if each.waits_since is not None and each.waits_since < latest:
                _shut(each)

    def _close_longest_waiting(self) -> bool:
        waiting = [each for each in self._connections.values() if each.waits_since is not None]
        if not waiting:
            return False
        _shut(min(waiting, key=lambda each: each.waits_since or 0.0))
        return True


def _shut(connection: _Connection) -> None:
    """Its server sees the end of the stream, and closes the socket."""
    with suppress(OSError):
        connection.socket.shutdown(socket.SHUT_RDWR)
