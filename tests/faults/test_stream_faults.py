"""The stream of Spark is killed, pruned past, pushed aside by a worker: what is in the tables is a whole export."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.workload import until
from faults.conftest import Export, OpenExport, log_ends, log_starts, writing
from faults.test_log_faults import pruned
from faults.test_worker_faults import all_runs, stands_by
from servers.connect_worker import ConnectWorker
from servers.kafka_proxy import kafka_proxy

from acktrail.config import TablesConfig
from acktrail.embedded import EmbeddedBroker
from acktrail.tables.delta.store import Tables

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.full]

ACKTRAIL = Path(sys.executable).with_name("acktrail")


@pytest.fixture
def streamed(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Export]:
    """``acktrail stream`` at work as a process of its own, into tables of its own."""
    tables = TablesConfig(uri=str(tmp_path / "tables"))
    with kafka_proxy(broker.bootstrap_servers) as network:
        address = network.config().bootstrap_servers
        command = [str(ACKTRAIL), "stream", "--every", "0.2", "--bootstrap-server", address, "--tables", tables.uri]
        stream = ConnectWorker(tmp_path, [*command, "--max-offsets", "500"])
        stream.start()
        yield Export(broker, tables, stream, network)
        stream.kill()


def test_killed_again_and_again_every_offset_is_there_once(
    streamed: Export, broker: EmbeddedBroker, counts: Any, pytestconfig: pytest.Config
) -> None:
    """SIGKILL of the driver at random moments, and logs that are pruned past the positions: every offset is in
    one row or in one gap, ranges follow each other, no micro-batch counts twice."""
    seed = random.SystemRandom().randrange(2**32)
    chance, kills = random.Random(seed), 20 if pytestconfig.getoption("--all") else 3
    with writing(broker):
        for _ in range(kills):
            streamed.grows()
            moment = time.perf_counter() + chance.random() * 2
            while time.perf_counter() < moment:
                pass
            streamed.worker.kill()
            streamed.worker.start()
        streamed.grows()
        streamed.worker.kill()
        with pruned(broker):
            positions = log_ends(broker)
            until(
                lambda: all(low > positions[n] for n, low in log_starts(broker).items()),
                what="pruning of what is unread",
            )
        streamed.worker.start()
        streamed.grows()
    rows = streamed.complete()
    assert streamed.worker.stop() == 0
    gaps = Tables(streamed.tables).read("export_ranges")
    lost = sum(row["gap_last"] - row["gap_first"] + 1 for row in gaps.to_pylist() if row["gap_reason"] == "pruned")
    counts(rows=rows, kills=streamed.worker.killed, gaps=streamed.gaps(), offsets_lost=lost, seed=seed)
    assert streamed.worker.killed == kills + 1
    assert lost > 0


def test_worker_and_stream_keep_out_of_each_others_way(
    streamed: Export, broker: EmbeddedBroker, export: OpenExport, counts: Any
) -> None:
    """While the one has the lease the other one stands by, whichever came first; each continues where the other ended,
    when that was killed and when it was stopped."""
    with writing(broker):
        streamed.grows(50)
        streams = until(lambda: all_runs(streamed), what="ranges of the stream")
        assert len(streams) == 1
        worker = export(streamed.tables, worker={"metrics.listener": "127.0.0.1:0"})
        until(lambda: stands_by(worker), what="a worker that stands by")
        streamed.grows(50)
        assert all_runs(streamed) == streams
        assert streamed.worker.stop() == 0
        worker.grows(50)
        streamed.worker.start()
        until(
            lambda: any("exports into these tables" in line for line in streamed.worker.said),
            what="a stream that waits",
        )
        workers = all_runs(worker) - streams
        worker.grows(50)
        assert all_runs(worker) == streams | workers
        worker.worker.kill()
        streamed.grows(50)
    counts(rows=streamed.complete())
    assert len(all_runs(streamed) - streams - workers) == 1
