"""A worker that dies, a network that breaks and a broker that goes away cost time, never a record: after each fault
every offset is in one row or in one gap. So it is when records of the state topic cannot be read, when the tables are
of a newer release, when the disk is full, and when state partitions and coordinators move between brokers.

The number of SIGKILLs and of cut connections is small here; a run of all tests makes a hundred of each, and
``ACKTRAIL_FAULTS=300`` as many as it says. The seed of a failed run is in its message; ``ACKTRAIL_SEED`` repeats it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from connect.worker.faults.conftest import POISON, Export, exports, good, log_ends, writing
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType
from servers.broker_pair import BrokerPair, broker_pair
from servers.kafka_proxy import EVERYTHING
from servers.real_broker import kill, restart
from servers.workload import until
from state_topics.filled_topic import STATE_TOPIC, fill

from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, DamagedTables, RetryableError
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.changes import NewStartOffset
from acktrail.kafka.client.error_codes import Outcome
from acktrail.tables.delta.store import Tables
from acktrail_embedded import EmbeddedBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

FEW_KILLS, FEW_CUTS = 2, 8
LONG: Final = 3_600
"""Seconds that hundreds of faults may take on a busy machine."""
SEED: Final = int(os.environ.get("ACKTRAIL_SEED", "0")) or random.SystemRandom().randrange(2**32)
FETCH, METADATA, API_VERSIONS = 1, 3, 18


_BALLAST = "ballast"


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """The file system at `folder`."""

    folder: Path

    def fill(self) -> None:
        """Leave no room, not even for an empty file's name."""
        with (self.folder / _BALLAST).open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while file.write(bytes(size)):
                        pass
                except OSError:
                    continue

    def make_room(self) -> None:
        """Take away what ``fill`` wrote."""
        (self.folder / _BALLAST).unlink()


@contextmanager
def small_disk(folder: Path, size_mib: int) -> Iterator[SmallDisk]:
    """A disk of `size_mib` at `folder` that ends with the block; skips where this user may mount nothing."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "acktrail-tests", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip()
        pytest.skip(f"no disk that can be full: {said}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_the_disk_is_full(broker: EmbeddedBroker, tmp_path: Path, counts: Any) -> None:
    """A full disk is an outage: one line when it begins, and one after there is room again. What was written half is in
    no table, and nothing is written twice. It is the first test of the broker: what others write takes room of the
    disk."""
    with small_disk(tmp_path / "disk", 64) as disk, exports(broker, tmp_path) as export:
        running = export(TablesConfig(uri=str(disk.folder / "tables")))
        with writing(broker):
            running.grows()
            for number in range(3):
                disk.fill()
                running.pauses(number)
                disk.make_room()
                running.continues()
        counts(rows=running.complete(), outages=running.outages()[0])
        assert running.worker.stop() == 0
    assert running.outages() == (3, 3)
    assert any("the storage is full" in line for line in running.worker.said)


def test_every_kind_of_poison_is_in_quarantine(running: Export, broker: EmbeddedBroker, counts: Any) -> None:
    """Each record that cannot be read is a row with its bytes and a reason, the records around it are decoded, and the
    worker neither stops nor starts again."""
    with writing(broker):
        running.grows()
    errors, runs = running.outages(), running.worker.runs
    first = log_ends(broker)[0]
    fill(broker, ((0, *pair) for poison in POISON for pair in (good(1), poison, good(2))))
    rows = running.complete()
    columns = ["state_partition", "offset", "key", "value", "decode_status", "decode_error"]
    stored = [
        row
        for row in Tables(running.tables).read("state_records", columns=columns).to_pylist()
        if row["state_partition"] == 0 and row["offset"] >= first
    ]
    stored.sort(key=lambda row: row["offset"])
    assert [(row["key"], row["value"]) for row in stored[1::3]] == list(POISON)
    assert all(row["decode_status"] != "decoded" and row["decode_error"] for row in stored[1::3])
    assert {row["decode_status"] for row in (*stored[::3], *stored[2::3])} == {"decoded"}
    assert (running.outages(), running.worker.runs) == (errors, runs)
    counts(rows=rows, kinds=len(POISON))


def test_a_table_of_a_newer_release(running: Export, broker: EmbeddedBroker, counts: Any, tmp_path: Path) -> None:
    """A column that this release does not know is left alone, and rows are added beside it. A table that asks its
    writers for what this release cannot do is refused with words that say so, and stays as it is."""
    with writing(broker):
        running.grows()
        assert running.worker.stop() == 0
        DeltaTable(f"{running.tables.uri}/state_records").alter.add_columns(
            Field("of_a_release_to_come", PrimitiveType("string"), nullable=True)
        )
        running.worker.start()
        running.grows()
    counts(rows=running.complete())
    copied = tmp_path / "tables"
    shutil.copytree(running.tables.uri, copied)
    ask_for_unknown_feature(copied / "state_records")
    store = Tables(TablesConfig(uri=str(copied)))
    before = sorted(copied.rglob("*"))
    with pytest.raises(ConfigurationError, match="newer") as raised:
        store.append("state_records", store.read("state_records").slice(0, 1), transactions={"one": 1})
    assert not isinstance(raised.value, DamagedTables)
    assert sorted(file for file in copied.rglob("*") if file.suffix == ".json") == [
        file for file in before if file.suffix == ".json"
    ]


def ask_for_unknown_feature(table: Path) -> None:
    """A commit, as another writer makes it, after which writers need a feature of the future."""
    version = DeltaTable(str(table)).version() + 1
    features = ["appendOnly", "invariants", "ofTheFuture"]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    (table / "_delta_log" / f"{version:020d}.json").write_text(json.dumps({"protocol": protocol}) + "\n")


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
    running.continues()
    began, ended = running.outages()
    counts(written=writer.written, rows=rows, outages=began - before)
    assert running.worker.runs == runs
    assert began == ended
    assert restarted - before <= 2
    assert began - restarted <= 2


def test_a_second_worker_stands_by_and_takes_over(
    running: Export, broker: EmbeddedBroker, tmp_path: Path, counts: Any
) -> None:
    """With a lease the second worker does nothing until the first one died, and the first one stands by when it is
    started again, until the second one ends: records come from one worker at a time."""
    with exports(broker, tmp_path) as export, writing(broker):
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


MOVES: Final = min(int(os.environ.get("ACKTRAIL_FAULTS", "3")), 50)
LEADERS: Final = [1, 2, 1, 2, 1]
GROUP, WORK = "observed", "work"


@pytest.fixture
def pair() -> Iterator[BrokerPair]:
    with broker_pair({"unclean.leader.election.enable": "true"}) as running:
        running.create_topic(STATE_TOPIC, LEADERS, {"min.insync.replicas": "1"})
        running.create_topic(WORK, [1], {})
        yield running


@pytest.fixture
def moved(pair: BrokerPair, tmp_path: Path) -> Iterator[Export]:
    """An export through all the moves, with observations of a share group every second."""
    with ShareGroupAdmin(pair.first.config()) as admin:
        until(lambda: makes_group(admin), what="a group and its coordinator")
    observing = {"name": "offsets", "config": {"connector.class": "ShareGroupOffsetsSource", "interval.ms": "1000"}}
    with exports(pair.first, tmp_path) as opened:
        yield opened(beside=observing)


def makes_group(admin: ShareGroupAdmin) -> bool:
    """Whether the share group of the observations is there now."""
    try:
        (row,) = admin.alter_offsets(GROUP, [NewStartOffset(topic=WORK, partition=0, start_offset=0)])
    except RetryableError:
        return False
    return row.outcome is Outcome.DONE


@pytest.mark.full
def test_leaders_and_coordinators_move(moved: Export, pair: BrokerPair, counts: Any) -> None:
    """Leaders of the state partitions and coordinators move again and again while records are written, one broker stops
    in order, and one is killed: the worker stays, nothing is lost or doubled, and observations continue."""
    chance = random.Random(SEED)
    coordinators = len(pair.leaders("__consumer_offsets"))
    with writing(pair.first):
        moved.grows()
        for _ in range(MOVES):
            pair.lead(STATE_TOPIC, [chance.choice((1, 2)) for _ in LEADERS])
            pair.lead("__consumer_offsets", [chance.choice((1, 2))] * coordinators)
            moved.grows()
        restart(pair.second)
        pair.lead("__consumer_offsets", [2] * coordinators)
        pair.lead(STATE_TOPIC, LEADERS)
        moved.grows()
        kill(pair.second)
        until(lambda: 2 not in pair.leaders(STATE_TOPIC), what="leaders after a crash")
        moved.grows(50)
        observed = observations(moved)
        until(lambda: observations(moved) >= observed + 4, what="observations by the new coordinator")
        pair.second.start()
    counts(seed=SEED, moves=MOVES, rows=moved.complete(), observations=observations(moved))
    assert moved.worker.runs == 1


def observations(export: Export) -> int:
    """How many times the coordinator described the share group."""
    rows = Tables(export.tables).read("group_observations", columns=["group_id", "error_code"]).to_pylist()
    return sum((row["group_id"], row["error_code"]) == (GROUP, 0) for row in rows)
