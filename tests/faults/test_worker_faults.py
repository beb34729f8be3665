"""What breaks around a worker costs time, never a record: after each fault every offset is in one row or in one gap.

The number of SIGKILLs is small here; ``ACKTRAIL_FAULTS=300`` makes it as large. The seed of a failed run is in its
message, and ``ACKTRAIL_SEED`` repeats it.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from broker.workload import until
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec, ResourceType
from deltalake import DeltaTable
from faults.conftest import PARTITIONS, Export, writing
from servers.real_broker import kill, restart
from state_topics.filled_topic import STATE_TOPIC

from acktrail.embedded import EmbeddedBroker
from acktrail.tables.delta.store import Tables

pytestmark = [pytest.mark.broker, pytest.mark.slow]

KILLS = int(os.environ.get("ACKTRAIL_FAULTS", "6"))
SEED = int(os.environ.get("ACKTRAIL_SEED", "0")) or random.SystemRandom().randrange(2**32)


@pytest.fixture
def counts(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Reports what a fault's test counted, at the end of the run."""
    return lambda **found: record_property("faults", ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in found.items()))


def test_killed_at_random_moments(broker: EmbeddedBroker, export: Callable[..., Export], counts: Any) -> None:
    """SIGKILL at random moments, again and again, while records are written: every offset once, poison too."""
    chance = random.Random(SEED)
    with writing(broker) as writer:
        running = export()
        running.grows()
        for _ in range(KILLS):
            time.sleep(chance.random() * 1.5)  # the fault's moment, not a wait for anything
            running.worker.kill()
            running.worker.start()
            if chance.random() < 0.5:
                running.grows()
    rows = running.finish()
    counts(seed=SEED, kills=running.worker.killed, written=writer.written, rows=rows)
    assert running.worker.killed > KILLS // 2
    records = Tables(running.tables).read("state_records", columns=["decode_status", "decode_error"]).to_pylist()
    odd = [row for row in records if row["decode_status"] != "decoded"]
    assert odd
    assert all(row["decode_error"] for row in odd)


@pytest.mark.parametrize("way", ["restart", "crash"])
def test_the_only_broker_goes_away(
    broker: EmbeddedBroker, export: Callable[..., Export], way: str, counts: Any
) -> None:
    """A restart is a pause; a crash that lasts is one line when the outage begins and one when it ends."""
    with writing(broker, rate=100) as writer:
        running = export()
        running.grows()
        if way == "restart":
            restart(broker)
        else:
            kill(broker)
            until(lambda: running.outages()[0], what="the line that says that it pauses")
            broker.start()
        running.grows(10)
    rows = running.finish()
    began, ended = running.outages()
    counts(way=way, written=writer.written, rows=rows, outages=began)
    assert running.worker.runs == 1
    assert began == ended <= 2
    assert began or way == "restart"


def test_records_pruned_meanwhile_are_a_gap(broker: EmbeddedBroker, export: Callable[..., Export], counts: Any) -> None:
    """The logs are pruned past the positions while the worker is dead, and again and again while it reads."""
    with writing(broker), pruned(broker):
        running = export()
        running.grows()
        running.worker.kill()
        positions = log_ends(broker)
        until(
            lambda: all(low > positions[n] for n, low in log_starts(broker).items()), what="pruning of what is unread"
        )
        running.worker.start()
        running.grows(50)
    rows = running.finish()
    ranges = Tables(running.tables).read("export_ranges").to_pylist()
    gaps = [row for row in ranges if row["gap_first"] is not None and row["gap_reason"] == "pruned"]
    counts(rows=rows, gaps=len(gaps), offsets_lost=sum(row["gap_last"] - row["gap_first"] + 1 for row in gaps))
    assert {row["state_partition"] for row in gaps} == set(range(PARTITIONS))


@contextmanager
def pruned(broker: EmbeddedBroker) -> Iterator[None]:
    """Within the block the broker prunes whatever is some seconds old; afterwards nothing."""
    set_topic(broker, {"retention.ms": "1000", "segment.ms": "500"})
    try:
        yield
    finally:
        set_topic(broker, {"retention.ms": "-1", "segment.ms": "604800000"})


def set_topic(broker: EmbeddedBroker, configs: dict[str, str]) -> None:
    entries = [ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET) for k, v in configs.items()]
    resource = ConfigResource(ResourceType.TOPIC, STATE_TOPIC, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def log_starts(broker: EmbeddedBroker) -> dict[int, int]:
    return _offsets(broker, OffsetSpec.earliest())


def log_ends(broker: EmbeddedBroker) -> dict[int, int]:
    return _offsets(broker, OffsetSpec.latest())


def _offsets(broker: EmbeddedBroker, spec: OffsetSpec) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    asked = admin.list_offsets({TopicPartition(STATE_TOPIC, number): spec for number in range(PARTITIONS)})
    return {place.partition: future.result(30).offset for place, future in asked.items()}


def test_two_workers(broker: EmbeddedBroker, export: Callable[..., Export], counts: Any) -> None:
    """Without a lease two workers race for one connector and never double a record."""
    alone = {"lease": False}
    with writing(broker):
        first, second = export(worker=alone), export(name="other", worker=alone)
        first.grows(50)
        first.worker.kill()
        second.grows(50)
    counts(rows=second.finish())


def test_a_second_worker_stands_by_and_takes_over(
    broker: EmbeddedBroker, export: Callable[..., Export], counts: Any
) -> None:
    """With a lease the second worker does nothing until the first one died, and the first one stands by when it is
    started again: records come from one worker at a time."""
    terms = {"lease.ttl.ms": 2_000, "log.format": "json"}
    with writing(broker):
        first = export(worker=terms)
        first.grows()
        second = export(name="other", worker=terms)
        first.grows(50)
        assert len(run_ids(first)) == 1
        first.worker.kill()
        second.grows(50)
        first.worker.start()
        second.grows(50)
    assert len(run_ids(first)) == 2
    counts(rows=second.finish())


def run_ids(export: Export) -> set[str]:
    """The runs that rows are from: each attempt of a task is one."""
    return set(Tables(export.tables).read("state_records", columns=["run_id"])["run_id"].to_pylist())


def test_others_maintain_the_table(broker: EmbeddedBroker, export: Callable[..., Export], counts: Any) -> None:
    """OPTIMIZE, a checkpoint and a vacuum by somebody else in between do not disturb the export."""
    with writing(broker):
        running = export()
        for _ in range(3):
            running.grows()
            table = DeltaTable(f"{running.tables.uri}/state_records")
            table.optimize.compact()
            table.create_checkpoint()
            table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    rows = running.finish()
    counts(rows=rows, restarts=running.worker.runs - 1, outages=running.outages()[0])


def test_a_table_of_a_newer_release(broker: EmbeddedBroker, export: Callable[..., Export], counts: Any) -> None:
    """A column that this release does not know is left alone, and rows are added beside it."""
    from deltalake import Field
    from deltalake.schema import PrimitiveType

    with writing(broker):
        running = export()
        running.grows()
        assert running.worker.stop() == 0
        DeltaTable(f"{running.tables.uri}/state_records").alter.add_columns(
            Field("of_a_release_to_come", PrimitiveType("string"), nullable=True)
        )
        running.worker.start()
        running.grows()
    counts(rows=running.finish())
