"""One HTTP server for the worker's REST interface and the dashboard: uvicorn, with bounds on what callers may hold."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from pathlib import Path
from threading import Thread
from typing import Any, Final, Self

import uvicorn
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from acktrail.connect.bounded_listener import PATIENCE_S, BoundedListener
from acktrail.connect.rest.access import App, Message, Receive, Send
from acktrail.errors import ConfigurationError

_LARGEST_BODY: Final = 4 << 20
_LOOK_S: Final = 0.01
_START_S: Final = 30.0
_END_S: Final = 5


class HttpServer:
    """Serves `app` at an address: until a signal by ``run``, or within a block on a thread of its own."""

    def __init__(
        self,
        app: App,
        host: str,
        port: int,
        *,
        option: str,
        certificate: Path | None = None,
        private_key: Path | None = None,
        is_behind_proxy: bool = False,
    ) -> None:
        """Takes the address; `port` 0: any free one. `option` names it in errors. `is_behind_proxy`: headers of a proxy
        on this machine say how a caller reached it. Raises ConfigurationError: the address is none, or taken;
        certificate or key cannot be used."""
        self._listener = _listening(host, port, option)
        shown = f"[{host}]" if ":" in host else host
        self.address: Final = f"{shown}:{self._listener.getsockname()[1]}"
        self.url: Final = f"{'https' if certificate else 'http'}://{self.address}"
        inner: Any = ProxyHeadersMiddleware(app) if is_behind_proxy else app  # type: ignore[arg-type]  # typed for another ASGI application
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
            backlog=128,
            timeout_graceful_shutdown=_END_S,
            ssl_certfile=certificate,
            ssl_keyfile=private_key,
        )
        try:
            settings.load()
        except (OSError, ssl.SSLError) as error:
            self._listener.close()
            raise ConfigurationError(
                f"{option} cannot use its certificate and key: {error}",
                hint="they are PEM files that belong together",
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
                raise ConfigurationError(f"no server started at {self.address}", hint="try again, or another address")
            time.sleep(_LOOK_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(2 * _END_S)


class _Server(uvicorn.Server):
    """Looks after the connections, ten times a second."""

    def __init__(self, settings: uvicorn.Config, listener: BoundedListener) -> None:
        super().__init__(settings)
        self._listener = listener

    async def on_tick(self, counter: int) -> bool:
        self._listener.close_late()
        return await super().on_tick(counter)


class _Bounds:
    """Reports to the listener which connections are being answered, and bounds the size and the time of bodies."""

    def __init__(self, app: App, listener: BoundedListener) -> None:
        self._app, self._listener = app, listener

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self._listener.answering(scope["client"], is_begun=True)
        try:
            await self._app(scope, _Body(receive), send)
        finally:
            self._listener.answering(scope["client"], is_begun=False)


class _Body:
    """Receives a body up to the limits of size and time; the rest is a disconnection."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self._left, self._is_whole = receive, _LARGEST_BODY, False
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


def _listening(host: str, port: int, option: str) -> BoundedListener:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return BoundedListener(socket.create_server((host, port), family=family, backlog=128))
    except OSError as error:
        raise ConfigurationError(
            f"{option}: cannot listen on {host}:{port}: {error.strerror or error}",
            hint="choose another address; port 0 is any free one",
        ) from error
