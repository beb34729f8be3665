"""The stream of Spark is killed, pruned past, pushed aside by a worker: what is in the tables is a whole export."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from connect.stream import stream_process
from connect.stream.stream_process import DIES, MOMENTS
from connect.worker.faults import conftest as of_faults
from connect.worker.faults.conftest import STATE_TOPIC, Export, log_ends, log_starts, writing
from connect.worker.faults.test_worker_faults import LONG, SEED
from servers.connect_worker import ConnectWorker
from servers.kafka_proxy import kafka_proxy
from servers.workload import Workload, until

from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables
from acktrail_connect.export.export_run import observe
from acktrail_embedded import EmbeddedBroker
from acktrail_jobs.api import reconcile

pytestmark = pytest.mark.slow
broker, counts = of_faults.broker, of_faults.counts

KILLS = 20


@contextmanager
def pruned(broker: EmbeddedBroker) -> Iterator[None]:
    """Within the block the broker prunes everything that is some seconds old; afterwards nothing."""
    workload = Workload(broker.config())
    workload.configure_topic(STATE_TOPIC, retention_ms="1000", segment_ms="500")
    try:
        yield
    finally:
        workload.configure_topic(STATE_TOPIC, retention_ms="-1", segment_ms="604800000")


@pytest.fixture
def streamed(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Export]:
    """``acktrail run stream`` into tables of its own, as a process that is not started yet."""
    tables = TablesConfig(uri=str(tmp_path / "tables"))
    with kafka_proxy(broker.bootstrap_servers) as network:
        address = network.config().bootstrap_servers
        words = f"run stream --every 0.5 --bootstrap-server {address} --tables {tables.uri} --max-offsets 500"
        command = [sys.executable, stream_process.__file__, *words.split()]
        command += ["--master", "local[2,4]"]  # a task is tried again, as on a cluster
        stream = ConnectWorker(tmp_path, command, {})
        yield Export(broker, tables, stream, network)
        if stream.process is not None:
            stream.kill()


def starts(streamed: Export, moment: str = "") -> None:
    """A new process, which kills itself at `moment` where that is named."""
    streamed.worker.environment = {DIES: moment}
    streamed.worker.start()


def dies(streamed: Export, moment: str) -> None:
    """One process from its start to its end at `moment`."""
    starts(streamed, moment)
    assert streamed.worker.wait() == -signal.SIGKILL, streamed.worker.said[-20:]


@pytest.mark.full
@pytest.mark.timeout(LONG)
def test_killed_again_and_again_every_offset_is_there_once(
    streamed: Export, broker: EmbeddedBroker, counts: Any, tmp_path: Path
) -> None:
    """SIGKILL of the driver in each phase of a micro-batch, of executors' Python and of the driver at random moments,
    and logs that are pruned past the positions: every offset is in one row or in one gap, ranges follow each other, no
    micro-batch counts twice. Verdicts are those of an export that nothing happened to."""
    chance = random.Random(SEED)
    drivers = workers = 0
    with writing(broker, rate=100):
        while drivers + workers < KILLS - 1:
            for moment in MOMENTS:
                dies(streamed, moment)
            starts(streamed)
            streamed.grows()
            for _ in range(6):
                time.sleep(chance.random() * 2)  # the fault's moment, not a wait for anything
                workers += kill_a_worker(streamed)
                streamed.grows()
            streamed.worker.kill()
            drivers += len(MOMENTS) + 1
        with pruned(broker):
            positions = log_ends(broker)
            until(
                lambda: all(low > positions[n] for n, low in log_starts(broker).items()),
                what="pruning of what is unread",
            )
        starts(streamed)
        streamed.grows(500)
    rows = streamed.complete()
    assert streamed.worker.stop() == 0
    gaps = Tables(streamed.tables).read("export_ranges")
    lost = sum(row["gap_last"] - row["gap_first"] + 1 for row in gaps.to_pylist() if row["gap_reason"] == "pruned")
    counts(rows=rows, drivers=drivers, workers=workers, gaps=streamed.gaps(), offsets_lost=lost, seed=SEED)
    assert lost > 0
    assert verdicts(broker, streamed.tables) == verdicts(broker, TablesConfig(uri=str(tmp_path / "whole")))


def kill_a_worker(streamed: Export) -> int:
    """SIGKILL of one of the processes in which executors run Python, at work or not; how many were killed."""
    assert streamed.worker.process is not None
    for process in psutil.Process(streamed.worker.process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "acktrail_jobs.worker_daemon" in process.cmdline() and not process.children():
                process.kill()
                return 1
    return 0


def verdicts(broker: EmbeddedBroker, tables: TablesConfig) -> set[tuple[Any, ...]]:
    run_id = observe(broker.config(), tables).run_id
    reconcile(tables, run_id, "in-process")
    names = ("group_id", "topic_id", "partition", "durable_start_offset", "durable_lag", "verdict")
    found = {tuple(row[name] for name in names) for row in Tables(tables).rows("reconciliations", {"run_id": run_id})}
    assert found
    return found
