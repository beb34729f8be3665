"""The simulated share coordinator and leader against Kafka's own (``ShareCoordinatorShard``, ``SharePartition``), call
by call and step by step."""

from __future__ import annotations

import base64
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from oracle.kafka_classes import camel, compiled
from oracle.random_batches import random_batches
from samples.coordinator_random_calls import COLD_AFTER_MS, KEYS, TOPIC_IDS, TOPICS, Step, coordinator, take
from simulation.leader_random_walk import SimulatedLeader

from acktrail.format.wire.primitives import none_if_absent
from acktrail.format.wire.state_record import encode
from acktrail.model.share_partition import SharePartition
from acktrail_simulation.coordinator.release_rules import KAFKA_4_3, KAFKA_4_4, CoordinatorRules
from acktrail_simulation.coordinator.share_coordinator import ShareCoordinator
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.messages.persister_json import answer_fields, request_fields
from acktrail_simulation.messages.persister_messages import (
    PersisterRequest,
    PersisterResponse,
    StateDelete,
    StateInitialize,
    StateRead,
    StateSummary,
    batched,
)

pytestmark = pytest.mark.broker

OPERATIONS = {
    kind: kind.__name__.removeprefix("State").lower()
    for kind in (StateInitialize, StateRead, StateWrite, StateDelete, StateSummary)
}


def random_key(source: random.Random) -> SharePartition:
    key = source.choice(KEYS)
    if source.random() < 0.03:
        return SharePartition(group_id=key.group_id, topic_id=key.topic_id, partition=source.choice((-1, 2, 9)))
    return key


def random_request(source: random.Random, found: ShareCoordinator) -> PersisterRequest:
    """Mostly what is taken, some of it not: epochs around the highest seen, or not given."""
    key, kind = random_key(source), source.random()
    leader = none_if_absent(found.memory.leader_epochs.get(key, 0) + source.choice((-2, -1, 0, 0, 0, 0, 0, 1, 3)))
    state = none_if_absent(found.memory.state_epochs.get(key, 0) + source.choice((-2, -1, 0, 0, 0, 0, 0, 1)))
    start = source.choice((None, source.randrange(100), source.randrange(100)))
    if kind < 0.12 or key not in found.memory.states:
        return StateInitialize(key=key, state_epoch=state, start_offset=start)
    if kind < 0.25:
        return StateRead(key=key, leader_epoch=leader)
    if kind < 0.28:
        return StateDelete(key=key)
    if kind < 0.31:
        return StateSummary(key=key, leader_epoch=leader)
    return StateWrite(
        key=key,
        state_epoch=state,
        leader_epoch=leader,
        start_offset=start,
        delivery_complete_count=source.choice((None, source.randrange(50))),
        batches=random_batches(source, width=120, longest=20),
    )


def random_step(source: random.Random, found: ShareCoordinator) -> Step:
    kind = source.random()
    if kind < 0.03:
        return "cold"
    if kind < 0.034 and TOPIC_IDS[1] in (found.partition_counts or {}):
        return "topic"
    if kind < 0.2:
        return source.randrange(COLD_AFTER_MS)
    return random_request(source, found)


def line(step: Step, now: int) -> dict[str, Any]:
    if step == "cold":
        return {"now": now, "op": "cold"}
    if step == "topic":
        return {"now": now, "op": "topics", "topics": {TOPIC_IDS[0]: 2}, "gone": [TOPIC_IDS[1]]}
    assert not isinstance(step, str | int)
    (call,) = batched((step,))
    return {"now": now, "op": OPERATIONS[type(step)], "request": camel(request_fields(call))}


def told(answer: PersisterResponse | None) -> Any:
    if answer is None:
        return None
    (call,) = batched((answer,))
    return camel(answer_fields(call))


def alike(ours: Any, theirs: Any) -> None:
    """The same answer; of an error, the same code, and the same words but for one sentence that 4.4 shortened."""
    if ours is None:
        assert theirs is None
        return
    (one,), (other,) = ours["results"], theirs["results"]
    assert one["topicId"] == other["topicId"]
    (mine,), (kafkas,) = one["partitions"], other["partitions"]
    if mine["errorCode"]:
        kafkas["errorMessage"] = kafkas["errorMessage"].replace("share coordinator", "coordinator")
        kafkas["errorMessage"] = kafkas["errorMessage"].replace("share-group state", "state")
        assert {name: kafkas[name] for name in ("partition", "errorCode", "errorMessage")} == mine
    else:
        assert mine == kafkas


@pytest.mark.parametrize(
    ("version", "rules"), [pytest.param("4.3.1", KAFKA_4_3, marks=pytest.mark.full), ("4.4.0", KAFKA_4_4)]
)
def test_calls_are_answered_and_written_as_by_kafka(version: str, rules: CoordinatorRules, tmp_path: Path) -> None:
    """Over 4,000 random calls and jobs each answer has Kafka's error and content, each record Kafka's bytes, and the
    log could be pruned to Kafka's offset."""
    program = compiled(
        ("Registries.java", "KafkaCoordinator.java"),
        "org.apache.kafka.coordinator.share.KafkaCoordinator",
        version,
        tmp_path,
    )
    source = random.Random(7)
    found = coordinator(limit=3, rules=rules)
    lines = [{"limit": 3, "cold_after_ms": COLD_AFTER_MS, "topics": TOPICS}]
    ours: list[tuple[Any, list[Any], int | None]] = []
    errors = set()
    for _ in range(4_000):
        step = random_step(source, found)
        if isinstance(step, int):
            take(found, step)
            continue
        end = found.log.end_offset
        lines.append(line(step, found.clock.now_ms))
        answer = None
        if isinstance(step, str):
            take(found, step)
        else:
            answer = found.answer(step)
            errors.add(answer.error)
        written = [list(encode(entry.record)) for entry in found.log.entries[end:]]
        ours.append((told(answer), written, found.memory.needed_from))
    theirs = program.run("\n".join(map(json.dumps, lines)) + "\n")

    assert len(theirs) == len(ours) == len(lines) - 1
    for asked, (answer, written, needed_from), text in zip(lines[1:], ours, theirs, strict=True):
        kafkas = read(text)
        alike(answer, kafkas["answer"])
        assert written == kafkas["records"], asked
        assert (needed_from or -1) == kafkas["needed_from"], asked
    assert {code.name for code in errors} == {
        "NONE",
        "INVALID_REQUEST",
        "FENCED_LEADER_EPOCH",
        "FENCED_STATE_EPOCH",
        "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert found.log.end_offset > 1_000


def read(text: str) -> dict[str, Any]:
    """What Kafka's class answered, keys and values of records as bytes."""
    found: dict[str, Any] = json.loads(text)
    pairs = found.get("records", [])
    pairs[:] = [[None if each is None else base64.b64decode(each) for each in pair] for pair in pairs]
    return found


@pytest.mark.full  # of the simulation
def test_steps_are_taken_as_by_kafka(tmp_path: Path) -> None:
    """R000-46, R001-23, R002-55: over 40 lives of 300 steps each fetch acquires what Kafka 4.4's leader acquires, each
    acknowledgement has its error, each record its bytes, and both stand at the same offsets."""
    worlds = [SimulatedLeader(random.Random(seed)) for seed in range(40)]
    kinds = Counter(world.step() for world in worlds for _ in range(300))
    sources = ("Registries.java", "KafkaCoordinator.java", "KafkaLeader.java")
    program = compiled(sources, "kafka.server.share.KafkaLeader", "4.4.0", tmp_path)
    lines = [line for world in worlds for line in (world.heading, *camel(world.lines))]
    theirs = iter(program.run("\n".join(map(json.dumps, lines)) + "\n"))
    for seed, world in enumerate(worlds):
        for number, (asked, ours) in enumerate(zip(world.lines, world.told, strict=True)):
            assert read(next(theirs)) == ours, (seed, number, asked)
    assert next(theirs, None) is None

    errors = {told.get("error") for world in worlds for told in world.told}
    assert min(kinds.values()) > 50
    assert {"NONE", "INVALID_RECORD_STATE", "INVALID_REQUEST", "COORDINATOR_NOT_AVAILABLE"} <= errors
    assert {"NOT_LEADER_OR_FOLLOWER", "UNKNOWN_SERVER_ERROR"} <= errors
