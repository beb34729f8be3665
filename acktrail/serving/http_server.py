"""One HTTP server for the worker's REST interface and the dashboard: uvicorn, with bounds on what callers may hold.

Who may call: Host and Origin, a token or a password; and how much a caller may send.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ipaddress
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Final, Self

import uvicorn
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from acktrail.errors import ConfigurationError
from acktrail.secrets import Password
from acktrail.serving.bounded_listener import PATIENCE_S, BoundedListener

_LARGEST_BODY: Final = 4 << 20
_PIECE_BYTES: Final = 1 << 16
_LAST_OF_CONNECTION: Final = (b"connection", b"close")
_JSON: Final = "application/json"
_BODILESS: Final = frozenset({"GET", "HEAD"})
_LOOK_S: Final = 0.01
_START_S: Final = 30.0
_END_S: Final = 5
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a caller must send. `token`, or `user` with `password`: neither: everyone may call. `hosts` are names
    that the Host header may have beside this machine's; None: any (an address that others reach has other guards)."""

    token: Password | None = field(default=None, repr=False)
    user: str | None = None
    password: Password | None = field(default=None, repr=False)
    hosts: tuple[str, ...] | None = ()

    @property
    def asks(self) -> bool:
        return self.token is not None or self.user is not None

    def admits(self, authorization: str) -> bool:
        """Whether the header's value is right; compared in constant time."""
        if not self.asks:
            return True
        scheme, _, rest = authorization.partition(" ")
        if scheme.lower() == "bearer" and self.token is not None:
            return is_same(rest.strip(), self.token.value)
        if scheme.lower() == "basic" and self.user is not None and self.password is not None:
            try:
                user, _, password = base64.b64decode(rest.strip(), validate=True).decode("utf-8").partition(":")
            except (binascii.Error, UnicodeDecodeError):
                return False
            return is_same(user, self.user) & is_same(password, self.password.value)
        return False

    @property
    def challenges(self) -> list[str]:
        """Values of WWW-Authenticate."""
        basic = ['Basic realm="acktrail", charset="UTF-8"'] if self.user is not None else []
        return [*(['Bearer realm="acktrail"'] if self.token is not None else []), *basic]

    def serves(self, host: str) -> bool:
        """Whether a Host header names this worker: a page of another name that leads to this machine must not."""
        return self.hosts is None or _name(host) in (*_LOOPBACK, *map(str.lower, self.hosts))


def is_same(given: str, wanted: str) -> bool:
    """Whether two texts are the same, in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode("utf-8", "replace"))


def _name(host: str) -> str:
    name = host.strip().lower()
    if name.startswith("["):
        return name.partition("]")[0] + "]"
    return name.partition(":")[0]


class Guard:
    """Answers who may not call, and hands the others on: their path as it was sent (a name may have a slash, one at
    the end means nothing), HEAD as GET (the server leaves the body out)."""

    def __init__(self, app: App, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        refused = self._refused(Headers(scope=scope), scope["method"])
        if refused is not None:
            await refused(scope, receive, send)
            return
        path = scope["raw_path"].decode("latin-1") if scope.get("raw_path") else scope["path"]
        method = scope["method"].replace("HEAD", "GET")
        await self._app({**scope, "method": method, "path": path.partition("?")[0].rstrip("/") or "/"}, receive, send)

    def _refused(self, headers: Headers, method: str) -> JSONResponse | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._access.serves(host):
            return _refusal(403, "The Host header names another server")
        if not self._access.admits(headers.get("authorization", "")):
            answer = _refusal(401, "User cannot access the resource.")
            for each in self._access.challenges:
                answer.headers.append("www-authenticate", each)
            return answer
        if method not in _BODILESS and origin is not None and origin.partition("://")[2].lower() != host.lower():
            return _refusal(403, "Requests from pages of other servers are refused")
        if headers.get("content-type", _JSON).partition(";")[0].strip().lower() != _JSON and method not in _BODILESS:
            return _refusal(415, "HTTP 415 Unsupported Media Type")
        if int(headers["content-length"]) > _LARGEST_BODY if headers.get("content-length", "").isdecimal() else False:
            return _refusal(413, "HTTP 413 Request Entity Too Large")
        return None


def _refusal(code: int, message: str) -> JSONResponse:
    return JSONResponse({"error_code": code, "message": message}, code)


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
                f"{option} cannot use its certificate and key: {error}", hint="they are PEM files that belong together"
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
