"""The simulated share coordinator, leader and sessions against Kafka's own (``ShareCoordinatorShard``,
``SharePartition``, share sessions and the check of acknowledgements), call by call and step by step."""

from __future__ import annotations

import base64
import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from oracle.kafka_classes import camel, compiled
from oracle.random_batches import random_batches
from samples.coordinator_random_calls import COLD_AFTER_MS, KEYS, TOPIC_IDS, TOPICS, Step, coordinator, take
from simulation.leader_random_walk import SimulatedLeader

from acktrail.format.wire.dialects import encode
from acktrail.format.wire.primitives import none_if_absent
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail_simulation.coordinator.release_rules import KAFKA_4_3, KAFKA_4_4, CoordinatorRules
from acktrail_simulation.coordinator.share_coordinator import ShareCoordinator
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.leader.acknowledge import InvalidRecordState
from acktrail_simulation.leader.acknowledgement_batches import AcknowledgementBatch, AcknowledgeType, are_well_formed
from acktrail_simulation.leader.acquisition import AcquireMode
from acktrail_simulation.leader.partition_log import RecordBatch
from acktrail_simulation.leader.share_sessions import SessionKey, ShareSessions, in_turn
from acktrail_simulation.messages import share_messages
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
from acktrail_simulation.messages.share_messages import (
    AskedPartition,
    FetchedPartition,
    ShareAcknowledge,
    ShareFetch,
    TopicIdPartition,
)

pytestmark = pytest.mark.broker

OPERATIONS = {
    StateInitialize: "initialize",
    StateRead: "read",
    StateWrite: "write",
    StateDelete: "delete",
    StateSummary: "summary",
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


def without_messages(answer: Any) -> Any:
    """Kafka's words are not simulated; a field that it leaves out of an error is not there."""
    if isinstance(answer, dict):
        return {name: without_messages(value) for name, value in answer.items() if name != "errorMessage"}
    return [without_messages(value) for value in answer] if isinstance(answer, list) else answer


def alike(ours: Any, theirs: Any) -> None:
    """The same answer; of an error, the same code."""
    if ours is None:
        assert theirs is None
        return
    (one,), (other,) = ours["results"], without_messages(theirs)["results"]
    assert one["topicId"] == other["topicId"]
    (mine,), (kafkas,) = one["partitions"], other["partitions"]
    if mine["errorCode"]:
        assert {name: kafkas[name] for name in ("partition", "errorCode")} == mine
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


def take_the_same_steps(lives: Sequence[Any], sources: tuple[str, ...], main_class: str, folder: Path) -> None:
    """Every line of every life has Kafka's answer, and there is no other one."""
    lines = [line for life in lives for line in (life.heading, *camel(life.lines))]
    program = compiled(sources, main_class, "4.4.0", folder)
    theirs = iter(program.run("\n".join(map(json.dumps, lines)) + "\n"))
    for seed, life in enumerate(lives):
        for number, (asked, ours) in enumerate(zip(life.lines, life.told, strict=True)):
            assert read(next(theirs)) == ours, (seed, number, asked)
    assert next(theirs, None) is None


@pytest.mark.full  # of the simulation
def test_steps_are_taken_as_by_kafka(tmp_path: Path) -> None:
    """R000-46, R001-23, R002-55: over 40 lives of 300 steps each fetch acquires what Kafka 4.4's leader acquires, each
    acknowledgement has its error, each record its bytes, and both stand at the same offsets."""
    worlds = [SimulatedLeader(random.Random(seed)) for seed in range(40)]
    kinds = Counter(world.step() for world in worlds for _ in range(300))
    sources = ("Registries.java", "KafkaCoordinator.java", "KafkaLeader.java")
    take_the_same_steps(worlds, sources, "kafka.server.share.KafkaLeader", tmp_path)

    errors = {told.get("error") for world in worlds for told in world.told}
    assert min(kinds.values()) > 50
    assert {"NONE", "INVALID_RECORD_STATE", "INVALID_REQUEST", "COORDINATOR_NOT_AVAILABLE"} <= errors
    assert {"NOT_LEADER_OR_FOLLOWER", "UNKNOWN_SERVER_ERROR"} <= errors


GROUP = GroupId("g")
MEMBERS = ("m1", "m2", "m3")
NAMES = {TOPIC_IDS[0]: "first", TOPIC_IDS[1]: "second"}
NAMELESS = TopicId("IDEiMyRFJmcoiSqrLM0u7w")
PLACES = tuple(
    TopicIdPartition(topic_id=topic_id, partition=number) for topic_id in (*TOPIC_IDS, NAMELESS) for number in range(3)
)


class Life:
    """Sessions of a few members, step by random step; `lines` ask Kafka the same, `told` is what was answered."""

    def __init__(self, source: random.Random) -> None:
        self.source = source
        self.limit = source.choice((2, 9))
        self.sessions = ShareSessions(lambda at: NAMES.get(at.topic_id), most_sessions=self.limit)
        self.heading = {"limit": self.limit, "names": NAMES}
        self.lines: list[dict[str, Any]] = []
        self.told: list[dict[str, Any]] = []

    def step(self) -> str:
        """One call; which."""
        steps = {"fetch": self._fetch, "acknowledge": self._acknowledge, "close": self._close}
        steps |= {"disconnect": self._disconnect, "check": self._check}
        (kind,) = self.source.choices(tuple(steps), (12, 4, 1, 1, 6))
        steps[kind]()
        return kind

    def _key(self) -> SessionKey:
        return SessionKey(group_id=GROUP, member_id=self.source.choice(MEMBERS))

    def _epoch(self, key: SessionKey) -> int:
        known = self.sessions.sessions.get(key)
        if known is not None and self.source.random() < 0.75:
            return known.epoch
        return self.source.choice((0, 0, 0, -1, 1, 2, 2**31 - 1))

    def _places(self, most: int) -> tuple[TopicIdPartition, ...]:
        return tuple(sorted(self.source.sample(PLACES, self.source.randrange(most + 1))))

    def _batches(self) -> tuple[AcknowledgementBatch, ...]:
        found, at = [], self.source.randrange(-2, 3)
        for _ in range(self.source.choice((0, 1, 2, 3))):
            last = at + self.source.choice((0, 0, 1, 2, 3, -1))
            count = self.source.choice((1, 1, last - at + 1, last - at + 1, 0, 2))
            types = tuple(self.source.choice((0, 1, 1, 2, 2, 3, 4, 5, -1)) for _ in range(max(0, count)))
            found.append(AcknowledgementBatch(first_offset=at, last_offset=last, types=types))
            at = last + self.source.choice((-1, 0, 1, 1, 2))
        return tuple(found)

    def _fetch(self) -> None:
        key, source = self._key(), self.source
        some = AcknowledgementBatch(first_offset=0, last_offset=0, types=(AcknowledgeType.ACCEPT,))
        request = ShareFetch(
            group_id=GROUP,
            member_id=key.member_id,
            session_epoch=self._epoch(key),
            partitions=tuple(
                AskedPartition(at=at, acknowledgements=(some,) if source.random() < 0.05 else ())
                for at in self._places(6)
            ),
            forgotten=self._places(2),
            version=source.choice((1, 2)),
            max_records=source.randrange(9),
            mode=AcquireMode.BATCH_OPTIMIZED,
        )
        connection = source.choice((key.member_id, "elsewhere"))
        told: dict[str, Any] = {"request": camel(share_messages.request_fields(request))}
        found: list[FetchedPartition] = []
        try:
            session = self.sessions.for_fetch(key, request, connection)
        except InvalidRecordState as refused:
            told |= {"error": refused.error.name}
        else:
            places = {} if session is None else session.partitions
            valid = [at for at, cached in places.items() if cached.topic is not None]
            found = [self._found(at) for at in valid]
            told |= {
                "error": "NONE",
                "valid": _pairs(valid),
                "unknown": len(places) - len(valid),
                "turn": _pairs(in_turn(tuple(valid), request.session_epoch)),
                "told": _by_topic(session.worth_sending(found)) if session is not None else [],
            }
        now = self.sessions.sessions.get(key)
        told["cached"] = _pairs(() if now is None else now.partitions)
        asked = [[p.at.topic_id, p.at.partition, bool(p.records), int(p.error)] for p in found]
        line = {"op": "fetch", "version": request.version, "request": told["request"], "connection": connection}
        self._note({**line, "found": asked}, told)

    def _found(self, at: TopicIdPartition) -> FetchedPartition:
        kind = self.source.choice(("records", "nothing", "nothing", "error"))
        batch = RecordBatch(base_offset=0, last_offset=0)
        error = ErrorCode.KAFKA_STORAGE_ERROR if kind == "error" else ErrorCode.NONE
        return FetchedPartition(at=at, error=error, records=(batch,) if kind == "records" else ())

    def _acknowledge(self) -> None:
        key = self._key()
        request = ShareAcknowledge(
            group_id=GROUP,
            member_id=key.member_id,
            session_epoch=self._epoch(key),
            partitions=tuple(AskedPartition(at=at, acknowledgements=self._batches()) for at in self._places(3)),
            version=self.source.choice((1, 2)),
        )
        error = ErrorCode.NONE
        try:
            self.sessions.for_acknowledge(key, request.session_epoch)
        except InvalidRecordState as refused:
            error = refused.error
        fields = camel(share_messages.request_fields(request))
        line = {"op": "acknowledge", "version": request.version, "request": fields}
        self._note(line, {"request": fields, "error": error.name})

    def _close(self) -> None:
        key, error = self._key(), ErrorCode.NONE
        try:
            self.sessions.close(key)
        except InvalidRecordState as refused:
            error = refused.error
        self._note({"op": "close", "group": GROUP, "member": key.member_id}, {"error": error.name})

    def _disconnect(self) -> None:
        connection = self.source.choice((*MEMBERS, "elsewhere"))
        lost = self.sessions.disconnected(connection)
        if lost is not None and lost[1]:
            self.sessions.close(lost[0])
        self._note({"op": "disconnect", "connection": connection}, {})

    def _check(self) -> None:
        batches, version, renewing = self._batches(), self.source.choice((1, 2)), self.source.random() < 0.5
        highest = AcknowledgeType.RENEW if version == 2 else AcknowledgeType.REJECT
        passes = are_well_formed(batches, renewing=renewing, highest_type=highest)
        said = [[batch.first_offset, batch.last_offset, list(batch.types)] for batch in batches]
        line = {"op": "check", "version": version, "renewing": renewing, "batches": said}
        self._note(line, {"passes": passes})

    def _note(self, line: dict[str, Any], told: dict[str, Any]) -> None:
        self.lines.append(line)
        self.told.append({**told, "sessions": len(self.sessions.sessions)})


def _pairs(places: Any) -> list[list[Any]]:
    return [[at.topic_id, at.partition] for at in places]


def _by_topic(found: tuple[FetchedPartition, ...]) -> list[list[Any]]:
    topics = list(dict.fromkeys(partition.at.topic_id for partition in found))
    return _pairs(sorted((partition.at for partition in found), key=lambda at: topics.index(at.topic_id)))


@pytest.mark.full  # of the simulation
def test_sessions_are_kept_as_by_kafka(tmp_path: Path) -> None:
    """R001-23, R002-56, R002-57, R002-59 to R002-62, R002-64, R002-66, R002-70: over 60 lives of 200 calls each is
    taken or refused as by Kafka 4.4, a session holds the same topic partitions in the same order and turn, answers
    leave out the same ones, acknowledgements pass the same check, and Kafka reads requests with nothing left over or
    missing."""
    lives = [Life(random.Random(seed)) for seed in range(60)]
    kinds = Counter(life.step() for life in lives for _ in range(200))
    take_the_same_steps(lives, ("KafkaSessions.java",), "kafka.server.share.KafkaSessions", tmp_path)

    errors = Counter(told.get("error") for life in lives for told in life.told)
    assert {
        "NONE",
        "INVALID_REQUEST",
        "SHARE_SESSION_NOT_FOUND",
        "INVALID_SHARE_SESSION_EPOCH",
        "SHARE_SESSION_LIMIT_REACHED",
    } <= set(errors)
    assert min(kinds.values()) > 100
    assert min(Counter(told["passes"] for life in lives for told in life.told if "passes" in told).values()) > 300
