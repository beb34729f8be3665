"""A line in the worker's log for each change by REST and for each refusal: who, what, which connector and keys; no
values.

Keys that say where a connection goes come first, then others that the connector has or knows. What does not fit is
counted, so that no caller hides what they change behind names of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from acktrail.errors import AcktrailError, UnknownName
from acktrail.serving.access import LARGEST_BODY, App, Message, Receive, Send, peer_of
from acktrail.text_parsing import parse_json
from acktrail.text_tables import printable
from acktrail_connect.config_def import Texts
from acktrail_connect.worker.connector_config import validate
from acktrail_connect.worker.kept_secrets import says_where
from acktrail_connect.worker.redaction import Redaction

_LOG: Final = logging.getLogger("acktrail.connect")
_READS: Final = frozenset({"GET", "HEAD"})
_REFUSED: Final = frozenset({401, 403})
_CONNECTORS: Final = "/connectors"
_FIRST_FAULT: Final = 400
_LONGEST: Final = 200
"""Characters of a path, a connector's or a key's name."""
_LONGEST_KEYS: Final = 1_000


class ChangeLog:
    """An ASGI application around `app`. `config_of` gives a connector's configuration by name, or raises
    UnknownName."""

    def __init__(self, app: App, config_of: Callable[[str], Texts]) -> None:
        self._app, self._config_of = app, config_of

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        body, code = bytearray(), 500
        before = self._before(scope)

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
            self._tell(scope, bytes(body), code, before)

    def _before(self, scope: Message) -> Texts:
        path = scope["raw_path"].decode("latin-1")
        if scope["method"] in _READS or not path.startswith(f"{_CONNECTORS}/"):
            return {}
        try:
            return self._config_of(_named(path))
        except UnknownName:
            return {}

    def _tell(self, scope: Message, body: bytes, code: int, before: Texts) -> None:
        path = scope["raw_path"].decode("latin-1").partition("?")[0]
        is_change = scope["method"] not in _READS and not path.rstrip("/").endswith("/config/validate")
        if not is_change and code not in _REFUSED:
            return
        connector, config = _subject(path, body)
        words = [f"by {peer_of(scope)}: {scope['method']} {_short(path)}"]
        if connector is not None and path.rstrip("/") == _CONNECTORS:
            words.append(f"connector {_short(connector)}")
        words += [f"keys {_keys(config, before)}"] if config else []
        text = printable(", ".join(words))
        is_refused = code >= _FIRST_FAULT
        event = {"event": "rest_refused" if is_refused else "rest_changed", "connector": connector}
        level = logging.WARNING if is_refused else logging.INFO
        _LOG.log(level, "REST: %s %s %s", "refused" if is_refused else "done", code, text, extra=event)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _named(path: str) -> str:
    return unquote(path.partition("?")[0].split("/")[2])


def _subject(path: str, body: bytes) -> tuple[str | None, Mapping[str, Any]]:
    """The connector that a request is about, and the keys that it sends."""
    content = _content(body)
    config = content.get("config", content) if path.rstrip("/") == _CONNECTORS else content
    own = config if isinstance(config, dict) else {}
    if path.startswith(f"{_CONNECTORS}/"):
        return _named(path), own
    name = content.get("name")
    return name if isinstance(name, str) else None, own


def _keys(config: Mapping[str, Any], before: Texts) -> str:
    """The names of the keys of a request, the weightiest first, and how many do not fit."""
    try:
        with Redaction().errors():
            known = validate({**before, **{key: text for key, text in config.items() if text is not None}})[0].keys
    except AcktrailError:  # a plug-in's own fault, which the answer has
        known = {}

    def rank(name: str) -> tuple[int, str]:
        if config[name] is None and name not in before:
            return 3, name  # it removes nothing
        if name in known:
            return (0 if says_where(name, known[name]) else 1), name
        return (1 if name in before else 2), name

    shown = [_short(name) for name in sorted(config, key=rank)]
    room, fits = _LONGEST_KEYS, 0
    for name in shown:
        room -= len(name) + 2
        fits += room >= 0
    more = [f"and {len(shown) - fits} more"] if fits < len(shown) else []
    return ", ".join([*shown[:fits], *more])


def _content(body: bytes) -> dict[str, Any]:
    try:
        content = parse_json(body)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
