"""ShareFetch and ShareAcknowledge as a real broker answers them: sessions, amounts, errors, leaders."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import pytest
from kafka_messages import MemberConnection
from servers.broker_pair import broker_pair
from servers.workload import Workload, start_at, until

from acktrail.config import KafkaConfig
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
        acks, self.epoch = acks or {}, self.epoch if epoch is None else epoch
        wanted = tuple(
            AskedPartition(at=self._at(n), acknowledgements=(acks[n],) if n in acks else ())
            for n in dict.fromkeys((*partitions, *acks))
        )
        request = ShareFetch(
            group_id=self.group_id,
            member_id=self.name,
            session_epoch=self.epoch,
            partitions=wanted,
            forgotten=() if forgotten is None else (self._at(forgotten),),
            **more,
        )
        return self._told(self.connection.fetch(request_fields(request)))

    def acknowledge(self, acks: Said | None = None, epoch: int | None = None) -> dict[int, dict[str, Any]]:
        self.epoch = self.epoch if epoch is None else epoch
        given = tuple(AskedPartition(at=self._at(n), acknowledgements=(each,)) for n, each in (acks or {}).items())
        request = ShareAcknowledge(
            group_id=self.group_id, member_id=self.name, session_epoch=self.epoch, partitions=given
        )
        return self._told(self.connection.acknowledge(request_fields(request)))

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

    def _told(self, answer: dict[str, Any]) -> dict[int, dict[str, Any]]:
        self.answer = answer
        if not answer["ErrorCode"]:
            self.epoch = max(0, next_session_epoch(self.epoch))
        return {row["PartitionIndex"]: row for topic in answer["Responses"] for row in topic["Partitions"]}


def member_of(kafka: KafkaConfig, topic: str) -> Member:
    """A member of a group that begins at offset 0 of both partitions of a topic."""
    with ShareGroupAdmin(kafka) as admin:
        (described,) = until(lambda: admin.topics([topic]), what="the topic")
    start_at(kafka, topic, {(topic, 0): 0, (topic, 1): 0})
    return Member(kafka=kafka, group_id=GroupId(topic), topic_id=TopicId(described.topic_id or ""))


@pytest.fixture
def member(kafka: KafkaConfig, workload: Workload) -> Member:
    """One that holds ten records of each partition."""
    topic, left = f"fetched-{uuid4().hex[:8]}", {0, 1}
    workload.create_topic(topic, 2)
    found = member_of(kafka, topic)
    for partition in (0, 1):
        workload.produce(topic, 10, partition)
    while left:  # each leader loads at its first fetch
        left -= {got[0] for got in found.offsets(*left)}
    return found


def test_epochs_of_a_session(member: Member) -> None:
    """R002-56, R002-57, R002-62: 0 opens a session and cannot acknowledge, -1 closes it, else the epoch is the one
    after the last; after the highest comes 1. What is refused changes nothing."""
    last, stranger = member.epoch, replace(member, name="stranger")
    for asks, ask, epoch, error in (
        (member, Member.fetch, 9, "INVALID_SHARE_SESSION_EPOCH"),
        (member, Member.acknowledge, 0, "INVALID_SHARE_SESSION_EPOCH"),
        (stranger, Member.fetch, 1, "SHARE_SESSION_NOT_FOUND"),
        (stranger, Member.acknowledge, -1, "SHARE_SESSION_NOT_FOUND"),
    ):
        ask(asks, epoch=epoch)
        assert asks.errors == {error}
    assert member.fetch(epoch=last) == {}
    told = member.fetch(acks={0: said(0, 9)}, epoch=-1)
    assert (member.errors, told[0]["AcquiredRecords"]) == (set(), [])
    member.fetch(epoch=2)
    assert member.errors == {"SHARE_SESSION_NOT_FOUND"}
    member.fetch(acks={0: said(0, 9)}, epoch=0)
    assert member.errors == {"INVALID_REQUEST"}
    assert [next_session_epoch(each) for each in (-1, 0, 1, 2**31 - 1)] == [-1, 1, 2, 1]


def test_what_a_session_asks_for(member: Member, workload: Workload) -> None:
    """R002-61, R002-63, R002-64, R002-67, R002-70: acknowledgements ride along; with no records or no bytes asked for
    they are all that happens. A forgotten partition is fetched no more, and what is held of it can be acknowledged. An
    answer leaves out partitions of which there is nothing to say."""
    assert member.fetch() == {}
    for partition in (0, 1):
        workload.produce(member.group_id, 3, partition)
    for number, nothing in enumerate(({"max_bytes": 0}, {"max_records": 0})):
        told = member.fetch(acks={0: said(number, number)}, **nothing)
        assert ([*told], told[0]["AcknowledgeErrorCode"], told[0]["AcquiredRecords"]) == ([0], 0, [])
    assert member.offsets(forgotten=0) == [(1, 10, 12, 1)]
    assert member.acknowledge({0: said(2, 9, 2)})[0]["ErrorCode"] == 0
    assert member.fetch() == {}
    got = until(lambda: member.offsets(0), what="the partition that is asked for again")
    assert {found[:2] for found in got} <= {(0, 2), (0, 10)}


def test_errors_of_what_is_asked(member: Member) -> None:
    """R002-55, R002-59, R002-60, R002-66, R002-68: each is told where it belongs. A group or a topic without READ is in
    `tests/kafka/test_rights.py`, epochs and leaders are here; what disks cause nothing can cause from outside. A
    topic id that no topic has makes Kafka 4.3 fail the whole request; 4.4 answers UNKNOWN_TOPIC_ID. Who renews locks
    must say so, and gets no records."""
    other = replace(member, name="other", epoch=0)
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


@pytest.mark.full
@pytest.mark.slow
def test_a_wrong_broker_names_the_leader() -> None:
    """R002-68, R002-69: NodeEndpoints has the leader of a partition that answers NOT_LEADER_OR_FOLLOWER."""
    with broker_pair({}) as pair:
        pair.create_topic("led-by-two", [1, 2], {})
        member = member_of(pair.first.config(), "led-by-two")
        member.fetch(0, 1)
        told = until(lambda: member.fetch(0, 1).get(1), what="a partition that another node leads")
    assert (member.errors, told["CurrentLeader"]["LeaderId"]) == ({"NOT_LEADER_OR_FOLLOWER"}, 2)
    assert [each["NodeId"] for each in member.answer["NodeEndpoints"]] == [2]
