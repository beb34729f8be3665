"""What happens to the state topic under a worker: records vanish, cannot be read, are those of another topic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from faults.conftest import PARTITIONS, POISON, Export, good, log_ends, log_starts, writing
from servers.workload import until
from state_topics.filled_topic import STATE_TOPIC, create_state_topic, fill, read_all

from acktrail.embedded import EmbeddedBroker
from acktrail.tables.delta.store import Tables

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def test_records_pruned_meanwhile_are_a_gap(running: Export, broker: EmbeddedBroker, counts: Any) -> None:
    """The logs are pruned past the positions while the worker is dead, and again and again while it reads."""
    with writing(broker):  # a partition that was never exported has another reason for its gap
        until(lambda: len(exported_partitions(running)) == PARTITIONS, what="rows of every partition")
    with writing(broker), pruned(broker):
        running.grows()
        running.worker.kill()
        positions = log_ends(broker)
        until(
            lambda: all(low > positions[n] for n, low in log_starts(broker).items()), what="pruning of what is unread"
        )
        running.worker.start()
        running.grows(50)
    rows = running.complete()
    ranges = Tables(running.tables).read("export_ranges").to_pylist()
    gaps = [row for row in ranges if row["gap_first"] is not None and row["gap_reason"] == "pruned"]
    counts(rows=rows, gaps=len(gaps), offsets_lost=sum(row["gap_last"] - row["gap_first"] + 1 for row in gaps))
    assert {row["state_partition"] for row in gaps} == set(range(PARTITIONS))


def exported_partitions(export: Export) -> set[int]:
    """Those with rows."""
    store = Tables(export.tables)
    if not store.exists("state_records"):
        return set()
    return set(store.read("state_records", columns=["state_partition"])["state_partition"].to_pylist())


@contextmanager
def pruned(broker: EmbeddedBroker) -> Iterator[None]:
    """Within the block the broker prunes everything that is some seconds old; afterwards nothing."""
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


def test_every_kind_of_poison_is_in_quarantine(running: Export, broker: EmbeddedBroker, counts: Any) -> None:
    """Each record that cannot be read is a row with its bytes and a reason, the records around it are decoded, and the
    worker neither stops nor starts again."""
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


def test_two_incarnations_are_never_mixed(running: Export, broker: EmbeddedBroker, counts: Any) -> None:
    """The state topic is deleted and made again under a running worker, with more records than it had: the worker stops
    and says why, also when it is started again, and its tables have records of the first topic only, without a hole."""
    running.complete()
    fill(broker, ((n % PARTITIONS, *good(n)) for n in range(500)))
    before = {(r.state_partition, r.offset): (r.key, r.value) for r in read_all(broker)}
    recreate(broker)
    fill(broker, ((n % PARTITIONS, b"another", b"topic") for n in range(2 * len(before))))
    for _ in range(2):
        assert running.worker.wait() == 1
        assert any("recreated" in line or "has id" in line for line in running.worker.said[-1:])
        stored = {
            (row["state_partition"], row["offset"]): (row["key"], row["value"])
            for row in Tables(running.tables).read("state_records").to_pylist()
        }
        assert not any(key == b"another" for key, _ in stored.values())
        assert {address: pair for address, pair in stored.items() if address in before}.items() <= before.items()
        for partition in range(PARTITIONS):
            offsets = sorted(at for number, at in stored if number == partition and (number, at) in before)
            assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
        running.worker.start()
    running.worker.kill()
    running.is_sound = False  # there is nothing that it could read any more
    counts(rows=len(stored), of_the_first_topic=len(before))


def recreate(broker: EmbeddedBroker) -> None:
    """The topic's successor has its name and another id."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics([STATE_TOPIC])[STATE_TOPIC].result(30)
    create_state_topic(broker, PARTITIONS)
    until(lambda: STATE_TOPIC in admin.list_topics(timeout=30).topics, what="the new state topic")
