"""Callers that send nothing or read nothing: each listener still answers the others, and the export goes on."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from connect.worker.rest.conftest import TOKEN
from servers.rude_callers import RUDE, callers, less_patience, small_listeners
from servers.workload import until
from starlette.responses import Response

from acktrail.config import TablesConfig
from acktrail.serving.access import Access
from acktrail.serving.http_server import HttpServer, ListenAddress
from acktrail.tables.delta.store import Tables
from acktrail_connect.worker.worker_metrics import metrics_served
from acktrail_dashboard.web.application import dashboard_server

CONFIG = {"connector.class": "MemorySource", "sink.class": "MemorySink", "flush.interval.ms": "10"}
PATIENCE_S = 2.0


@contextmanager
def _rest(worker: Any, _: Path) -> Iterator[tuple[str, str]]:
    yield worker.server.address, "/openapi.json"


@contextmanager
def _dashboard(_: Any, folder: Path) -> Iterator[tuple[str, str]]:
    Tables(TablesConfig(uri=str(folder))).create("topics")
    with dashboard_server(TablesConfig(uri=str(folder)), host="127.0.0.1", port=0) as server:
        yield server.address, "/static/uplot-1.6.32.min.js"


@contextmanager
def _metrics(worker: Any, _: Path) -> Iterator[tuple[str, str]]:
    with metrics_served(worker.worker, "127.0.0.1:0") as url:
        yield url.split("/")[2], "/metrics"


LISTENERS: tuple[Any, ...] = (_rest, _dashboard, _metrics)


@pytest.mark.parametrize("manner", RUDE)
@pytest.mark.parametrize("listener", LISTENERS)
def test_rude_callers_hold_up_nobody(
    start: Any, world: Any, tmp_path: Path, monkeypatch: Any, listener: Any, manner: str
) -> None:
    """More of them than there are places keep nobody from an answer; what is written meanwhile is exported. Who reads
    nothing is disconnected in time although nobody else calls."""
    listeners = small_listeners(monkeypatch, PATIENCE_S)
    worker = start()
    assert worker("PUT", "/connectors/a/config", CONFIG).code == 201
    for number in range(50):  # so that the metrics are larger than the buffers
        stopped = {"name": f"stopped-{number}", "config": CONFIG, "initial_state": "STOPPED"}
        assert worker("POST", "/connectors", stopped).code == 201
    with listener(worker, tmp_path) as (address, path), callers(address, manner, path, TOKEN):
        for number in range(1, 9):
            world.logs[0].end_offset = number
            with closing(HTTPConnection(address, timeout=60)) as connection:
                connection.request("GET", path, headers={"Host": "localhost", "Authorization": f"Bearer {TOKEN}"})
                answer = connection.getresponse()
                assert (answer.status, bool(answer.read())) == (200, True), number
        until(lambda: 8 in world.tables.positions.values())
        if manner == "reads nothing":
            held = listeners[-1]._connections
            until(lambda: all(each.socket.fileno() < 0 for each in held.values()), timeout_s=30)


def test_slow_callers_get_the_whole_answer(monkeypatch: Any) -> None:
    """Who reads on gets it, although all of it takes longer than the server waits for a caller."""
    less_patience(monkeypatch, PATIENCE_S)
    body = bytes(40 << 20)  # more than the kernel's buffers take

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await Response(body)(scope, receive, send)

    with HttpServer(app, ListenAddress(option="any", host="127.0.0.1"), Access()) as server:
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port)), timeout=30) as caller:
            caller.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            began, told = time.monotonic(), 0
            while told < len(body):
                found = caller.recv(1 << 20, socket.MSG_WAITALL)
                assert found, f"the connection ended after {told} bytes"
                told += len(found)
                time.sleep(2 * PATIENCE_S / 40)
            assert time.monotonic() - began > PATIENCE_S
