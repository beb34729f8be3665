"""A line in the worker's log for each change by REST and for each refusal: who, what, which connector and keys; no
values."""

from __future__ import annotations

import logging
from typing import Any, Final
from urllib.parse import unquote

from acktrail.serving.access import LARGEST_BODY, App, Message, Receive, Send, peer_of
from acktrail.text_parsing import parse_json
from acktrail.text_tables import printable

_LOG: Final = logging.getLogger("acktrail.connect")
_READS: Final = frozenset({"GET", "HEAD"})
_REFUSED: Final = frozenset({401, 403})
_CONNECTORS: Final = "/connectors"
_FIRST_FAULT: Final = 400
_LONGEST: Final = 500


class ChangeLog:
    """An ASGI application around `app`."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        body, code = bytearray(), 500

        async def received() -> Message:
            message = await receive()
            if len(body) < LARGEST_BODY:
                body.extend(message.get("body", b""))
            return message

        async def sent(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
            await send(message)

        try:
            await self._app(scope, received, sent)
        finally:
            self._tell(scope, bytes(body), code)

    def _tell(self, scope: Message, body: bytes, code: int) -> None:
        path = scope["raw_path"].decode("latin-1").partition("?")[0]
        is_change = scope["method"] not in _READS and not path.rstrip("/").endswith("/config/validate")
        if not is_change and code not in _REFUSED:
            return
        connector, keys = _subject(path, body)
        words = [f"by {peer_of(scope)}: {scope['method']} {path}"]
        if connector is not None and path.rstrip("/") == _CONNECTORS:
            words.append(f"connector {connector}")
        words += [f"keys {keys}"] if keys else []
        text = printable(f"{', '.join(words)}"[:_LONGEST])
        is_refused = code >= _FIRST_FAULT
        event = {"event": "rest_refused" if is_refused else "rest_changed", "connector": connector}
        level = logging.WARNING if is_refused else logging.INFO
        _LOG.log(level, "REST: %s %s %s", "refused" if is_refused else "done", code, text, extra=event)


def _subject(path: str, body: bytes) -> tuple[str | None, str]:
    """The connector that a request is about, and the names of the keys that it sends."""
    content = _content(body)
    config = content.get("config", content) if path.rstrip("/") == _CONNECTORS else content
    keys = ", ".join(sorted(config)) if isinstance(config, dict) else ""
    if path.startswith(f"{_CONNECTORS}/"):
        return unquote(path.split("/")[2]), keys
    name = content.get("name")
    return name if isinstance(name, str) else None, keys


def _content(body: bytes) -> dict[str, Any]:
    try:
        content = parse_json(body)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
