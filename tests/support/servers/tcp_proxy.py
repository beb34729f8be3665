"""A network that fails on request: a proxy that can go away, and swallow requests of some kinds."""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

__all__ = ["TcpProxy", "tcp_proxy"]

_PIECE = 65_536


@dataclass
class TcpProxy:
    """Forwards connections at `address` to `target` (``host:port``).

    `silenced` are Kafka api keys: requests of these kinds are taken and not passed on, so that nobody answers them.
    `patience` are numbers of bytes by api key: larger requests are not answered either. `forgotten` are api keys whose
    next request nobody answers. `swallowed` counts the requests of each kind that were not passed on.
    """

    target: str
    port: int = 0
    speaks_kafka: bool = False
    silenced: set[int] = field(default_factory=set)
    patience: dict[int, int] = field(default_factory=dict)
    forgotten: set[int] = field(default_factory=set)
    swallowed: Counter[int] = field(default_factory=Counter)
    connections: list[socket.socket] = field(default_factory=list)
    listener: socket.socket | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def come_back(self) -> None:
        """Connections are taken, at the same port as before."""
        self.listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=_accept, args=(self, self.listener), daemon=True).start()

    def go_down(self) -> None:
        """Every connection ends, and new ones are refused."""
        ending = [*([self.listener] if self.listener else []), *self.connections]
        self.listener, self.connections = None, []
        for connection in ending:
            _end(connection)


@contextmanager
def tcp_proxy(target: str = "", *, port: int = 0, speaks_kafka: bool = False) -> Iterator[TcpProxy]:
    """A proxy that ends with the block; with `speaks_kafka` it tells requests apart."""
    proxy = TcpProxy(target=target, port=port, speaks_kafka=speaks_kafka)
    proxy.come_back()
    try:
        yield proxy
    finally:
        proxy.go_down()


def _accept(proxy: TcpProxy, listener: socket.socket) -> None:
    host, _, port = proxy.target.rpartition(":")
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        try:
            upstream = socket.create_connection((host, int(port)), timeout=120)
        except OSError:
            _end(client)
            continue
        upstream.settimeout(None)
        proxy.connections += [client, upstream]
        requests = _requests if proxy.speaks_kafka else _bytes
        threading.Thread(target=requests, args=(proxy, client, upstream), daemon=True).start()
        threading.Thread(target=_bytes, args=(proxy, upstream, client), daemon=True).start()


def _bytes(_: TcpProxy, source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(_PIECE):
            sink.sendall(piece)
    _end(source, sink)


def _requests(proxy: TcpProxy, source: socket.socket, sink: socket.socket) -> None:
    stream = source.makefile("rb")
    with suppress(OSError):
        while len(head := stream.read(4)) == 4:
            frame = stream.read(struct.unpack(">i", head)[0])
            key = struct.unpack_from(">h", frame)[0]
            if key in proxy.silenced | proxy.forgotten or len(frame) > proxy.patience.get(key, len(frame)):
                proxy.forgotten.discard(key)
                proxy.swallowed[key] += 1
            else:
                sink.sendall(head + frame)
    _end(source, sink)


def _end(*connections: socket.socket) -> None:
    for connection in connections:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()
