"""One HTTP server for the worker's REST interface, the dashboard and metrics: uvicorn, with bounds on what callers may
hold, behind the guards of ``acktrail.serving.access``.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Final, Self

import uvicorn
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from acktrail.errors import ConfigurationError
from acktrail.serving.access import LARGEST_BODY, Access, App, HostCheck, Message, Receive, Send
from acktrail.serving.addresses import is_loopback
from acktrail.serving.bounded_listener import PATIENCE_S, BoundedListener

_PIECE_BYTES: Final = 1 << 16
_LAST_OF_CONNECTION: Final = (b"connection", b"close")
_LOOK_S: Final = 0.01
_START_S: Final = 30.0
_END_S: Final = 5
_LARGEST_PORT: Final = 65_535
_BACKLOG: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAddress:
    """Where a server listens: `host` and `port` (0: any free one), or the `path` of a Unix socket. `option` names it in
    errors."""

    option: str
    host: str = ""
    port: int = 0
    path: Path | None = None

    @classmethod
    def parse(cls, text: str, option: str) -> ListenAddress:
        """From ``host:port``. Raises ConfigurationError."""
        host, _, port = text.rpartition(":")
        if not host or not (port.isascii() and port.isdecimal()) or int(port) > _LARGEST_PORT:
            raise ConfigurationError(f"{option} {text!r} is not host:port", hint="for example 127.0.0.1:8083")
        return cls(option=option, host=host.strip("[]"), port=int(port))

    @property
    def is_own(self) -> bool:
        """Whether only this machine reaches it."""
        return self.path is not None or is_loopback(self.host)

    def shown(self, port: int) -> str:
        if self.path is not None:
            return str(self.path)
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"

    def listening(self) -> BoundedListener:
        """Take it. Raises ConfigurationError: it is none, or taken."""
        try:
            if self.path is not None:
                return BoundedListener(_at_path(self.path))
            family = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0][0]
            return BoundedListener(socket.create_server((self.host, self.port), family=family, backlog=_BACKLOG))
        except OSError as error:
            raise ConfigurationError(
                f"{self.option}: cannot listen on {self.shown(self.port)}: {error.strerror or error}",
                hint="choose another address" + ("" if self.path else "; port 0 is any free one"),
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """`certificate` and `private_key`: PEM files of the server's own. `is_of_proxy`: a proxy before it has the TLS."""

    certificate: Path | None = None
    private_key: Path | None = None
    is_of_proxy: bool = False


class HttpServer:
    """Serves `app` at an address: until a signal by ``run``, or within a block on a thread of its own."""

    def __init__(
        self,
        app: App,
        place: ListenAddress,
        access: Access,
        *,
        tls: Tls | None = None,
        hint: str = "",
        reads_proxy_headers: bool = False,
    ) -> None:
        """Takes the address. `app` asks for what `access` says; the server itself checks Host headers, and refuses to
        begin where others would reach it unsheltered: `hint` says what to configure. `reads_proxy_headers`: those of
        a proxy on this machine say how a caller reached it. Raises ConfigurationError: the address is none, taken or
        unsheltered; certificate or key cannot be used."""
        tls = tls or Tls()
        if not place.is_own:
            has_tls = tls.is_of_proxy or tls.certificate is not None
            access.ensure_sheltered(f"{place.option} {place.shown(place.port)}", has_tls=has_tls, hint=hint)
        self._path = place.path
        self._listener = place.listening()
        self.address: Final = place.shown(0 if place.path else self._listener.getsockname()[1])
        scheme = "https" if tls.certificate else "http"
        self.url: Final = f"unix:{self.address}" if place.path else f"{scheme}://{self.address}"
        if place.is_own or access.hosts:
            app = HostCheck(app, (*access.hosts, place.shown(0).rpartition(":")[0]), place.option)
        inner: Any = app
        if reads_proxy_headers:
            inner = ProxyHeadersMiddleware(inner, "*" if tls.is_of_proxy else "127.0.0.1")
        settings = uvicorn.Config(
            _Bounds(inner, self._listener),
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=_BACKLOG,
            timeout_graceful_shutdown=_END_S,
            ssl_certfile=tls.certificate,
            ssl_keyfile=tls.private_key,
        )
        try:
            settings.load()
        except (OSError, ssl.SSLError) as error:
            self._listener.close()
            raise ConfigurationError(
                f"{place.option} cannot use its certificate and key: {error}",
                hint="give PEM files of a certificate and of its own key",
            ) from error
        if settings.ssl is not None:
            settings.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
        self._server = _Server(settings, self._listener)
        self._thread = Thread(target=self.run, name="acktrail-http", daemon=True)

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM."""
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # it would show tracebacks, which may have secrets
        self._server.run(sockets=[self._listener])

    def __enter__(self) -> Self:
        self._thread.start()
        deadline = time.monotonic() + _START_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise ConfigurationError(
                    f"the server at {self.address} did not start", hint="try again, or another address"
                )
            time.sleep(_LOOK_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(2 * _END_S)
        if self._path is not None:
            self._path.unlink(missing_ok=True)


class _Server(uvicorn.Server):
    """Looks after the connections, ten times a second."""

    def __init__(self, settings: uvicorn.Config, listener: BoundedListener) -> None:
        super().__init__(settings)
        self._listener = listener

    async def on_tick(self, counter: int) -> bool:
        self._listener.close_late()
        return await super().on_tick(counter)


class _Bounds:
    """Reports to the listener whom the server works for, and bounds what a caller may hold: the size and the time of
    requests, the time of each piece of an answer, and, where places are scarce, more than one request a connection."""

    def __init__(self, app: App, listener: BoundedListener) -> None:
        self._app, self._listener = app, listener

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        working = partial(self._listener.working, scope["client"])

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and self._listener.is_crowded:
                message["headers"] = [*message.get("headers", ()), _LAST_OF_CONNECTION]
            for piece in _pieces(message):
                working(is_so=False)
                await send(piece)
                working(is_so=True)

        working(is_so=True)
        try:
            await self._app(scope, _Body(receive), sent)
        finally:
            working(is_so=False)


def _pieces(message: Message) -> Iterator[Message]:
    """A part of an answer as pieces that are handed to the caller one after the other."""
    body = message.get("body", b"")
    if len(body) <= _PIECE_BYTES:
        yield message
        return
    for begin in range(0, len(body), _PIECE_BYTES):
        end = begin + _PIECE_BYTES
        yield {**message, "body": body[begin:end], "more_body": end < len(body) or message.get("more_body", False)}


class _Body:
    """Receives a body up to the limits of size and time; the rest is a disconnection."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self._left, self._is_whole = receive, LARGEST_BODY, False
        self._until = time.monotonic() + PATIENCE_S

    async def __call__(self) -> Message:
        if self._is_whole:
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), self._until - time.monotonic())
        except TimeoutError:
            return {"type": "http.disconnect"}
        self._left -= len(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        return message if self._left >= 0 else {"type": "http.disconnect"}


def _at_path(path: Path) -> socket.socket:
    """A listening Unix socket that only this user reaches, in place of one that its process left behind."""
    if path.is_socket():
        with socket.socket(socket.AF_UNIX) as probe, suppress(ConnectionRefusedError):
            probe.connect(str(path))
            raise FileExistsError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        path.unlink()
    made = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        made.bind(str(path))
    except OSError:
        made.close()
        raise
    finally:
        os.umask(before)
    made.listen(_BACKLOG)
    return made
