"""A network between a client and a real broker that fails on request: it goes away and comes back, holds requests back,
also from a client that has long gone, cuts a response off in its middle, and swallows responses."""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter, defaultdict, deque
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
    here. `cuts`: by api key, the shares of the next responses after which their connection ends.

    Without a response stay, while the connections stay, requests whose api key is in `silenced`, the next one of each
    in `forgotten`, and those with more bytes than `patience` has for their api key. `spoiled` counts these requests,
    and the responses that were cut, by api key."""

    broker: tuple[str, int]
    port: int = 0
    held: set[int] = field(default_factory=set)
    waiting: list[tuple[socket.socket, bytes]] = field(default_factory=list)
    answers: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    cuts: dict[int, deque[float]] = field(default_factory=lambda: defaultdict(deque))
    silenced: set[int] = field(default_factory=set)
    forgotten: set[int] = field(default_factory=set)
    patience: dict[int, int] = field(default_factory=dict)
    spoiled: Counter[int] = field(default_factory=Counter)
    connections: list[socket.socket] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"{_HOST}:{self.port}"

    def config(self, request_timeout_ms: int = 2_000) -> KafkaConfig:
        return KafkaConfig(bootstrap_servers=self.address, request_timeout_ms=request_timeout_ms)

    def come_back(self) -> None:
        """Connections are taken, at the same port as before."""
        listener = socket.create_server((_HOST, self.port))
        self.port = listener.getsockname()[1]
        self.connections.append(listener)
        threading.Thread(target=_accept, args=(self, listener), daemon=True).start()

    def go_down(self) -> None:
        """Every connection ends, and new ones are refused."""
        ending, self.connections = self.connections, []
        for connection in ending:
            _end(connection)

    def is_lost(self, api_key: int, size: int) -> bool:
        """Whether a request of `size` bytes that is sent now stays without a response, and nothing says so."""
        is_unheard = api_key in self.forgotten or bool(self.silenced & {api_key, EVERYTHING})
        return is_unheard or size > self.patience.get(api_key, size)

    def loses(self, api_key: int, size: int) -> bool:
        """The same of a request that is here."""
        is_lost = self.is_lost(api_key, size)
        self.forgotten.discard(api_key)
        self.spoiled[api_key] += is_lost
        return is_lost

    def share_of(self, api_key: int) -> float:
        """How much of a response arrives."""
        if not self.cuts[api_key]:
            return _WHOLE
        self.spoiled[api_key] += 1
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
    """A proxy in front of a broker, which may not be there yet; it ends with the block."""
    host, _, port = bootstrap_servers.rpartition(":")
    proxy = KafkaProxy(broker=(host, int(port)))
    proxy.come_back()
    try:
        yield proxy
    finally:
        proxy.go_down()


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _accept(proxy: KafkaProxy, listener: socket.socket) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        try:
            upstream = socket.create_connection(proxy.broker)
        except OSError:  # it is down
            _end(client)
            continue
        proxy.connections += [client, upstream]
        line = _Line(proxy, client, upstream)
        for direction in (line.ask, line.answer):
            threading.Thread(target=direction, daemon=True).start()


@dataclass
class _Line:
    """One client's connection through the proxy. `late` are the correlation ids of requests that were held back,
    `asked` the api keys of all by correlation id, and whether they stay without a response."""

    proxy: KafkaProxy
    client: socket.socket
    upstream: socket.socket
    late: set[int] = field(default_factory=set)
    asked: dict[int, tuple[int, bool]] = field(default_factory=dict)

    def ask(self) -> None:
        """Requests: api key, version, correlation id come first."""
        with suppress(OSError):
            for frame in _frames(self.client):
                api_key, _, correlation_id = struct.unpack_from(">hhi", frame, 4)
                self.asked[correlation_id] = api_key, self.proxy.loses(api_key, len(frame) - 4)
                if api_key in self.proxy.held:
                    self.late.add(correlation_id)
                    self.proxy.waiting.append((self.upstream, frame))
                else:
                    self.upstream.sendall(frame)
            if not self.late:
                self.upstream.shutdown(socket.SHUT_RDWR)

    def answer(self) -> None:
        own = _HOST.encode() + struct.pack(">i", self.proxy.port)
        brokers = _HOST.encode() + struct.pack(">i", self.proxy.broker[1])
        with suppress(OSError):
            for frame in _frames(self.upstream):
                (correlation_id,) = struct.unpack_from(">i", frame, 4)
                api_key, is_lost = self.asked.pop(correlation_id)
                share = _WHOLE if is_lost else self.proxy.share_of(api_key)
                if not is_lost:
                    with suppress(OSError):
                        self.client.sendall(frame.replace(brokers, own)[: int(share * len(frame))])
                if correlation_id in self.late:
                    self.proxy.answers.release()
                if share < _WHOLE:
                    break
        with suppress(OSError):
            self.client.shutdown(socket.SHUT_RDWR)


def _frames(connection: socket.socket) -> Iterator[bytes]:
    stream = connection.makefile("rb")
    while len(head := stream.read(4)) == 4:
        (size,) = struct.unpack(">i", head)
        yield head + stream.read(size)
