"""Callers that take a server's places and give nothing for it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from select import select

import pytest

from acktrail.serving.bounded_listener import BoundedListener

__all__ = ["RUDE", "callers", "less_patience", "small_listeners"]

_MOST = 8
_BUFFER_BYTES = 4_096
_PIPELINED = 2_000
RUDE = ("sends nothing", "begins a request", "reads nothing")


def small_listeners(monkeypatch: pytest.MonkeyPatch, patience_s: float) -> list[BoundedListener]:
    """From now on listeners have eight places, buffers that are soon full, and less patience; gives those made."""
    made, init = list[BoundedListener](), BoundedListener.__init__

    def small(self: BoundedListener, listening: socket.socket) -> None:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        init(self, listening, most=_MOST)
        made.append(self)

    monkeypatch.setattr(BoundedListener, "__init__", small)
    less_patience(monkeypatch, patience_s)
    return made


def less_patience(monkeypatch: pytest.MonkeyPatch, patience_s: float) -> None:
    """From now on servers wait for callers only so long."""
    for module in ("bounded_listener", "http_server"):
        monkeypatch.setattr(f"acktrail.serving.{module}.PATIENCE_S", patience_s)


@contextmanager
def callers(address: str, manner: str, path: str, token: str = "") -> Iterator[list[socket.socket]]:
    """More connections to `address` (host:port) than a small listener takes, in one `manner` of `RUDE`. Who reads
    nothing asks for `path` often, at once, and has a small buffer."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    sent = {"sends nothing": "", "begins a request": request, "reads nothing": f"{request}\r\n" * _PIPELINED}[manner]
    with ExitStack() as opened:
        made = []
        for _ in range(2 * _MOST):
            made.append(opened.enter_context(_connected(address)))
            made[-1].setblocking(False)
            made[-1].send(sent.encode())
            if manner == "reads nothing":
                select(made[-1:], [], [], 30)  # the server answers it by now, or closed it
        yield made


def _connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    made.settimeout(30)
    made.connect((host, int(port)))
    return made
