"""Share sessions at a simulated broker: what they hold, how they end, what is fetched in them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from simulation.share_members import (
    FIRST,
    GROUP,
    SECOND,
    THIRD,
    Cluster,
    Member,
    acknowledged,
    locked,
    offsets,
    opened,
)

from acktrail.model.batches import DeliveryState
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.messages.share_messages import FetchPartition, ShareFetch, next_session_epoch


def test_epochs_begin_again_at_one() -> None:
    """R002-62: after the highest epoch comes 1, for 0 would open a session; a closed one stays closed."""
    assert [next_session_epoch(epoch) for epoch in (-1, 0, 1, 2**31 - 1)] == [-1, 1, 2, 1]


def test_a_last_fetch_asks_for_nothing() -> None:
    """R002-62, R002-63: with epoch -1 version 0 refuses partitions to fetch, and later versions fetch none; what rides
    along is settled before the session ends."""
    cluster, member = opened(FIRST)
    wanted = FetchPartition(at=FIRST, max_bytes=1)
    closing = ShareFetch(group_id=GROUP, member_id="m", session_epoch=-1, partitions=(wanted,), version=0)
    assert cluster.broker.fetch(closing).error is ErrorCode.INVALID_REQUEST
    assert cluster.broker.sessions.sessions

    cluster.produce(FIRST, 5)
    answer = member.fetch(said={FIRST: (acknowledged(0, 9),)}, epoch=-1)
    assert [(p.at, p.acknowledge_error, p.acquired) for p in answer.partitions] == [(FIRST, ErrorCode.NONE, ())]
    assert not cluster.broker.sessions.sessions
    (leader,) = cluster.broker.leaders.leaders.values()
    assert leader.cache.start_offset == 10


def test_what_is_forgotten_is_fetched_no_more() -> None:
    """R002-64: ForgottenTopicsData takes partitions out of the session; what the member holds of them stays locked and
    can be acknowledged; the partition joins again when it is asked for again. One that was never there is no matter."""
    cluster, member = opened(FIRST, SECOND)
    for place in (FIRST, SECOND):
        cluster.produce(place, 3)
    answer = member.fetch(forgotten=(FIRST, THIRD))
    assert [partition.at for partition in answer.partitions] == [SECOND]
    answer = member.fetch(said={})
    assert not answer.partitions
    told = member.acknowledge({FIRST: (acknowledged(0, 9),)}).of(FIRST)
    assert told is not None
    assert told.error is ErrorCode.NONE
    got = member.fetch(FIRST).of(FIRST)
    assert got is not None
    assert offsets(list(got.acquired)) == {10, 11, 12}


def test_a_response_leaves_out_unchanged_partitions() -> None:
    """R002-67: a partition is in the answer when it brought records, when it failed, when it was just added, and once
    more after it failed; a first answer has them all."""
    cluster = Cluster()
    member = Member(cluster=cluster)
    assert {partition.at for partition in member.fetch(FIRST, SECOND).partitions} == {FIRST, SECOND}
    assert member.fetch().partitions == ()
    assert [partition.at for partition in member.fetch(THIRD).partitions] == [THIRD]
    cluster.view.places[FIRST].log.fault = ErrorCode.KAFKA_STORAGE_ERROR
    assert [partition.error for partition in member.fetch().partitions] == [ErrorCode.KAFKA_STORAGE_ERROR]
    cluster.view.places[FIRST].log.fault = ErrorCode.NONE
    assert [(partition.at, partition.error) for partition in member.fetch().partitions] == [(FIRST, ErrorCode.NONE)]
    assert member.fetch().partitions == ()


@pytest.mark.parametrize("how", ["acknowledge", "fetch", "lost"])
def test_closing_releases_what_is_held(how: str) -> None:
    """R002-62: when a session ends, what its member held is available again with its count, in memory and in the
    state topic, and the next member gets it as a second attempt. Who opens a session anew keeps the old one's locks."""
    cluster, member = opened(FIRST, SECOND)
    assert member.fetch(epoch=0).error is ErrorCode.NONE
    assert len(locked(next(iter(cluster.broker.leaders.leaders.values())))) == 10
    member.fetch(FIRST, SECOND)
    ends: dict[str, Callable[[], object]] = {
        "acknowledge": lambda: member.acknowledge({}, epoch=-1),
        "fetch": lambda: member.fetch(epoch=-1),
        "lost": lambda: cluster.broker.disconnected("m"),
    }
    other = Member(cluster=cluster, name="other")
    other.fetch(FIRST, SECOND)
    ends[how]()
    answer = other.fetch()
    assert {partition.at for partition in answer.partitions} == {FIRST, SECOND}
    for partition in answer.partitions:
        assert [(a.first_offset, a.last_offset, a.delivery_count) for a in partition.acquired] == [(0, 9, 2)]
    states = cluster.coordinator.memory.states.values()
    released = [
        [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in s.batches] for s in states
    ]
    assert released.count([(0, 9, DeliveryState.AVAILABLE, 1)]) == 2
