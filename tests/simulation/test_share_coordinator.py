"""The simulated share coordinator and state topic: what they answer, who is asked, calls for several share partitions,
and laws that hold whatever they are asked."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from samples.coordinator_random_calls import KEYS, TOPICS, Step, coordinator, requests, scripts, take
from samples.random_records import keys

from acktrail.model.batches import StateBatch
from acktrail.model.records import StateRecord
from acktrail.model.replay import SharePartitionState, replay
from acktrail.model.share_partition import GroupId, SharePartition, state_partition_of
from acktrail_simulation.coordinator.coordinator_state import ShareCoordinatorState
from acktrail_simulation.coordinator.release_rules import KAFKA_4_3, KAFKA_4_4, KAFKA_TRUNK, CoordinatorRules
from acktrail_simulation.coordinator.share_coordinator import ShareCoordinator
from acktrail_simulation.coordinator.state_topic import ShareCoordinatorService, coordinator_key
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.messages.persister_json import read_request, request_fields, single_fields
from acktrail_simulation.messages.persister_messages import (
    Batched,
    PersisterRequest,
    StateDelete,
    StateRead,
    StateSummary,
    batched,
)


def records(found: ShareCoordinator) -> list[StateRecord]:
    return [entry.record for entry in found.log.entries]


ALL_RULES = st.sampled_from((KAFKA_4_3, KAFKA_4_4, KAFKA_TRUNK))
limits = st.integers(0, 3)


@given(scripts(most=40), limits, ALL_RULES, st.data())
def test_what_is_left_of_the_log_is_what_memory_knows(
    steps: list[Step], limit: int, rules: CoordinatorRules, data: st.DataObject
) -> None:
    """R000-14, R000-30, R000-32: after every step, whatever was pruned, replaying the log gives the coordinator's own
    states, and every live key's newest snapshot is there; loading a whole log gives all that is in memory. One that
    crashed between any two records starts again with the state that it had between them."""
    found = coordinator(limit=limit, rules=rules)
    known: dict[int, dict[SharePartition, SharePartitionState]] = {}
    for step in steps:
        take(found, step)
        assert replay(records(found)) == found.memory.states
        assert all(offset >= found.log.start_offset for offset in found.memory.snapshot_offsets.values())
        if not found.log.start_offset:
            assert ShareCoordinatorState.loaded(found.log.placed(), updates_per_snapshot=limit) == found.memory
        known[found.log.end_offset] = deepcopy(found.memory.states)
    crash = data.draw(st.integers(found.log.start_offset, found.log.end_offset))
    again = found.restarted(end_offset=crash)
    assert again.memory.states == replay(records(found)[: crash - found.log.start_offset])
    if crash in known and not found.log.start_offset:
        assert again.memory.states == known[crash]


@given(scripts(), requests(), limits, ALL_RULES)
def test_what_is_refused_changes_nothing(
    steps: list[Step], request: PersisterRequest, limit: int, rules: CoordinatorRules
) -> None:
    """R002-58: an answer with an error has written no record and left memory as it was; so has a summary."""
    found = coordinator(limit=limit, rules=rules)
    for step in steps:
        take(found, step)
    before, end = deepcopy(found.memory), found.log.end_offset
    answer = found.answer(request)

    if answer.error is not ErrorCode.NONE or isinstance(request, StateSummary):
        assert (found.memory, found.log.end_offset) == (before, end)


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
