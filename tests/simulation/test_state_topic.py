"""The simulated state topic: who is asked, and calls for several share partitions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from samples.coordinator_random_calls import KEYS, TOPICS, requests
from samples.random_records import keys

from acktrail.model.batches import StateBatch
from acktrail.model.replay import replay
from acktrail.model.share_partition import GroupId, SharePartition, state_partition_of
from acktrail_simulation.coordinator.state_topic import ShareCoordinatorService, coordinator_key
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.messages.persister_json import answer_fields, read_request, request_fields, single_fields
from acktrail_simulation.messages.persister_messages import (
    Batched,
    PersisterRequest,
    ReadResponse,
    StateDelete,
    StateInitialize,
    StateRead,
    batched,
)

ONE = StateBatch(first_offset=4, last_offset=6, delivery_state=2, delivery_count=1)


def topic(partitions: int = 4) -> ShareCoordinatorService:
    found = ShareCoordinatorService(partitions=partitions, updates_per_snapshot=2)
    for topic_id, count in TOPICS.items():
        found.create_topic(topic_id, count)
    return found


@given(st.lists(requests(), max_size=20))
def test_a_call_is_its_entries(entries: list[PersisterRequest]) -> None:
    """R002-73: share partitions travel together, one call a group, and each fares as alone; all records of a share
    partition lie on one state partition, the one its hash names (R000-07, R000-11)."""
    together, alone = topic(), topic()
    for call in batched(entries):
        assert {entry.key.group_id for entry in call.entries} == {call.group_id}
        answers = together.answer_call(call).entries
        last = {entry.key: alone.answer(entry) for entry in call.entries}
        assert {answer.key: answer for answer in answers} == last
        assert len(answers) == len(last)
    assert sorted(map(str, entries)) == sorted(str(e) for call in batched(entries) for e in call.entries)
    assert together.states() == alone.states() == replay(placed.record for placed in together.placed())
    for placed in together.placed():
        assert placed.partition == state_partition_of(placed.record.key, 4)


def test_a_topic_comes_and_goes() -> None:
    """R000-36: with its topic a share partition leaves every group; a topic that comes again has another id."""
    found = topic()
    for key in KEYS:
        found.answer(StateInitialize(key=key, state_epoch=0, start_offset=0))
    found.delete_topic(KEYS[0].topic_id)

    assert set(found.states()) == {KEYS[2]}
    again = found.answer(StateInitialize(key=KEYS[0], state_epoch=0, start_offset=0))
    assert again.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@given(keys.filter(lambda key: key.partition >= 0))
@example(replace(KEYS[0], group_id=GroupId("a:b:AQIDBAUGBwgJCgsMDQ4PEA:1")))
def test_a_coordinator_key_is_read_from_the_right(key: SharePartition) -> None:
    """R000-10: whatever the group id holds, colons too, the key names its share partition."""
    assert coordinator_key(key.coordinator_key) == key


@given(st.lists(requests().filter(lambda request: request.key.partition >= 0), min_size=1, max_size=8))
def test_calls_are_spelt_and_read(entries: list[PersisterRequest]) -> None:
    """R002-72, R002-73: what a call says survives its JSON form."""
    for call in batched(entries):
        for kind in {type(entry) for entry in call.entries}:
            alike = tuple(entry for entry in call.entries if isinstance(entry, kind))
            assert read_request(kind, request_fields(Batched(group_id=call.group_id, entries=alike))) == alike


@pytest.mark.parametrize(
    "early",
    [
        StateRead(key=KEYS[0], leader_epoch=None),
        StateWrite(key=KEYS[0], state_epoch=None, start_offset=None, batches=(ONE,)),
        StateDelete(key=KEYS[0]),
    ],
    ids=lambda request: type(request).__name__,
)
def test_the_early_form_has_one_share_partition(early: PersisterRequest) -> None:
    """R000-61, R000-62, R000-63: group, topic id and partition side by side, no epochs; it says the same as a batched
    call with one entry."""
    fields = single_fields(early)

    assert {"GroupId", "TopicId", "Partition"} <= set(fields)
    assert not {"Topics", "StateEpoch", "LeaderEpoch", "DeliveryCompleteCount"} & set(fields)
    assert read_request(type(early), fields) == (early,)
    (call,) = batched((early,))
    assert read_request(type(early), request_fields(call)) == (early,)


def test_answers_are_spelt() -> None:
    """R000-61, R000-63, R002-71: an answer has an error code and, to a read, start offset (-1: not initialized) and
    batches; batched it says whose, and the state epoch."""
    found = topic()
    found.answer(StateInitialize(key=KEYS[0], state_epoch=3, start_offset=None))
    read = found.answer(StateRead(key=KEYS[0], leader_epoch=0))
    assert isinstance(read, ReadResponse)
    deleted = found.answer(StateDelete(key=KEYS[1]))

    assert single_fields(read) == {"ErrorCode": 0, "StartOffset": -1, "StateBatches": []}
    assert single_fields(deleted) == {"ErrorCode": 0}
    (call,) = batched((read,))
    (result,) = answer_fields(call)["Results"]
    assert result == {
        "TopicId": KEYS[0].topic_id,
        "Partitions": [{"Partition": 0, "ErrorCode": 0, "StateEpoch": 3, "StartOffset": -1, "StateBatches": []}],
    }
