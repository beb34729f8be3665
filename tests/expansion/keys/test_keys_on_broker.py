"""What keys show, against what is really in the logs: a producer with old metadata beside one with the new count."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from broker.workload import until
from expansion.support.expanded_topic import ExpandedTopic, expanded_topic, in_process
from pyspark.sql import SparkSession

from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail.errors import ForeignCluster, NotAuthorized
from acktrail.executors import Executors
from acktrail_expansion.keys import key_reading
from acktrail_expansion.keys.key_reading import read_keys
from acktrail_jobs.spark_executors import SparkExecutors

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

PARTITIONERS = {"murmur2": "murmur2_random", "crc32": "consistent_random"}


@pytest.fixture(scope="module", params=[("murmur2", 4), ("crc32", 3)], ids=["murmur2-to-4", "crc32-to-3"])
def world(
    request: pytest.FixtureRequest, broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ExpandedTopic]:
    """Both producers in turn while the topic grows, and one record of the old count after it has settled; a group that
    stands in the middle of the old partitions goes on with the new ones."""
    mapping, count = request.param
    name, tables = f"keyed-{uuid4().hex[:8]}", tmp_path_factory.mktemp("keys")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ACKTRAIL_SETTLE", "1s")
        environment.setenv("ACKTRAIL_KEY_MAPPINGS", f"*={mapping}")
        with expanded_topic(broker.config(), tables, name, 2, ("classic",), partitioner=PARTITIONERS[mapping]) as found:
            found.play(f"stale stale half look apply {count} stale write stale")
            until(lambda: is_settled(found), what="producers to know the count")
            found.play("write new look write new look")
            found.audit()
            yield found


def is_settled(world: ExpandedTopic) -> bool:
    world.play("look")
    world.audit()
    return bool(event(world)["status"] == "settled")


def true_fences(world: ExpandedTopic) -> dict[int, int]:
    """One past the last record by the old count whose key moved, or the low fence."""
    moved = world.true.moved(*world.true.counts)
    found = {}
    for row in fences(world).values():
        own = [record for record in world.true.records if record.partition == row["partition"]]
        late = [each.offset + 1 for each in own if each.count == 2 and each.key in moved]
        found[row["partition"]] = max(row["fence_low"], *late)
    return found


def fences(world: ExpandedTopic) -> dict[int, dict[str, Any]]:
    return {row["partition"]: row for row in world.stored.rows("expansion_fences")}


def test_fences_are_exact_and_keys_at_risk_are_named(world: ExpandedTopic) -> None:
    """By who wrote each record. The group stood in the middle of the old partitions, far below the low fence: every
    key with a record there and one in the partition that it moved to is named, by digest, and so is every key that
    was overtaken."""
    verdicts = world.read_keys()
    assert {partition: row["fence_exact"] for partition, row in fences(world).items()} == true_fences(world)
    assert all(row["fence_low"] < row["fence_exact"] <= row["fence_high"] for row in fences(world).values())
    moved = world.true.moved(*world.true.counts)
    broken = [row for row in verdicts.values() if row["verdict"] == "broken"]
    assert broken
    for row in broken:
        way = (row["source_partition"], row["partition"])
        open_keys = {
            record.key
            for record in world.true.records
            if record.partition == way[0] and record.count == 2 and record.offset >= row["source_offset"]
        }
        expected = {key for key in open_keys if moved.get(key) == way}
        assert {key["digest"] for key in row["keys"]} == {hashlib.sha256(key).hexdigest() for key in expected}
        assert row["keys_at_risk"] == len(expected) > 0
        left = world.true.overtaken("classic", row["partition"], *world.true.counts)[way[0]]
        assert {record.key for record in left if record.key in moved and moved[record.key] == way} <= expected
        assert b"key-" not in repr(row).encode()


def test_spark_s_workers_find_the_same(
    spark: SparkSession, world: ExpandedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs in stretches of 20 offsets, shared out."""
    monkeypatch.setattr(key_reading, "_AT_ONCE", 20)
    found = []
    workers: tuple[Callable[[str], Any], ...] = (in_process, lambda _run: spark_of(spark))
    for open_executors in workers:
        read = read_keys(world.true.config, world.stored, open_executors, event(world))
        rows = [{**row, "keys_read_at": None} for row in fences(world).values()]
        found.append((read.records, sorted(map(str, read.both.to_pylist())), rows))
    assert found[0] == found[1]
    assert found[0][0] > 100


def spark_of(spark: SparkSession) -> nullcontext[Executors]:
    return nullcontext(SparkExecutors(lambda: spark))


def event(world: ExpandedTopic) -> dict[str, Any]:
    found = world.event()
    assert found is not None
    return found


def test_another_partitioner_is_seen_by_its_records(world: ExpandedTopic) -> None:
    """With the other mapping keys lie where neither count puts them: no exact fence is given."""
    other = "crc32" if event(world)["key_mapping"] == "murmur2" else "murmur2"
    read = read_keys(world.true.config, world.stored, in_process, event(world) | {"key_mapping": other})
    assert read.has_changed
    for row in fences(world).values():
        assert row["fence_exact"] is None
        assert row["elsewhere_records"] > 0
        assert "choose partitions in another way" in row["keys_reason"]
    assert read_keys(world.true.config, world.stored, in_process, event(world)).has_changed
    assert not read_keys(world.true.config, world.stored, in_process, event(world)).has_changed


def test_records_behind_the_high_fence_show_that_the_settle_time_was_too_short(world: ExpandedTopic) -> None:
    """One more record of each key by the producer with old metadata, after all has settled."""
    assert not any(row["late_records"] for row in fences(world).values())
    moved = list(world.true.moved(*world.true.counts).values())
    world.true.write(1, stale=True)
    world.read_keys()
    late = {partition: row["late_records"] for partition, row in fences(world).items()}
    assert late == {partition: sum(way[0] == partition for way in moved) for partition in late}
    assert {partition: row["fence_exact"] for partition, row in fences(world).items()} == true_fences(world)
    rules = {row["rule"] for row in world.stored.rows("findings")}
    assert "settle_time_long_enough" in rules


def test_a_topic_that_was_made_again_is_not_read(world: ExpandedTopic) -> None:
    with pytest.raises(ForeignCluster, match="recreated"):
        read_keys(world.true.config, world.stored, in_process, event(world) | {"topic_id": "another"})


def test_keys_are_not_read_without_the_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may describe a topic and not read it gets one line, before any record is asked for."""
    monkeypatch.setenv("ACKTRAIL_SETTLE", "0s")
    monkeypatch.setenv("ACKTRAIL_KEY_MAPPINGS", "*=murmur2")
    with (
        EmbeddedBroker(sasl_users={"admin": "a", "ann": "b"}) as secured,
        expanded_topic(secured.config(), tmp_path, "guarded", 1, ()) as world,
    ):
        world.play("write look client 2 look look")
        world.audit()
        world.true.workload.allow("ann", "DESCRIBE", "TOPIC", "guarded")
        with pytest.raises(NotAuthorized, match="READ on the topic"):
            read_keys(secured.config("ann"), world.stored, in_process, event(world))
