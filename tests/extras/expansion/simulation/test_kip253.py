"""The messages and znodes of KIP-253: to bytes and JSON and back, under each of their names. Its controller, broker,
log and coordinator simulated, each by its own rules: together they keep the order by checks and gates, and break it
without them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples.golden_vectors import SEED, typed, typed_vectors

from acktrail.errors import InputError, MalformedRecord
from acktrail_simulation.expansion.expansion_messages import (
    EARLIER_NAMES,
    LEADER_EPOCHS_REQUEST,
    LEADER_EPOCHS_RESPONSE,
    MESSAGES,
    PRODUCE,
    RECORD_SET,
    message_named,
)
from acktrail_simulation.expansion.expansion_world import ExpansionWorld, WorldShape
from acktrail_simulation.expansion.field_lists import IntegerType, StructType
from acktrail_simulation.expansion.gating import Gating
from acktrail_simulation.expansion.key_order import inversions
from acktrail_simulation.expansion.znodes import PartitionZnode, TopicZnode, read_partition_znode, read_topic_znode

KIP = SEED["kip253"]


def values(found: Any) -> st.SearchStrategy[Any]:
    """Any value of a type's field list."""
    if isinstance(found, StructType):
        return st.builds(found.make, **{each.name: values(each.type) for each in found.fields})
    if isinstance(found, IntegerType):
        most = 1 << 8 * found.kind.size - 1
        return st.integers(-most, most - 1)
    item = getattr(found, "item", None)
    if item is not None:
        return st.lists(values(item), max_size=3).map(tuple)
    if hasattr(found, "nullable"):
        return st.none() | st.text(max_size=20) if found.nullable else st.text(max_size=20)
    return {"BooleanType": st.booleans(), "BytesType": st.binary(max_size=20)}[type(found).__name__]


@pytest.mark.parametrize("message", [*MESSAGES.values(), RECORD_SET], ids=lambda each: each.make.__name__)
@given(st.data())
def test_round_trip(message: StructType[Any], data: st.DataObject) -> None:
    """R003-08 to R003-20: what is encoded is decoded to the same value, as bytes and as JSON; every byte counts."""
    value = data.draw(values(message))
    encoded = message.write(value)

    assert message.decode(encoded) == value
    assert message.from_json(json.loads(json.dumps(message.to_json(value)))) == value
    assert len(encoded) >= message.least
    with pytest.raises(MalformedRecord):
        message.decode(encoded + b"\0")
    with pytest.raises(MalformedRecord):
        message.decode(encoded[:-1])


@pytest.mark.parametrize(
    "vector", typed_vectors(Path(__file__).with_name("kip253_messages.toml")), ids=lambda vector: vector["name"]
)
def test_typed_messages(vector: dict[str, Any]) -> None:
    """R003-08 to R003-11, R003-13 to R003-20: each message is what the document's list of fields says, byte by byte."""
    message, data = message_named(vector["name"]), typed(vector["bytes"])

    assert message.to_json(message.decode(data)) == vector["says"]
    assert message.write(message.from_json(vector["says"])) == data


def test_earlier_names_are_read() -> None:
    """R003-12, R003-22: partition_number in a ProduceRequest, transaction_id, leaderEpoch, and the three names that the
    last two messages had; given twice is an error."""
    topic = {"topic": "t", "partition_number": 4, "data": []}
    request = {"transaction_id": "x", "acks": 1, "timeout": 1, "topic_data": [topic]}
    assert PRODUCE.from_json(request).topic_data[0].undeleted_partition_count == 4
    assert PRODUCE.to_json(PRODUCE.from_json(request))["topic_data"][0]["undeleted_partition_count"] == 4
    topic["undeleted_partition_count"] = 4
    with pytest.raises(InputError, match="given twice"):
        PRODUCE.from_json(request)

    entry = {"topic": "t", "partitions": [{"partition": 0, "leaderEpoch": 7}]}
    answer = {"throttle_time_ms": 0, "topics": [entry]}
    for name in EARLIER_NAMES:
        expected = LEADER_EPOCHS_REQUEST if name.endswith("Request") else LEADER_EPOCHS_RESPONSE
        assert message_named(name) is expected
    assert message_named("LeaderEpochForPartitionResponse").from_json(answer).topics[0].partitions[0].leader_epoch == 7
    assert {message_named(name) for name in MESSAGES} == set(MESSAGES.values())
    with pytest.raises(InputError, match="changes no message 'FetchRequest'"):
        message_named("FetchRequest")


epochs = st.integers(0, 2**31 - 1)


@given(st.integers(0, 5), epochs, st.data())
def test_partition_znodes_round_trip_under_both_names(partition: int, epoch: int, data: st.DataObject) -> None:
    """R003-04 to R003-07: written and read again they are the same, also as priorLeaderEpochs and
    without maps; a map under both names is an error."""
    lower = st.dictionaries(st.integers(0, partition - 1), epochs) if partition else st.just({})
    znode = PartitionZnode(
        partition=partition,
        version=2,
        partition_epoch=epoch,
        leader_epoch_after_creation=data.draw(lower),
        leader_epoch_before_deletion=data.draw(lower),
    )
    written = json.loads(json.dumps(znode.to_json()))

    assert read_partition_znode(written, partition) == znode
    earlier = {("priorLeaderEpochs" if name == "leaderEpochAfterCreation" else name): written[name] for name in written}
    assert read_partition_znode(earlier, partition) == znode
    with pytest.raises(InputError, match="given twice"):
        read_partition_znode({**earlier, **written}, partition)
    bare = read_partition_znode({"version": 1, "partition_epoch": epoch}, partition)
    assert not bare.leader_epoch_after_creation
    assert not bare.leader_epoch_before_deletion


@given(st.dictionaries(st.integers(0, 99), st.lists(st.integers(0, 9), max_size=3).map(tuple), max_size=5), st.data())
def test_topic_znodes_round_trip_under_all_names(partitions: dict[int, tuple[int, ...]], data: st.DataObject) -> None:
    """R003-11, R003-12: undeleted_partition_count under each of its names; without it no partition is marked."""
    count = data.draw(st.integers(0, len(partitions)))
    znode = TopicZnode(version=2, partitions=partitions, undeleted_partition_count=count)
    written = json.loads(json.dumps(znode.to_json()))

    assert read_topic_znode(written) == znode
    del written["undeleted_partition_count"]
    assert read_topic_znode(written).undeleted_partition_count == len(partitions)
    for name in ("partition_number", "undeleted_partition_number"):
        assert read_topic_znode(written | {name: count}) == znode


choices = st.lists(st.integers(0, 2**20), min_size=60, max_size=160)
gates = st.sampled_from((Gating.LOWER_PARTITIONS, Gating.EVERY_SOURCE))


def world(partitions: int, gating: Gating, *, checks_count: bool = True) -> ExpansionWorld:
    return ExpansionWorld(WorldShape(partitions=partitions, gating=gating, checks_count=checks_count))


def test_no_expansion_while_a_partition_is_marked() -> None:
    """R003-06: what is marked has to be gone first."""
    life = world(4, Gating.EVERY_SOURCE)
    life.controller.mark_for_deletion(3)
    life.deliver_all()
    with pytest.raises(InputError, match="marked for deletion"):
        life.controller.expand(8)


@given(st.integers(1, 6), gates, choices)
def test_no_key_is_consumed_in_another_order(partitions: int, gating: Gating, steps: list[int]) -> None:
    """R003-03, R003-06, R003-11, R003-21: with the count checked and gates kept, through any sequence of expansions,
    deletions, elections and rebalances, no key of one producer is consumed in another order than it was produced in,
    and nothing waits for good. The KIP's own rule: where each count is a multiple or a divisor of the one before."""
    life = world(partitions, gating)
    for choice in steps:
        life.step(choice)

    assert life.drain()
    assert inversions(life.delivered) == []


@given(st.integers(1, 6), st.sampled_from(Gating), st.booleans(), choices)
def test_counts_and_maps_keep_their_rules(
    partitions: int, gating: Gating, checks_count: bool, steps: list[int]
) -> None:
    """R003-04 to R003-06, R003-09: after each action, undeleted partitions are at most all, no expansion runs while a
    partition is marked, maps name lower partitions with epochs that they have reached, leader epochs never fall."""
    life = world(partitions, gating, checks_count=checks_count)
    controller = life.controller
    for choice in steps:
        before, count = dict(controller.leader_epochs), controller.znode.undeleted_partition_count
        was_marked = bool(controller.marked)
        life.step(choice)
        znode = controller.znode
        assert 0 < znode.undeleted_partition_count <= len(znode.partitions)
        assert not (was_marked and znode.undeleted_partition_count > count)
        for number, epoch in controller.leader_epochs.items():
            assert epoch >= before.get(number, 0)
        for number, each in controller.partitions.items():
            for lower, epoch in (
                *each.leader_epoch_after_creation.items(),
                *each.leader_epoch_before_deletion.items(),
            ):
                assert lower < number
                assert epoch <= controller.leader_epochs.get(lower, epoch)
            assert bool(each.leader_epoch_before_deletion) <= (number >= znode.undeleted_partition_count)


def overtaken(
    partitions: int, new_count: int, gating: Gating, *, checks_count: bool, rounds: int = 6
) -> set[tuple[int, int]]:
    """Records of every key before an expansion and after it, and a group that reads the partitions from above. More
    rounds: fewer records in each. Where a record was overtaken, and where by another one of its key."""
    life = world(partitions, gating, checks_count=checks_count)
    keys = [b"key-%d" % number for number in range(life.shape.keys)]
    for producer in life.producers:
        producer.add(keys)
        assert producer.send(life.brokers, 99)
    life.controller.expand(new_count)
    life.deliver_all()
    stale, fresh = life.producers
    stale.add(keys)
    stale.send(life.brokers, 99)  # with the old count: refused where it is checked
    for producer in (stale, fresh):
        producer.refresh(new_count)
    for producer in (stale, fresh):
        producer.add(keys)
        assert producer.send(life.brokers, 99)
    for _ in range(rounds):
        for partition in reversed(range(new_count)):
            life.fetch_one(partition, 48 // rounds)
        for member in life.members:
            member.heartbeat(life.coordinator)
    assert life.drain()
    return {(each.overtaken.partition, each.early.partition) for each in inversions(life.delivered)}


@pytest.mark.parametrize(("partitions", "new_count"), [(2, 4), (2, 3), (3, 6), (4, 6)])
def test_order_is_kept_by_gates_and_broken_without_them(partitions: int, new_count: int) -> None:
    """R003-02, R003-11: as Kafka is, a group that reads new partitions first consumes keys in another order. The check
    alone does not help; with gates nothing is overtaken."""
    for checks_count in (False, True):
        assert overtaken(partitions, new_count, Gating.NONE, checks_count=checks_count)
    assert not overtaken(partitions, new_count, Gating.EVERY_SOURCE, checks_count=True)


@pytest.mark.parametrize("gating", [Gating.LOWER_PARTITIONS, Gating.EVERY_SOURCE])
def test_gates_without_the_check_are_not_enough(gating: Gating) -> None:
    """R003-11: a producer with old metadata writes behind the fence, where gates do not look; its next record is
    consumed first."""
    assert overtaken(2, 4, gating, checks_count=False, rounds=48)


def test_the_rule_of_lower_partitions_has_a_gap() -> None:
    """R003-05: from 2 to 3 keys move between partitions 0 and 1, which the KIP's maps do not show: overtaken there,
    with the check and its gates; not where the count is doubled."""
    assert overtaken(2, 3, Gating.LOWER_PARTITIONS, checks_count=True, rounds=1) == {(0, 1)}
    assert not overtaken(2, 4, Gating.LOWER_PARTITIONS, checks_count=True, rounds=1)
