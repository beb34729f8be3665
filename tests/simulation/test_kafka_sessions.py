"""The simulated share sessions, and the check of acknowledgements, against Kafka's own classes."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from oracle.kafka_classes import camel, compiled
from samples.coordinator_random_calls import TOPIC_IDS

from acktrail.model.share_partition import GroupId, TopicId
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.leader.acknowledge import InvalidRecordState
from acktrail_simulation.leader.acknowledgement_batches import AcknowledgementBatch, AcknowledgeType, are_well_formed
from acktrail_simulation.leader.acquisition import AcquireMode
from acktrail_simulation.leader.partition_log import RecordBatch
from acktrail_simulation.leader.share_sessions import SessionKey, ShareSessions, in_turn
from acktrail_simulation.messages.share_messages import (
    AskedPartition,
    FetchedPartition,
    ShareAcknowledge,
    ShareFetch,
    TopicIdPartition,
    request_fields,
)

pytestmark = pytest.mark.broker

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
        told: dict[str, Any] = {"request": camel(request_fields(request))}
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
        fields = camel(request_fields(request))
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
    """R002-59 to R002-62, R002-64, R002-66, R002-70: over 60 lives of 200 calls each is taken or refused as by
    Kafka 4.4, a session holds the same topic partitions in the same order and turn, answers leave out the same ones,
    acknowledgements pass the same check, and Kafka reads requests with nothing left over or missing."""
    lives = [Life(random.Random(seed)) for seed in range(60)]
    kinds = Counter(life.step() for life in lives for _ in range(200))
    lines = []
    for life in lives:
        lines += [{"limit": life.limit, "names": NAMES}, *life.lines]
    program = compiled(("KafkaSessions.java",), "kafka.server.share.KafkaSessions", "4.4.0", tmp_path)
    theirs = iter(program.run("\n".join(map(json.dumps, lines)) + "\n"))

    for seed, life in enumerate(lives):
        for number, (asked, ours) in enumerate(zip(life.lines, life.told, strict=True)):
            assert json.loads(next(theirs)) == ours, (seed, number, asked)
    assert next(theirs, None) is None
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
