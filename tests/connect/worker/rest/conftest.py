"""A worker with a REST interface, and a small HTTP client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPMessage
from typing import Any

import pytest
from samples.memory_plugins import MemoryWorld, memory_plugins

from acktrail.serving.http_server import HttpServer
from acktrail_connect.worker.connector_run import ConfigStore
from acktrail_connect.worker.operator_texts import OperatorTexts
from acktrail_connect.worker.rest.application import rest_server
from acktrail_connect.worker.worker import Worker
from acktrail_connect.worker.worker_config import WorkerConfig

TOKEN = "a token of the tests, long enough"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back."""

    code: int
    headers: HTTPMessage
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text) if self.text and "json" in self.headers.get("content-type", "") else None


@dataclass(slots=True, kw_only=True)
class Rest:
    """A worker at its address; callers send the token of the tests, unless they send something else."""

    worker: Worker
    server: HttpServer

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        sent = {"Host": self.server.address, "Authorization": f"Bearer {TOKEN}"}
        sent |= {} if body is None else {"Content-Type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        with closing(HTTPConnection(self.server.address, timeout=60)) as connection:
            connection.request(method, path, content, sent)
            response = connection.getresponse()
            return Answer(code=response.status, headers=response.headers, text=response.read().decode("utf-8"))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryWorld]:
    with memory_plugins(monkeypatch) as made:
        yield made


@pytest.fixture
def start() -> Iterator[Callable[..., Rest]]:
    """Starts a worker with REST; keys of the worker as keyword arguments with `__` for dots."""
    with ExitStack() as stack:

        def started(
            *,
            store: ConfigStore | None = None,
            defaults: Any = None,
            providers: Any = None,
            timeout_s: float = 90.0,
            **texts: Any,
        ) -> Rest:
            own = {"rest.listener": "127.0.0.1:0", **({} if "rest__basic__user" in texts else {"rest.token": TOKEN})}
            config = WorkerConfig.of(own | {key.replace("__", "."): value for key, value in texts.items()})
            operators = OperatorTexts(defaults or {}, {}, providers or config.providers)
            worker = Worker(store or ConfigStore(), operators=operators)
            stack.callback(worker.stop)
            server = stack.enter_context(rest_server(worker, config, timeout_s=timeout_s))
            worker.start()
            return Rest(worker=worker, server=server)

        yield started


@pytest.fixture
def rest(world: MemoryWorld, start: Callable[..., Rest]) -> Rest:
    """References may lead anywhere."""
    return start(config__providers__allowed__paths="/", config__providers__allowed__variables="*")
