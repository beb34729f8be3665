"""The calls between leaders and share coordinators, as the documents print them; answers while a log is read."""

from __future__ import annotations

from typing import Any

import pytest
from jobs.world import batch

from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail_simulation.clock import SimulatedClock
from acktrail_simulation.coordinator.share_coordinator import ShareCoordinator
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.drafts.checkpoint_coordinator import CheckpointCoordinator
from acktrail_simulation.drafts.record_log import RecordLog
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.messages.persister_json import answer_fields, read_request, request_fields, single_fields
from acktrail_simulation.messages.persister_messages import (
    Batched,
    PersisterResponse,
    ReadResponse,
    StateDelete,
    StateInitialize,
    StateRead,
    batched,
    refused,
)

G1 = GroupId("G1")
KEY = SharePartition(group_id=G1, topic_id=TopicId("AAECAwQFBgcICQoLDA0ODw"), partition=3)
ADDRESS: dict[str, Any] = {"GroupId": "G1", "TopicId": KEY.topic_id, "Partition": 3}
EARLY = {"BaseOffset": 111, "LastOffset": 118, "State": 0, "DeliveryCount": 1}
LATER = {"FirstOffset": 111, "LastOffset": 118, "DeliveryState": 0, "DeliveryCount": 1}
BATCHES = (batch(111, 118, 0, 1),)
WRITE = StateWrite(key=KEY, state_epoch=None, start_offset=None, batches=BATCHES)
MOVE = StateWrite(key=KEY, state_epoch=None, start_offset=120, batches=())
READ = StateRead(key=KEY, leader_epoch=None)
HELD = ReadResponse(key=KEY, state_epoch=7, start_offset=None, batches=BATCHES)

PRINTED_FIRST: list[tuple[Any, dict[str, Any]]] = [
    (READ, ADDRESS),
    (HELD, {"ErrorCode": 0, "StartOffset": -1, "StateBatches": [EARLY]}),
    (WRITE, {**ADDRESS, "StartOffset": -1, "StateBatches": [EARLY]}),
    (MOVE, {**ADDRESS, "StartOffset": 120, "StateBatches": []}),
    (PersisterResponse(key=KEY), {"ErrorCode": 0}),
    (StateDelete(key=KEY), ADDRESS),
    (refused(KEY, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), {"ErrorCode": 3}),
]


@pytest.mark.parametrize(("item", "printed"), PRINTED_FIRST, ids=str)
def test_early_forms_as_printed(item: Any, printed: dict[str, Any]) -> None:
    """R000-61, R000-62, R000-63: names, order and numbers are the document's, one share partition a call; a request in
    this form is read as what it says, -1 as a start offset that is not written."""
    assert list(single_fields(item).items()) == list(printed.items())
    if not isinstance(item, PersisterResponse):
        assert read_request(type(item), printed) == (item,)


def test_batched_forms_as_printed() -> None:
    """R002-71, R002-72, R002-73: several share partitions of a group a call, by topic; an answer has a message beside
    each error code."""
    later = StateWrite(key=KEY, state_epoch=7, leader_epoch=2, start_offset=None, batches=BATCHES)
    named = {"Partition": 3, "StateEpoch": 7, "LeaderEpoch": 2, "StartOffset": -1, "DeliveryCompleteCount": -1}
    topics = [{"TopicId": KEY.topic_id, "Partitions": [{**named, "StateBatches": [LATER]}]}]
    (call,) = batched((later,))
    assert request_fields(call) == {"GroupId": "G1", "Topics": topics}
    assert read_request(StateWrite, {"GroupId": "G1", "Topics": topics}) == (later,)

    fenced = refused(KEY, ErrorCode.FENCED_STATE_EPOCH)
    message = "The coordinator rejected the request because the state epoch did not match."
    printed = [
        {
            "Partition": 3,
            "ErrorCode": 0,
            "ErrorMessage": None,
            "StateEpoch": 7,
            "StartOffset": -1,
            "StateBatches": [LATER],
        },
        {"Partition": 3, "ErrorCode": 124, "ErrorMessage": message},
    ]
    found = answer_fields(Batched(group_id=G1, entries=(HELD, fenced)))["Results"]
    assert [list(each.items()) for each in found[0]["Partitions"]] == [list(each.items()) for each in printed]
    assert [topic["TopicId"] for topic in found] == [KEY.topic_id]


def test_nothing_is_answered_before_the_log_was_read() -> None:
    """R000-32, R000-34: until then every call gets COORDINATOR_LOAD_IN_PROGRESS and changes nothing; then a read gives
    the state, or UNKNOWN_TOPIC_OR_PARTITION where there is none."""
    checkpoints = CheckpointCoordinator(RecordLog(), deltas_per_checkpoint=9)
    released = ShareCoordinator(partition_counts={KEY.topic_id: 4}, clock=SimulatedClock())
    assert single_fields(checkpoints.answer(READ)) == {"ErrorCode": 3}
    for write in (StateInitialize(key=KEY, state_epoch=7, start_offset=100), _of(WRITE)):
        assert released.answer(write).error is ErrorCode.NONE
    for write in (MOVE, WRITE):
        assert checkpoints.answer(write).error is ErrorCode.NONE

    for before, calls in ((checkpoints, (READ, MOVE, StateDelete(key=KEY))), (released, (_of(READ), _of(MOVE)))):
        after = before.restarted(is_loading=True)
        for call in calls:
            (told,) = answer_fields(Batched(group_id=G1, entries=(after.answer(call),)))["Results"]
            assert told["Partitions"][0] == {
                "Partition": 3,
                "ErrorCode": 14,
                "ErrorMessage": "The coordinator is loading and hence can't process requests.",
            }
        after.load()
        assert after.log.end_offset == before.log.end_offset
        assert after.answer(calls[0]) == before.answer(calls[0])
    assert checkpoints.answer(StateDelete(key=KEY)).error is ErrorCode.NONE
    assert checkpoints.answer(READ).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _of(request: Any) -> Any:
    """The released form of an early request."""
    if isinstance(request, StateRead):
        return StateRead(key=request.key, leader_epoch=2)
    start, batches = request.start_offset, request.batches
    return StateWrite(key=request.key, state_epoch=7, leader_epoch=2, start_offset=start, batches=batches)
