"""Who may call a listener: one set of guards for the worker's REST interface, the dashboard and metrics.

An address that other machines reach needs a login, and TLS: the server's own, or that of a proxy before it.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from acktrail.errors import ConfigurationError
from acktrail.secrets import Password
from acktrail.text_tables import printable

LARGEST_BODY: Final = 4 << 20
_JSON: Final = "application/json"
_BODILESS: Final = frozenset({"GET", "HEAD"})
_LOG: Final = logging.getLogger("acktrail.serving")
_LONGEST_HOST: Final = 200
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may call. `token`, or `user` with `password`: what a caller must send; neither: all who reach the listener.
    `is_for_all`: so it is meant, also where others reach it. `hosts`: names that callers use for this machine beside
    its own."""

    token: Password | None = field(default=None, repr=False)
    user: str | None = None
    password: Password | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()
    is_for_all: bool = False

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

    def ensure_sheltered(self, place: str, *, has_tls: bool, hint: str) -> None:
        """Pass where others may reach the listener at `place`: callers log in, and no one on the way reads what they
        send. Raises ConfigurationError."""
        lacks = [*([] if has_tls else ["TLS"]), *([] if self.asks else ["a token"])]
        if lacks and not self.is_for_all:
            message = f"{place} can be reached from elsewhere, without {' and '.join(lacks)}"
            raise ConfigurationError(message, hint=hint)


def is_same(given: str, wanted: str) -> bool:
    """Whether two texts are the same, in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode("utf-8", "replace"))


class HostCheck:
    """Refuses a Host header that names another server, with a line in the log: a page of another name that leads to
    this machine must get nothing. `names` are allowed beside this machine's own; `option` names the listener."""

    def __init__(self, app: App, names: tuple[str, ...], option: str) -> None:
        self._app, self._names, self._option = app, frozenset((*_LOOPBACK, *map(str.lower, names))), option

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        host = Headers(scope=scope).get("host", "")
        if _name(host) in self._names:
            await self._app(scope, receive, send)
            return
        shown = printable(host[:_LONGEST_HOST])
        text = "%s: refused 403 by %s: the Host header names another server, %s"
        _LOG.warning(text, self._option, peer_of(scope), shown, extra={"event": "host_refused"})
        await _refusal(403, "The Host header names another server")(scope, receive, send)


def peer_of(scope: Message) -> str:
    """Who sent a request: host and port, or ``user`` and a number behind a Unix socket."""
    host, port = scope["client"] or ("unknown", 0)
    return host if host.startswith("user ") else f"{host}:{port}"


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
        if not self._access.admits(headers.get("authorization", "")):
            answer = _refusal(401, "User cannot access the resource.")
            for each in self._access.challenges:
                answer.headers.append("www-authenticate", each)
            return answer
        if method not in _BODILESS and origin is not None and origin.partition("://")[2].lower() != host.lower():
            return _refusal(403, "Requests from pages of other servers are refused")
        if headers.get("content-type", _JSON).partition(";")[0].strip().lower() != _JSON and method not in _BODILESS:
            return _refusal(415, "HTTP 415 Unsupported Media Type")
        if int(headers["content-length"]) > LARGEST_BODY if headers.get("content-length", "").isdecimal() else False:
            return _refusal(413, "HTTP 413 Request Entity Too Large")
        return None


def _refusal(code: int, message: str) -> JSONResponse:
    return JSONResponse({"error_code": code, "message": message}, code)
