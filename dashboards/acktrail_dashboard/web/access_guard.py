"""Who may see a page: this machine alone, or who has the token, as a header or as the cookie of a login; and the
headers of every response."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request

from acktrail.connect.rest.access import Access, App, Message, Receive, Send, is_same

COOKIE: Final = "acktrail_dashboard"
SESSION_S: Final = 7 * 86_400
_HEADERS: Final = {
    # No script, style or form but those of the dashboard's own files; no script or style within a page, no eval.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "SAMEORIGIN",
}


def session_value(token: str, expires: int) -> str:
    """The cookie of a login: the time of its end (s since the epoch), and a proof of who had the token. It does not
    show the token."""
    proof = hmac.new(token.encode(), f"acktrail dashboard serve {expires}".encode(), hashlib.sha256)
    return f"{expires}.{proof.hexdigest()}"


def is_session(token: str, value: str, now: float) -> bool:
    """Whether a cookie is of a login with this token that has not ended; compared in constant time."""
    text = value.partition(".")[0]
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        return False
    expires = int(text)
    return is_same(session_value(token, expires), value) and now < expires


class SafeHeaders:
    """Adds the headers that every response has."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Cache-Control", "no-store")
                headers.update(_HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers)


class AccessGuard:
    """Answers by `refuse` (scope, then ``host`` or ``token``) who may not see pages. The login and the files of
    `open_paths` need no token."""

    def __init__(
        self, app: App, *, access: Access, open_paths: tuple[str, ...], refuse: Callable[[Message, str], App]
    ) -> None:
        self._app, self._access, self._open_paths, self._refuse = app, access, open_paths, refuse

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        refusal = self._refusal(Request(scope)) if scope["type"] == "http" else None
        answer = self._app if refusal is None else self._refuse(scope, refusal)
        await answer(scope, receive, send)

    def _refusal(self, request: Request) -> str | None:
        if not self._access.serves(request.headers.get("host", "")):
            return "host"
        is_open = path_within(request.scope).startswith(self._open_paths)
        if is_open or self._access.admits(request.headers.get("authorization", "")):
            return None
        token, cookie = self._access.token, request.cookies.get(COOKIE, "")
        return None if token is not None and is_session(token.value, cookie, time.time()) else "token"


def path_within(scope: Message) -> str:
    """The path of a request below the path that the dashboard is mounted at."""
    path, prefix = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(prefix) :] if prefix and path.startswith(prefix) else path
