"""Callers that send nothing take no file from the export, and nobody's place."""

from __future__ import annotations

import socket
import urllib.request
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from servers.connect_worker import connect_worker
from servers.half_sent import half_sent, with_few_files
from servers.workload import Workload, until

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.connect.bounded_listener import PATIENCE_S, BoundedListener
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.continuity import ensure_whole

FILES = 256


def answered(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


@pytest.mark.broker
def test_the_export_goes_on(kafka: KafkaConfig, tmp_path: Path) -> None:
    """A worker that may open 256 files, and 300 half-sent requests: what is acknowledged
    meanwhile is exported, whole, nothing fails, and a caller is answered."""
    config = {
        "connector.class": "ShareGroupStateSource",
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "sink.tables": str(tmp_path / "tables"),
        "flush.interval.ms": "100",
    }
    settings = {"rest.listener": "127.0.0.1:0", "metrics.listener": "127.0.0.1:0", "lease": "false"}
    tables, workload = Tables(TablesConfig(uri=str(tmp_path / "tables"))), Workload(kafka)
    workload.create_topic("half-sent")
    workload.produce("half-sent", 40)
    workload.acknowledge("half-sent", "half-sent", 5)
    with connect_worker(tmp_path / "worker", settings, {"name": "state", "config": config}) as worker:
        worker.command = with_few_files(FILES, worker.command)
        worker.start()
        rest, metrics = (listening(worker, text) for text in ("REST interface at ", "metrics at "))
        until(lambda: rows(tables))
        with half_sent(rest.removeprefix("http://"), 300), half_sent(metrics.split("/")[2], 40):
            for _ in range(2):
                before = rows(tables)
                workload.acknowledge("half-sent", "half-sent", 5)
                until(partial(has_more, tables, before))
                status = answered(f"{rest}/connectors/state/status")
                assert status.count("RUNNING") == 2, status
            assert "acktrail_build_info" in answered(metrics)
        assert worker.stop() == 0
    assert not [line for line in worker.said if "failed" in line or "Too many open files" in line], worker.said
    ensure_whole(tables)


def rows(tables: Tables) -> int:
    with suppress(Exception):  # not written yet
        return int(tables.read("state_records").num_rows)
    return 0


def has_more(tables: Tables, before: int) -> bool:
    return rows(tables) > before


def listening(worker: Any, text: str) -> str:
    line = until(lambda: next((line for line in worker.said if text in line), None))
    return str(line).split()[-1]


def test_a_request_that_is_not_ended_is_closed(rest: Any) -> None:
    """Header or body: after ten seconds the worker closes the connection, while one that is answered stays."""
    with socket.create_connection(rest.server.address.rsplit(":", 1), timeout=3 * PATIENCE_S) as header:
        header.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        with socket.create_connection(rest.server.address.rsplit(":", 1), timeout=3 * PATIENCE_S) as body:
            head = b"POST /connectors HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            body.sendall(head + b"Content-Length: 100\r\n\r\n{")
            assert header.recv(1) == b""
            told = b"".join(iter(lambda: body.recv(10_000), b""))
            assert told.startswith(b"HTTP/1.1 400"), told


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_who_gives_way_to_a_new_caller() -> None:
    """The connection that has waited longest; where all are being answered, the new caller; late ones give way at once,
    and never more than the bound are open."""
    clock = Clock()
    with BoundedListener(socket.create_server(("127.0.0.1", 0)), most=3, clock=clock) as listener:
        listener.setblocking(False)
        callers = []

        def call() -> socket.socket | None:
            callers.append(socket.create_connection(listener.getsockname(), timeout=30))
            clock.now += 1
            return accepted()

        def accepted() -> socket.socket | None:
            try:
                return listener.accept()[0]
            except BlockingIOError:
                return None

        first, second, third = call(), call(), call()
        assert None not in {first, second, third}
        for number in (0, 2):
            listener.answering(callers[number].getsockname(), is_begun=True)
        assert call() is None
        assert callers[1].recv(1) == b""
        second.close()
        fourth = accepted()
        assert fourth is not None
        listener.answering(callers[3].getsockname(), is_begun=True)
        assert call() is None
        assert callers[4].recv(1) == b""
        listener.answering(callers[0].getsockname(), is_begun=False)
        clock.now += PATIENCE_S + 1
        listener.close_late()
        assert callers[0].recv(1) == b""
        for number in (2, 3):
            callers[number].setblocking(False)
            with pytest.raises(BlockingIOError):
                callers[number].recv(1)
        for each in (*callers, first, third, fourth):
            each.close()
