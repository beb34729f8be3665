"""A worker that dies, a network that breaks and a broker that goes away cost time, never a record: after each fault
every offset is in one row or in one gap.

The number of SIGKILLs and of cut connections is small here; a run of all tests makes a hundred of each, and
``ACKTRAIL_FAULTS=300`` as many as it says. The seed of a failed run is in its message; ``ACKTRAIL_SEED`` repeats it.
"""

from __future__ import annotations

import os
import random
import time
import urllib.request
from collections.abc import Callable
from typing import Any, Final

import pytest
from faults.conftest import Export, OpenExport, writing
from servers.kafka_proxy import EVERYTHING
from servers.real_broker import kill, restart
from servers.workload import until

from acktrail.embedded import EmbeddedBroker
from acktrail.tables.delta.store import Tables

pytestmark = [pytest.mark.broker, pytest.mark.slow]

FEW_KILLS, FEW_CUTS = 2, 8
LONG: Final = 3_600
"""Seconds that hundreds of faults may take on a busy machine."""
SEED: Final = int(os.environ.get("ACKTRAIL_SEED", "0")) or random.SystemRandom().randrange(2**32)
FETCH, METADATA, API_VERSIONS = 1, 3, 18


@pytest.mark.timeout(LONG)
def test_killed_at_random_moments(
    running: Export, broker: EmbeddedBroker, how_many: Callable[[int], int], counts: Any
) -> None:
    """SIGKILL at random moments, again and again, while records are written: every offset once, poison too."""
    chance, killed, wanted = random.Random(SEED), running.worker.killed, how_many(FEW_KILLS)
    with writing(broker) as writer:
        running.grows()
        for _ in range(wanted):
            if chance.random() < 0.7:  # at work; the others are killed while they start
                running.grows()
            time.sleep(chance.random() * 0.5)  # the fault's moment, not a wait for anything
            running.worker.kill()
            running.worker.start()
    rows, kills = running.complete(), running.worker.killed - killed
    counts(seed=SEED, kills=kills, written=writer.written, rows=rows, gaps=running.gaps())
    assert kills > wanted // 2, SEED


@pytest.mark.timeout(LONG)
def test_the_network_is_cut_in_mid_response(
    running: Export, broker: EmbeddedBroker, how_many: Callable[[int], int], counts: Any
) -> None:
    """A response ends with its connection after any number of its bytes: those of Fetch, and those by which the client
    finds its way back. No record of such a response is used, none is missed, and it is no outage."""
    chance, outages, wanted = random.Random(SEED), running.outages(), how_many(FEW_CUTS)
    with writing(broker):
        running.grows()
        spoiled = running.network.spoiled.total()
        for _ in range(wanted):
            before = running.network.spoiled.total()
            if chance.random() < 0.3:
                running.network.cuts[chance.choice((METADATA, API_VERSIONS))].append(chance.random())
            running.network.cuts[FETCH].append(chance.random())
            until(lambda seen=before: running.network.spoiled.total() > seen, what=f"a cut response; seed {SEED}")
            if chance.random() < 0.2:
                running.grows()
        running.grows()
    cuts = running.network.spoiled.total() - spoiled
    counts(seed=SEED, cuts=cuts, rows=running.complete())
    assert cuts >= wanted
    assert running.outages() == outages


def test_connections_fall_silent(running: Export, broker: EmbeddedBroker, counts: Any) -> None:
    """Records never come, and nothing ends the connections: the client gives them up by itself."""
    outages = running.outages()
    with writing(broker, rate=100):
        running.grows()
        running.network.silenced.add(FETCH)
        before = running.network.spoiled.total()
        until(
            lambda: running.network.spoiled.total() >= before + 2, what="a second request after one without a response"
        )
        running.network.silenced.clear()
        running.grows()
    counts(rows=running.complete(), swallowed=running.network.spoiled.total() - before)
    assert running.outages() == outages


def test_the_only_broker_goes_away(running: Export, broker: EmbeddedBroker, counts: Any) -> None:
    """A restart is a pause. Silence that lasts, a crash and a start behind it are one line when the outage begins and
    one when it ends."""
    runs, (before, _) = running.worker.runs, running.outages()
    with writing(broker, rate=100) as writer:
        running.grows()
        restart(broker)
        running.grows()
        restarted = running.outages()[0]
        running.network.silenced.add(EVERYTHING)
        running.pauses(restarted)
        kill(broker)
        broker.start()
        running.network.silenced.clear()
        running.grows(10)
    rows = running.complete()
    began, ended = running.outages()
    counts(written=writer.written, rows=rows, outages=began - before)
    assert running.worker.runs == runs
    assert began == ended
    assert restarted - before <= 2
    assert began - restarted <= 2


def test_a_second_worker_stands_by_and_takes_over(
    running: Export, broker: EmbeddedBroker, export: OpenExport, counts: Any
) -> None:
    """With a lease the second worker does nothing until the first one died, and the first one stands by when it is
    started again, until the second one ends: records come from one worker at a time."""
    with writing(broker):
        running.grows()
        before = until(lambda: all_runs(running), what="ranges, which are committed after their records")
        second = export(running.tables, worker={"metrics.listener": "127.0.0.1:0"})
        until(lambda: stands_by(second), what="a worker that stands by")
        running.grows(50)
        assert all_runs(running) == before, (running.worker.said, second.worker.said)
        running.worker.kill()
        second.grows(50)
        took_over = until(lambda: all_runs(running) - before, what="rows of the second worker")
        assert len(took_over) == 1
        running.worker.start()
        second.grows(50)
        assert all_runs(running) == before | took_over
        assert second.worker.stop() == 0
        running.grows(50)
    counts(rows=running.complete())
    assert len(all_runs(running) - before) == 2


def stands_by(export: Export) -> bool:
    """Whether the worker's metrics say so."""
    address = next((line.rpartition(" ")[2] for line in export.worker.said if "metrics at" in line), None)
    if address is None:
        return False
    with urllib.request.urlopen(address, timeout=30) as answer:
        return b'acktrail_connector_state{connector="state",state="UNASSIGNED"} 1.0' in answer.read()


def all_runs(export: Export) -> set[str]:
    """The runs that rows are from: each attempt of a task is one."""
    return set(Tables(export.tables).read("export_ranges", columns=["run_id"])["run_id"].to_pylist())
