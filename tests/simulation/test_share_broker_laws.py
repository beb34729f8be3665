"""What no life of members at a simulated broker may break."""

from __future__ import annotations

import random
from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st
from simulation.share_members import (
    FIRST,
    SECOND,
    THIRD,
    Cluster,
    Member,
    acknowledged,
    done,
    live,
    locked,
    memory,
    offsets,
)

from acktrail_simulation.messages.share_messages import FetchResponse

seeds = st.integers(0, 2**32)


@given(seeds, st.integers(1, 40))
def test_what_is_accepted_is_never_delivered_again(seed: int, steps: int) -> None:
    """R000-35, R002-66: whatever members ask in whatever order, an accepted or rejected record whose acknowledgement
    was answered without error comes to no member again, and no record is held by two members at once."""
    source = random.Random(seed)
    cluster = Cluster()
    members = [Member(cluster=cluster, name=name) for name in ("m1", "m2")]
    for _ in range(steps):
        leaders = cluster.broker.leaders.leaders
        before = {(k.topic_id, k.partition): (locked(found), done(found)) for k, found in leaders.items()}
        for member in members:
            member.said = {}
        answer = live(cluster, source, members)
        for partition in answer.partitions if isinstance(answer, FetchResponse) else ():
            got = offsets(list(partition.acquired))
            held, over = before.get((partition.at.topic_id, partition.at.partition), (set(), set()))
            said = {
                o
                for m in members
                for b in m.said.get(partition.at, ())
                for o in range(b.first_offset, b.last_offset + 1)
            }
            assert not got & over
            assert not got & (held - said)


@given(seeds, st.integers(0, 40), st.sampled_from((-7, -1, 0, 1, 2, 3, 2**31 - 1)))
def test_a_wrong_epoch_is_refused_and_changes_nothing(seed: int, steps: int, epoch: int) -> None:
    """R002-56, R002-57, R002-62: 0 opens a session, -1 closes it, else the epoch is the one after the last; any other
    is refused, without a session every one but 0 is, and a refusal leaves sessions, locks and state as they were."""
    source = random.Random(seed)
    cluster = Cluster()
    members = [Member(cluster=cluster, name=name) for name in ("m1", "m2")]
    for _ in range(steps):
        live(cluster, source, members)
    member = members[0]
    sessions = {key.member_id: session.epoch for key, session in cluster.broker.sessions.sessions.items()}
    assert member.epoch == sessions.get(member.name, 0)
    before = memory(cluster)
    asked = (
        [member.acknowledge] if source.random() < 0.5 else [lambda said, epoch: member.fetch(said=said, epoch=epoch)]
    )
    answer = asked[0]({}, epoch=epoch)

    is_open = member.name in sessions
    if not is_open and (epoch != 0 or asked[0] == member.acknowledge):
        expected = "INVALID_SHARE_SESSION_EPOCH" if epoch == 0 else "SHARE_SESSION_NOT_FOUND"
    elif epoch in (-1, sessions.get(member.name)) or (epoch == 0 and asked[0] != member.acknowledge):
        expected = "NONE"
    else:
        expected = "INVALID_SHARE_SESSION_EPOCH"
    assert answer.error.name == expected
    if expected != "NONE":
        assert memory(cluster) == before
    else:
        assert (member.name in {key.member_id for key in cluster.broker.sessions.sessions}) == (epoch != -1)


@given(seeds, st.integers(1, 30))
def test_acknowledgements_may_ride_along(seed: int, steps: int) -> None:
    """R002-61, R002-70: acknowledging in a ShareFetch does to locks, state and log what a ShareAcknowledge and then the
    same ShareFetch do, with the same errors; only the session's epoch is one further in the second case."""
    cluster = Cluster()
    members = [Member(cluster=cluster, name=name) for name in ("m1", "m2")]
    source = random.Random(seed)
    for _ in range(steps):
        live(cluster, source, members)
    riding = deepcopy(members[0])
    apart = deepcopy(members[0])
    if not riding.epoch:
        riding.fetch(FIRST, SECOND)
        apart.fetch(FIRST, SECOND)
    said = {
        place: tuple(acknowledged(p.first_offset, p.last_offset) for p in parts[-1:])
        for place, parts in riding.held.items()
    }
    said[THIRD] = (acknowledged(0, 0),)

    together = riding.fetch(said=said)
    first = apart.acknowledge(said)
    second = apart.fetch(*said)

    errors = {partition.at: partition.error for partition in first.partitions}
    assert {p.at: p.acknowledge_error for p in together.partitions if p.at in errors} == errors
    fetched = {p.at: (p.error, p.records, p.acquired) for p in second.partitions}
    assert {p.at: (p.error, p.records, p.acquired) for p in together.partitions if p.acquired} == {
        place: told for place, told in fetched.items() if told[2]
    }
    after = [found.cluster for found in (riding, apart)]
    assert after[0].coordinator.memory.states == after[1].coordinator.memory.states
    assert after[0].coordinator.log.end_offset == after[1].coordinator.log.end_offset
    caches = [{key: leader.cache for key, leader in found.broker.leaders.leaders.items()} for found in after]
    assert caches[0] == caches[1]
