"""Who may call: Host and Origin, a token or a password; and how much a caller may send."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from acktrail.connect.config_def import Password

_LARGEST_BODY: Final = 4 << 20
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's alone."""
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
        if method not in {"GET", "HEAD"} and origin is not None and origin.partition("://")[2].lower() != host.lower():
            return _refusal(403, "Requests from pages of other servers are refused")
        if int(headers["content-length"]) > _LARGEST_BODY if headers.get("content-length", "").isdecimal() else False:
            return _refusal(413, "HTTP 413 Request Entity Too Large")
        return None


def _refusal(code: int, message: str) -> JSONResponse:
    return JSONResponse({"error_code": code, "message": message}, code)
