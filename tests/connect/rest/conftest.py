"""A worker with a REST interface, and a small HTTP client."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from samples.memory_plugins import MemoryWorld, memory_plugins

from acktrail.connect.rest.application import rest_server
from acktrail.connect.rest.http_server import HttpServer
from acktrail.connect.runtime.connector_run import ConfigStore
from acktrail.connect.runtime.standalone import WorkerConfig
from acktrail.connect.runtime.worker import Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back."""

    code: int
    body: Any
    headers: dict[str, str]
    text: str


@dataclass(slots=True, kw_only=True)
class Rest:
    """A worker at its address."""

    worker: Worker
    server: HttpServer
    headers: dict[str, str]

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection(self.server.address, timeout=60)
        sent = {"Host": self.server.address, **self.headers, **{k.replace("_", "-"): v for k, v in headers.items()}}
        content = None
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method, path, content, sent)
            response = connection.getresponse()
            text = response.read().decode("utf-8")
        finally:
            connection.close()
        found: dict[str, str] = {}
        for name, value in response.getheaders():
            found[name.lower()] = "; ".join([*([found[name.lower()]] if name.lower() in found else []), value])
        is_json = "json" in found.get("content-type", "")
        return Answer(
            code=response.status, body=json.loads(text) if is_json and text else None, headers=found, text=text
        )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryWorld]:
    with memory_plugins(monkeypatch) as made:
        yield made


@pytest.fixture
def start() -> Iterator[Callable[..., Rest]]:
    """Starts a worker with REST; keys of the worker as keyword arguments with `__` for dots."""
    with ExitStack() as stack:

        def started(
            *, store: ConfigStore | None = None, defaults: Any = None, timeout_s: float = 90.0, **texts: Any
        ) -> Rest:
            listener = {"rest.listener": "127.0.0.1:0"}
            config = WorkerConfig.of(listener | {key.replace("__", "."): value for key, value in texts.items()})
            worker = Worker(store or ConfigStore(), defaults=defaults, providers=config.providers)
            stack.callback(worker.stop)
            server = stack.enter_context(rest_server(worker, config, timeout_s=timeout_s))
            worker.start()
            return Rest(worker=worker, server=server, headers={})

        yield started


@pytest.fixture
def rest(world: MemoryWorld, start: Callable[..., Rest]) -> Rest:
    return start()
