"""A network between a client and a real broker that can hold requests back, also from a client that has long gone, cut
a response off in its middle, and swallow responses."""

from __future__ import annotations

import socket
import struct
import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from acktrail.config import KafkaConfig

__all__ = ["EVERYTHING", "KafkaProxy", "kafka_proxy"]

_HOST = "127.0.0.1"
EVERYTHING: Final = -1
"""In place of an api key: all of them."""
_WHOLE: Final = 1.0


@dataclass
class KafkaProxy:
    """Passes every request on to the broker, except those whose api key is in `held`; addresses in answers lead back
    here. `cuts`: by api key, the shares of the next responses after which their connection ends. `silenced`: api keys
    whose responses never arrive, while the connections stay. `spoiled` counts both kinds of responses."""

    address: tuple[str, int]
    broker: tuple[str, int]
    held: set[int] = field(default_factory=set)
    waiting: list[tuple[socket.socket, bytes]] = field(default_factory=list)
    answers: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    cuts: dict[int, deque[float]] = field(default_factory=lambda: defaultdict(deque))
    silenced: set[int] = field(default_factory=set)
    spoiled: int = 0

    def config(self, request_timeout_ms: int = 2_000) -> KafkaConfig:
        return KafkaConfig(
            bootstrap_servers=f"{self.address[0]}:{self.address[1]}", request_timeout_ms=request_timeout_ms
        )

    def share_of(self, api_key: int) -> float | None:
        """How much of the next response of this kind arrives; None: it does not, and nothing says so."""
        if self.silenced & {api_key, EVERYTHING}:
            self.spoiled += 1
            return None
        if not self.cuts[api_key]:
            return _WHOLE
        self.spoiled += 1
        return self.cuts[api_key].popleft()

    def release(self) -> None:
        """Deliver what was held back, and wait until the broker has answered it."""
        self.held.clear()
        late, self.waiting = self.waiting, []
        for upstream, frame in late:
            upstream.sendall(frame)
        for _ in late:
            assert self.answers.acquire(timeout=120), "the broker did not answer what was held back"


@contextmanager
def kafka_proxy(bootstrap_servers: str) -> Iterator[KafkaProxy]:
    """A proxy in front of a broker on loopback; it ends with the block."""
    host, port = bootstrap_servers.rsplit(":", 1)
    server = socket.create_server((_HOST, 0))
    proxy = KafkaProxy(address=server.getsockname()[:2], broker=(host, int(port)))
    connections: list[socket.socket] = []
    threading.Thread(target=_accept, args=(proxy, server, connections), daemon=True).start()
    try:
        yield proxy
    finally:
        for connection in [server, *connections]:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


def _accept(proxy: KafkaProxy, server: socket.socket, connections: list[socket.socket]) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        try:
            upstream = socket.create_connection(proxy.broker)
        except OSError:  # it is down
            client.close()
            continue
        connections += [client, upstream]
        late: set[int] = set()
        asked: dict[int, int] = {}
        threading.Thread(target=_ask, args=(proxy, client, upstream, late, asked), daemon=True).start()
        threading.Thread(target=_answer, args=(proxy, client, upstream, late, asked), daemon=True).start()


def _ask(
    proxy: KafkaProxy, client: socket.socket, upstream: socket.socket, late: set[int], asked: dict[int, int]
) -> None:
    """Requests: api key, version, correlation id come first. `late` are the correlation ids that were held back,
    `asked` the api keys of all by correlation id."""
    with suppress(OSError):
        for frame in _frames(client):
            api_key, _, correlation_id = struct.unpack_from(">hhi", frame, 4)
            asked[correlation_id] = api_key
            if api_key in proxy.held:
                late.add(correlation_id)
                proxy.waiting.append((upstream, frame))
            else:
                upstream.sendall(frame)
        if not late:
            upstream.shutdown(socket.SHUT_RDWR)


def _answer(
    proxy: KafkaProxy, client: socket.socket, upstream: socket.socket, late: set[int], asked: dict[int, int]
) -> None:
    own = _HOST.encode() + struct.pack(">i", proxy.address[1])
    brokers = _HOST.encode() + struct.pack(">i", proxy.broker[1])
    with suppress(OSError):
        for frame in _frames(upstream):
            (correlation_id,) = struct.unpack_from(">i", frame, 4)
            share = proxy.share_of(asked.pop(correlation_id))
            if share is not None:
                with suppress(OSError):
                    client.sendall(frame.replace(brokers, own)[: int(share * len(frame))])
            if correlation_id in late:
                proxy.answers.release()
            if share is not None and share < _WHOLE:
                break
    with suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)


def _frames(connection: socket.socket) -> Iterator[bytes]:
    stream = connection.makefile("rb")
    while len(head := stream.read(4)) == 4:
        (size,) = struct.unpack(">i", head)
        yield head + stream.read(size)
