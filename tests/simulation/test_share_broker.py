"""ShareFetch and ShareAcknowledge at a simulated broker: amounts, names, errors, leaders, fields."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.share_members import (
    FIRST,
    GROUP,
    SECOND,
    THIRD,
    Cluster,
    Member,
    acknowledged,
    at,
    live,
    memory,
    offsets,
    opened,
)

from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.leader.cluster_view import PartitionLeadership
from acktrail_simulation.messages.share_json import answer_fields, request_fields
from acktrail_simulation.messages.share_messages import (
    CurrentLeader,
    FetchPartition,
    FetchResponse,
    NodeEndpoint,
    ShareAcknowledge,
    ShareFetch,
)

seeds = st.integers(0, 2**32)
TWELVE = {
    "GROUP_AUTHORIZATION_FAILED",
    "TOPIC_AUTHORIZATION_FAILED",
    "SHARE_SESSION_NOT_FOUND",
    "INVALID_SHARE_SESSION_EPOCH",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "NOT_LEADER_OR_FOLLOWER",
    "UNKNOWN_TOPIC_ID",
    "INVALID_RECORD_STATE",
    "KAFKA_STORAGE_ERROR",
    "CORRUPT_MESSAGE",
    "INVALID_REQUEST",
    "UNKNOWN_SERVER_ERROR",
}


def test_no_bytes_only_acknowledge() -> None:
    """R002-63: in version 0 a partition of 0 bytes does not join the session: what is said of it is settled, nothing is
    fetched from it; later versions say the same with no records or no bytes at all."""
    cluster, member = opened(FIRST)
    cluster.produce(FIRST, 10)
    cluster.produce(SECOND, 10)
    some = FetchPartition(at=SECOND, acknowledgements=(acknowledged(0, 0),), max_bytes=0)
    request = ShareFetch(group_id=GROUP, member_id="m", session_epoch=1, partitions=(some,), version=0)
    answer = cluster.broker.fetch(request)

    told = answer.of(SECOND)
    assert told is not None
    assert (told.error, told.acknowledge_error) == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert (told.acquired, told.records) == ((), ())
    got = answer.of(FIRST)
    assert got is not None
    assert offsets(list(got.acquired)) == set(range(10, 20))
    wanted = replace(request, session_epoch=2, partitions=(replace(some, max_bytes=1, acknowledgements=()),))
    got = cluster.broker.fetch(wanted).of(SECOND)
    assert got is not None
    assert offsets(list(got.acquired)) == set(range(10))

    cluster.produce(FIRST, 10)
    for number, nothing in enumerate(({"max_bytes": 0}, {"max_records": 0})):
        answer = member.fetch(said={FIRST: (acknowledged(number, number),)}, epoch=3 + number, **nothing)
        assert [(p.at, p.acknowledge_error, p.acquired) for p in answer.partitions] == [(FIRST, ErrorCode.NONE, ())]
    ((_, leader),) = [(k, v) for k, v in cluster.broker.leaders.leaders.items() if k.partition == 0]
    assert leader.cache.start_offset == 2


def test_a_wrong_broker_names_the_leader() -> None:
    """R002-69: NodeEndpoints has each leader of a partition that answers NOT_LEADER_OR_FOLLOWER once, and nobody else;
    a leader that is not known or not alive is named by nobody. It is so in both calls."""
    cluster, member = opened(FIRST, SECOND, THIRD)
    for place, leader in ((FIRST, 2), (SECOND, 2), (THIRD, 9)):
        cluster.view.places[place] = PartitionLeadership(leader_id=leader, leader_epoch=5)
        cluster.broker.leaders.drop(at=place)
    answer = member.fetch()
    assert {p.at: (p.error.name, p.current_leader) for p in answer.partitions} == {
        FIRST: ("NOT_LEADER_OR_FOLLOWER", CurrentLeader(leader_id=2, leader_epoch=5)),
        SECOND: ("NOT_LEADER_OR_FOLLOWER", CurrentLeader(leader_id=2, leader_epoch=5)),
        THIRD: ("NOT_LEADER_OR_FOLLOWER", CurrentLeader(leader_id=9, leader_epoch=5)),
    }
    assert answer.endpoints == (NodeEndpoint(node_id=2, host="host-2", port=9092),)

    cluster, member = opened(FIRST, SECOND)
    cluster.initialize(FIRST, state_epoch=2)
    cluster.view.places[FIRST].leader_id = 2
    told = member.acknowledge({FIRST: (acknowledged(0, 0),), SECOND: (acknowledged(0, 0),)})
    assert {p.at: p.error.name for p in told.partitions} == {FIRST: "NOT_LEADER_OR_FOLLOWER", SECOND: "NONE"}
    assert told.endpoints == (NodeEndpoint(node_id=2, host="host-2", port=9092),)
    assert member.fetch().endpoints == told.endpoints


def _no_right_to_group() -> FetchResponse:
    cluster, member = opened(FIRST)
    cluster.view.closed_groups = frozenset({GROUP})
    return member.fetch()


def _no_right_to_topic() -> FetchResponse:
    cluster, member = opened(FIRST)
    cluster.view.closed_topics = frozenset({"first"})
    return member.fetch(said={FIRST: (acknowledged(0, 0),)})


def _no_such_partition() -> FetchResponse:
    return opened(FIRST)[1].fetch(said={at(0, 7): (acknowledged(0, 0),)})


def _no_such_topic() -> FetchResponse:
    nowhere = replace(FIRST, topic_id="IDEiMyRFJmcoiSqrLM0u7w")
    return opened(FIRST)[1].fetch(said={nowhere: (acknowledged(0, 0),)})


def _elsewhere() -> FetchResponse:
    cluster, member = opened(FIRST)
    cluster.initialize(FIRST, state_epoch=2)
    cluster.view.places[FIRST].leader_id = 2
    return member.fetch(said={FIRST: (acknowledged(0, 0),)})


def _bad_disk(fault: ErrorCode) -> FetchResponse:
    cluster, member = opened(FIRST)
    cluster.view.places[FIRST].log.fault = fault
    return member.fetch()


def _of_another() -> FetchResponse:
    other = Member(cluster=opened(FIRST)[0], name="other")
    other.fetch(FIRST)
    return other.fetch(said={FIRST: (acknowledged(0, 9),)})


def _unwritten() -> FetchResponse:
    cluster, member = opened(FIRST)
    cluster.failing = ErrorCode.UNKNOWN_SERVER_ERROR
    return member.fetch(SECOND, said={FIRST: (acknowledged(0, 0),)})


CAUSES: dict[str, Callable[[], FetchResponse]] = {
    "GROUP_AUTHORIZATION_FAILED": _no_right_to_group,
    "TOPIC_AUTHORIZATION_FAILED": _no_right_to_topic,
    "SHARE_SESSION_NOT_FOUND": lambda: Member(cluster=Cluster()).fetch(epoch=1),
    "INVALID_SHARE_SESSION_EPOCH": lambda: opened(FIRST)[1].fetch(epoch=2),
    "UNKNOWN_TOPIC_OR_PARTITION": _no_such_partition,
    "NOT_LEADER_OR_FOLLOWER": _elsewhere,
    "UNKNOWN_TOPIC_ID": _no_such_topic,
    "INVALID_RECORD_STATE": _of_another,
    "KAFKA_STORAGE_ERROR": lambda: _bad_disk(ErrorCode.KAFKA_STORAGE_ERROR),
    "CORRUPT_MESSAGE": lambda: _bad_disk(ErrorCode.CORRUPT_MESSAGE),
    "INVALID_REQUEST": lambda: opened(FIRST)[1].fetch(said={FIRST: (acknowledged(3, 2),)}),
    "UNKNOWN_SERVER_ERROR": _unwritten,
}
WHERE = {
    "top": {"GROUP_AUTHORIZATION_FAILED", "SHARE_SESSION_NOT_FOUND", "INVALID_SHARE_SESSION_EPOCH"},
    "fetch": {"KAFKA_STORAGE_ERROR", "CORRUPT_MESSAGE"},
    "acknowledge": {"INVALID_RECORD_STATE", "INVALID_REQUEST"},
}
"""Those that a cause below brings about at one place; the others are told of the fetch and of the acknowledgement."""


@pytest.mark.parametrize("name", sorted(TWELVE))
def test_twelve_errors(name: str) -> None:
    """R002-68: each of the twelve errors has a cause, and is told where it belongs: of the request, of the fetch or of
    the acknowledgement; INVALID_RECORD_STATE is only ever told of an acknowledgement."""
    answer = CAUSES[name]()
    found = {("top", answer.error.name)}
    found |= {("fetch", partition.error.name) for partition in answer.partitions}
    found |= {("acknowledge", partition.acknowledge_error.name) for partition in answer.partitions}
    places = {where for where, names in WHERE.items() if name in names} or {"fetch", "acknowledge"}
    assert {where for where, error in found if error == name} == places
    assert {error for _, error in found} <= {name, "NONE"}


@given(seeds, st.integers(1, 40))
def test_no_other_error(seed: int, steps: int) -> None:
    """R002-68: members that keep to the rules meet none but errors of the twelve, whatever writes end with; an error of
    an acknowledgement is never told as one of the fetch."""
    source = random.Random(seed)
    cluster = Cluster()
    members = [Member(cluster=cluster, name=name) for name in ("m1", "m2")]
    for _ in range(steps):
        cluster.failing = source.choice(
            (ErrorCode.NONE,) * 5 + (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.FENCED_STATE_EPOCH)
        )
        answer = live(cluster, source, members)
        if answer is None:
            continue
        assert answer.error.name in {"NONE", *TWELVE}
        for partition in answer.partitions:
            assert partition.error.name in {"NONE", *TWELVE}
            if isinstance(answer, FetchResponse):
                assert partition.error is not ErrorCode.INVALID_RECORD_STATE


def test_who_asks_must_be_named() -> None:
    """R002-61, R002-70: a request without group, or without a member id of at most 36 characters, is refused in both
    calls, and so are acknowledgements in a request that opens a session; nothing changes."""
    cluster, member = opened(FIRST)
    before = memory(cluster)
    for group_id, member_id in ((None, "m"), (GROUP, ""), (GROUP, "m" * 37)):
        fetch = ShareFetch(group_id=group_id, member_id=member_id, session_epoch=1)
        acknowledge = ShareAcknowledge(group_id=group_id, member_id=member_id, session_epoch=1)
        assert cluster.broker.fetch(fetch).error is ErrorCode.INVALID_REQUEST
        assert cluster.broker.acknowledge(acknowledge).error is ErrorCode.INVALID_REQUEST
    assert member.fetch(said={FIRST: (acknowledged(0, 9),)}, epoch=0).error is ErrorCode.INVALID_REQUEST
    assert memory(cluster) == before


def test_bytes_are_shared_out() -> None:
    """R002-61: the bytes asked for are shared out evenly among the partitions; only the first batch read may be larger
    than that, so a fetch is never stuck, and in its turn each partition's is the first."""
    cluster = Cluster()
    for place in (FIRST, SECOND):
        for _ in range(4):
            cluster.produce(place, 2, size_bytes=100)
    member = Member(cluster=cluster)
    got = [
        {p.at: p.acquired[-1].last_offset for p in member.fetch(*places, max_bytes=most).partitions if p.acquired}
        for places, most in (((FIRST, SECOND), 150), ((), 150), ((), 400), ((), 400))
    ]
    assert got == [{FIRST: 1}, {SECOND: 1}, {FIRST: 5, SECOND: 5}, {FIRST: 7, SECOND: 7}]


def test_who_renews_asks_for_nothing() -> None:
    """R002-66 and KIP-1222: RENEW is refused unless the request says so; then it must ask for no records, gets none,
    and its lock runs anew. Version 1 knows no RENEW."""
    cluster, member = opened(FIRST)
    renew = {FIRST: (acknowledged(0, 9, 4),)}
    nothing = {"max_bytes": 0, "max_records": 0}
    assert member.fetch(said=renew, renewing=True).error is ErrorCode.INVALID_REQUEST
    for fields, error in (
        ({}, "INVALID_REQUEST"),
        ({"version": 1, "renewing": True}, "INVALID_REQUEST"),
        ({"renewing": True}, "NONE"),
    ):
        told = member.fetch(said=renew, **fields, **nothing).of(FIRST)
        assert told is not None
        assert told.acknowledge_error.name == error, fields
    cluster.clock.advance(60)
    assert member.acknowledge(renew, renewing=True).error is ErrorCode.NONE
    cluster.clock.advance(60)
    assert cluster.broker.leaders.end_locks() == 0


def test_schemas_by_version() -> None:
    """R002-61, R002-67, R002-70: the fields of both requests and answers, by version, under Kafka's names."""
    request = ShareFetch(
        group_id=GROUP,
        member_id="m",
        session_epoch=1,
        partitions=(FetchPartition(at=FIRST, acknowledgements=(acknowledged(1, 2, 0, 1),)),),
        forgotten=(THIRD,),
    )
    fields = request_fields(request)
    assert list(fields["Topics"][0]) == ["TopicId", "Partitions"]
    assert fields["Topics"][0]["Partitions"] == [
        {
            "PartitionIndex": 0,
            "AcknowledgementBatches": [{"FirstOffset": 1, "LastOffset": 2, "AcknowledgeTypes": [0, 1]}],
        }
    ]
    assert fields["ForgottenTopicsData"] == [{"TopicId": THIRD.topic_id, "Partitions": [0]}]
    added = [set(request_fields(replace(request, version=version))) for version in range(3)]
    assert added[1] - added[0] == {"MaxRecords", "BatchSize"}
    assert added[2] - added[1] == {"IsRenewAck", "ShareAcquireMode"}
    first = replace(request, version=0, max_bytes=2**31 - 1, partitions=(FetchPartition(at=FIRST, max_bytes=0),))
    assert request_fields(first)["Topics"][0]["Partitions"][0]["PartitionMaxBytes"] == 0

    member = opened(FIRST)[1]
    told = answer_fields(member.fetch(SECOND, said={FIRST: (acknowledged(0, 9),)}))
    (topic,) = told["Responses"]
    assert set(topic["Partitions"][0]) == {
        *("PartitionIndex", "ErrorCode", "ErrorMessage", "AcknowledgeErrorCode", "AcknowledgeErrorMessage"),
        *("CurrentLeader", "AcquiredRecords"),
    }
