"""ShareFetch and ShareAcknowledge as a real broker answers them: sessions, amounts, errors, leaders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
from servers.broker_pair import broker_pair
from servers.workload import Workload, start_at, until
from share_messages import MemberConnection

from acktrail.config import KafkaConfig
from acktrail.embedded import EmbeddedBroker
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.model.share_partition import GroupId, TopicId
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.leader.acknowledgement_batches import AcknowledgementBatch
from acktrail_simulation.messages.share_messages import (
    AskedPartition,
    ShareAcknowledge,
    ShareFetch,
    TopicIdPartition,
    next_session_epoch,
    request_fields,
)

pytestmark = pytest.mark.broker

STRANGE = TopicId("IDEiMyRFJmcoiSqrLM0u7w")
Said = dict[int, AcknowledgementBatch]
"""By partition; 9 is not there, and -1 stands for a topic that is not there."""


def said(first: int, last: int, *types: int) -> AcknowledgementBatch:
    """Accepted, where nothing is given."""
    return AcknowledgementBatch(first_offset=first, last_offset=last, types=types or (1,))


@dataclass(kw_only=True)
class Member:
    """It counts its session's epoch on. `fetch` and `acknowledge` give what the answer tells of each partition."""

    kafka: KafkaConfig
    group_id: GroupId
    topic_id: TopicId
    name: str = "m"
    epoch: int = 0
    answer: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.connection = MemberConnection(self.kafka.bootstrap_servers)

    def fetch(
        self,
        *partitions: int,
        acks: Said | None = None,
        epoch: int | None = None,
        forgotten: int | None = None,
        **more: Any,
    ) -> dict[int, dict[str, Any]]:
        acks = acks or {}
        wanted = tuple(
            AskedPartition(at=self._at(n), acknowledgements=(acks[n],) if n in acks else ())
            for n in dict.fromkeys((*partitions, *acks))
        )
        request = ShareFetch(
            group_id=self.group_id,
            member_id=self.name,
            session_epoch=self.epoch if epoch is None else epoch,
            partitions=wanted,
            forgotten=() if forgotten is None else (self._at(forgotten),),
            **more,
        )
        return self._told(request.session_epoch, self.connection.fetch(request_fields(request)))

    def acknowledge(self, acks: Said | None = None, epoch: int | None = None) -> dict[int, dict[str, Any]]:
        given = tuple(AskedPartition(at=self._at(n), acknowledgements=(each,)) for n, each in (acks or {}).items())
        request = ShareAcknowledge(
            group_id=self.group_id,
            member_id=self.name,
            session_epoch=self.epoch if epoch is None else epoch,
            partitions=given,
        )
        return self._told(request.session_epoch, self.connection.acknowledge(request_fields(request)))

    def offsets(self, *partitions: int, **more: Any) -> list[tuple[int, int, int, int]]:
        """Partition, first and last offset and count of what a fetch that waits for records brings."""
        found = self.fetch(*partitions, **{"max_wait_ms": 500, "min_bytes": 1, **more})
        names = ("FirstOffset", "LastOffset", "DeliveryCount")
        return [(n, *(got[name] for name in names)) for n, told in found.items() for got in told["AcquiredRecords"]]

    @property
    def errors(self) -> set[str]:
        """All that the answer has, of the request, of partitions and of acknowledgements."""
        told = [row for topic in self.answer["Responses"] for row in topic["Partitions"]]
        codes = [code for row in told for name, code in row.items() if name.endswith("ErrorCode")]
        return {ErrorCode(code).name for code in (self.answer["ErrorCode"], *codes)} - {"NONE"}

    def _at(self, number: int) -> TopicIdPartition:
        return TopicIdPartition(topic_id=self.topic_id if number >= 0 else STRANGE, partition=abs(number))

    def _told(self, epoch: int, answer: dict[str, Any]) -> dict[int, dict[str, Any]]:
        self.answer = answer
        if not answer["ErrorCode"]:
            self.epoch = max(0, next_session_epoch(epoch))
        return {row["PartitionIndex"]: row for topic in answer["Responses"] for row in topic["Partitions"]}


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A topic of two partitions, and a group that begins at offset 0 of both."""

    workload: Workload
    topic: str
    member: Callable[[str], Member]

    @classmethod
    def on(cls, kafka: KafkaConfig, make: Callable[[Workload, str], None]) -> Scene:
        topic, workload = f"fetched-{uuid4().hex[:8]}", Workload(kafka)
        make(workload, topic)
        with ShareGroupAdmin(kafka) as admin:
            (described,) = until(lambda: admin.topics([topic]), what="the topic")
        start_at(kafka, topic, {(topic, 0): 0, (topic, 1): 0})
        own = {"kafka": kafka, "group_id": GroupId(topic), "topic_id": TopicId(described.topic_id or "")}
        return cls(workload=workload, topic=topic, member=lambda name: Member(name=name, **own))

    def holding(self, *partitions: int) -> Member:
        """A member that holds ten records of each of these partitions."""
        member, left = self.member("m"), {*partitions}
        for partition in partitions:
            self.workload.produce(self.topic, 10, partition)
        while left:  # each leader loads at its first fetch
            left -= {found[0] for found in member.offsets(*left)}
        return member


@pytest.fixture
def scene(broker: EmbeddedBroker) -> Scene:
    return Scene.on(broker.config(), lambda workload, topic: workload.create_topic(topic, 2))


def test_epochs_of_a_session(scene: Scene) -> None:
    """R002-56, R002-57, R002-62: 0 opens a session and cannot acknowledge, -1 closes it, else the epoch is the one
    after the last; after the highest comes 1. What is refused changes nothing."""
    member = scene.holding(0)
    for ask, epoch, error in (
        (member.fetch, 9, "INVALID_SHARE_SESSION_EPOCH"),
        (member.acknowledge, 0, "INVALID_SHARE_SESSION_EPOCH"),
        (scene.member("stranger").fetch, 1, "SHARE_SESSION_NOT_FOUND"),
        (scene.member("stranger").acknowledge, -1, "SHARE_SESSION_NOT_FOUND"),
    ):
        ask(epoch=epoch)
        assert ask.__self__.errors == {error}
    told = member.fetch(acks={0: said(0, 9)}, epoch=-1)
    assert (member.errors, told[0]["AcquiredRecords"]) == (set(), [])
    member.fetch(epoch=2)
    assert member.errors == {"SHARE_SESSION_NOT_FOUND"}
    member.fetch(acks={0: said(0, 9)}, epoch=0)
    assert member.errors == {"INVALID_REQUEST"}
    assert [next_session_epoch(epoch) for epoch in (-1, 0, 1, 2**31 - 1)] == [-1, 1, 2, 1]


def test_what_a_session_asks_for(scene: Scene) -> None:
    """R002-61, R002-63, R002-64, R002-67, R002-70: acknowledgements ride along; with no records or no bytes asked for
    they are all that happens. A forgotten partition is fetched no more, and what is held of it can be acknowledged. An
    answer leaves out partitions of which there is nothing to say."""
    member = scene.holding(0, 1)
    assert member.fetch() == {}
    for partition in (0, 1):
        scene.workload.produce(scene.topic, 3, partition)
    for number, nothing in enumerate(({"max_bytes": 0}, {"max_records": 0})):
        told = member.fetch(acks={0: said(number, number)}, **nothing)
        assert ([*told], told[0]["AcknowledgeErrorCode"], told[0]["AcquiredRecords"]) == ([0], 0, [])
    assert member.offsets(forgotten=0) == [(1, 10, 12, 1)]
    assert member.acknowledge({0: said(2, 9, 2)})[0]["ErrorCode"] == 0
    assert member.fetch() == {}
    got = until(lambda: member.offsets(0), what="the partition that is asked for again")
    assert {found[:2] for found in got} <= {(0, 2), (0, 10)}


@pytest.mark.parametrize("how", ["acknowledge", "fetch", "lost"])
def test_closing_releases_what_is_held(scene: Scene, how: str) -> None:
    """R002-62: with its session a member loses what it held, and the next one gets it as a second attempt."""
    member, other = scene.holding(0), scene.member("other")
    ends: dict[str, Callable[[], object]] = {
        "acknowledge": lambda: member.acknowledge(epoch=-1),
        "fetch": lambda: member.fetch(epoch=-1),
        "lost": member.connection.__exit__,
    }
    ends[how]()
    assert until(lambda: other.offsets(0), what="what was held") == [(0, 0, 9, 2)]


def test_errors_of_what_is_asked(scene: Scene) -> None:
    """R002-55, R002-66, R002-68: each is told where it belongs. A group or a topic without READ is in
    `tests/kafka/test_rights.py`, epochs and leaders are here; what disks cause nothing can cause from outside. A
    topic id that no topic has makes Kafka 4.3 fail the whole request; 4.4 answers UNKNOWN_TOPIC_ID. Who renews locks
    must say so, and gets no records."""
    member, other = scene.holding(0), scene.member("other")
    other.fetch(0)
    for asks, acks, error in (
        (member, {0: said(3, 2)}, "INVALID_REQUEST"),
        (member, {0: said(0, 9, 4)}, "INVALID_REQUEST"),
        (other, {0: said(0, 9)}, "INVALID_RECORD_STATE"),
    ):
        told = asks.fetch(acks=acks, max_records=0)[min(acks)]
        assert (asks.errors, ErrorCode(told["AcknowledgeErrorCode"]).name) == ({error}, error)
    told = member.fetch(acks={0: said(0, 9, 4)}, max_bytes=0, max_records=0, renewing=True)[0]
    assert (member.errors, told["AcquiredRecords"]) == (set(), [])
    member.fetch(acks={9: said(0, 0)})
    assert member.errors == {"UNKNOWN_TOPIC_OR_PARTITION"}
    member.fetch(acks={-1: said(0, 0)})
    assert member.errors == {"UNKNOWN_SERVER_ERROR"}


@pytest.fixture(scope="module")
def pair() -> Iterator[Scene]:
    with broker_pair({}) as both:
        yield Scene.on(both.first.config(), lambda _, topic: both.create_topic(topic, [1, 2], {}))


@pytest.mark.full
@pytest.mark.slow
def test_a_wrong_broker_names_the_leader(pair: Scene) -> None:
    """R002-68, R002-69: NodeEndpoints has the leader of a partition that answers NOT_LEADER_OR_FOLLOWER."""
    member = pair.member("m")
    member.fetch(0, 1)
    told = until(lambda: member.fetch(0, 1).get(1), what="a partition that another node leads")
    assert (member.errors, told["CurrentLeader"]["LeaderId"]) == ({"NOT_LEADER_OR_FOLLOWER"}, 2)
    assert [each["NodeId"] for each in member.answer["NodeEndpoints"]] == [2]
