"""The messages and znodes of KIP-253: to bytes and JSON and back, under each of their names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples.golden_vectors import SEED

from acktrail.errors import InputError, MalformedRecord
from acktrail_simulation.expansion.expansion_messages import (
    EARLIER_NAMES,
    HEARTBEAT_REQUEST,
    HEARTBEAT_RESPONSE,
    LEADER_AND_ISR,
    LEADER_EPOCHS_REQUEST,
    LEADER_EPOCHS_RESPONSE,
    MESSAGES,
    PRODUCE,
    RECORD_SET,
    message_named,
)
from acktrail_simulation.expansion.field_lists import IntegerType, StructType
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


ALL = [*MESSAGES.values(), RECORD_SET]


@pytest.mark.parametrize("message", ALL, ids=lambda each: each.make.__name__)
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


DOCUMENT = {
    LEADER_AND_ISR: ["controller_id", "controller_epoch", "topic_states", "live_leaders"],
    PRODUCE: ["transactional_id", "acks", "timeout", "topic_data"],
    HEARTBEAT_REQUEST: ["group_id", "generation_id", "member_id", "topics"],
    HEARTBEAT_RESPONSE: ["throttle_time_ms", "topics", "error_code"],
    LEADER_EPOCHS_REQUEST: ["topics"],
    LEADER_EPOCHS_RESPONSE: ["throttle_time_ms", "topics"],
}
NESTED = {
    "LeaderAndIsrTopic": ["topic", "partition_number", "partition_states"],
    "LeaderAndIsrPartition": [
        "partition", "controller_epoch", "leader", "leader_epoch", "isr", "zk_version", "replicas", "is_new_replica",
    ],
    "ProduceTopic": ["topic", "undeleted_partition_count", "data"],
    "ProducePartition": ["partition", "record_set"],
    "HeartbeatTopic": ["topic", "partitions"],
    "HeartbeatPartition": ["partition", "need_position", "position"],
    "EpochsTopic": ["topic", "partitions"],
    "EpochsOfTopic": ["topic", "partitions"],
    "PartitionEpoch": ["partition", "leader_epoch"],
}  # fmt: skip


def _structs(found: Any) -> list[StructType[Any]]:
    inner = [_structs(each.type) for each in found.fields] if isinstance(found, StructType) else []
    item = getattr(found, "item", None)
    own = [found] if isinstance(found, StructType) else []
    return own + [each for group in inner for each in group] + (_structs(item) if item is not None else [])


def test_fields_stand_in_the_documents_order() -> None:
    """R003-08, R003-10, R003-13 to R003-20: names and order of all fields are the document's."""
    for message, names in DOCUMENT.items():
        assert [each.name for each in message.fields] == names
    found = {each.make.__name__: each for message in DOCUMENT for each in _structs(message)}
    assert {name: [each.name for each in found[name].fields] for name in NESTED} == NESTED


def test_known_bytes() -> None:
    """R003-11: a ProduceRequest is what its list of fields says, byte by byte."""
    read = PRODUCE.from_json(
        {
            "transactional_id": None,
            "acks": -1,
            "timeout": 30_000,
            "topic_data": [
                {"topic": "t", "undeleted_partition_count": 4, "data": [{"partition": 2, "record_set": "ab"}]}
            ],
        }
    )
    assert PRODUCE.write(read).hex(" ", -4) == (
        "ffffffff 00007530 00000001 00017400 00000400 00000100 00000200 000001ab"
    )


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
