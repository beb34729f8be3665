"""Random records of the domain, for property tests."""

from __future__ import annotations

from hypothesis import strategies as st
from jobs.world import batch

from acktrail.model.batches import StateBatch
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.share_partition import GroupId, SharePartition, topic_id_text

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def known_or_none(numbers: st.SearchStrategy[int]) -> st.SearchStrategy[int | None]:
    """None, or a number that is not -1."""
    return st.one_of(st.none(), numbers.filter(lambda n: n != -1))


_known32, _known64 = known_or_none(INT32), known_or_none(INT64)

keys = st.builds(
    SharePartition,
    group_id=st.text(st.characters(exclude_categories=("Cs",)), max_size=12).map(GroupId),
    topic_id=st.binary(min_size=16, max_size=16).map(topic_id_text),
    partition=INT32,
)

any_batches = st.lists(
    st.builds(
        StateBatch,
        first_offset=INT64,
        last_offset=INT64,
        delivery_state=st.integers(-128, 127),
        delivery_count=INT16,
    ),
    max_size=5,
).map(tuple)


@st.composite
def batches(draw: st.DrawFn, *, low: int = 0, high: int = 40, most: int = 5) -> tuple[StateBatch, ...]:
    """Batches over few offsets, so that they meet: any order, overlapping, states 0 to 4."""
    found = []
    for _ in range(draw(st.integers(0, most))):
        first = draw(st.integers(low, high))
        last = draw(st.integers(first, high + 5))
        found.append(batch(first, last, draw(st.integers(0, 4)), draw(st.integers(0, 4))))
    return tuple(found)


@st.composite
def disjoint_batches(draw: st.DrawFn, *, start: int = 0) -> tuple[StateBatch, ...]:
    """Ascending, disjoint batches as a broker writes them."""
    position, found = start, []
    for _ in range(draw(st.integers(0, 5))):
        first = position + draw(st.integers(0, 3))
        last = first + draw(st.integers(0, 5))
        found.append(batch(first, last, draw(st.sampled_from((0, 2, 4))), draw(st.integers(1, 5))))
        position = last + 1
    return tuple(found)


_CONTENT = {
    "start_offset": _known64,
    "delivery_complete_count": _known32,
    "snapshot_epoch": INT32,
    "batches": any_batches,
}


def snapshots(key: st.SearchStrategy[SharePartition] = keys) -> st.SearchStrategy[ShareSnapshot]:
    times = {"create_timestamp_ms": INT64, "write_timestamp_ms": INT64}
    return st.builds(ShareSnapshot, key=key, state_epoch=INT32, leader_epoch=INT32, **_CONTENT, **times)


def updates(key: st.SearchStrategy[SharePartition] = keys) -> st.SearchStrategy[ShareUpdate]:
    return st.builds(ShareUpdate, key=key, leader_epoch=_known32, **_CONTENT)


def records(key: st.SearchStrategy[SharePartition] = keys) -> st.SearchStrategy[StateRecord]:
    return st.one_of(snapshots(key), updates(key), st.builds(Tombstone, key=key))


def small_records(
    key: st.SearchStrategy[SharePartition],
    start: st.SearchStrategy[int | None],
    found: st.SearchStrategy[tuple[StateBatch, ...]],
) -> st.SearchStrategy[StateRecord]:
    """Snapshots, and twice as many updates, with few values of a kind."""
    few, times = st.integers(0, 2), st.integers(1, 2)
    own = {"key": key, "start_offset": start, "snapshot_epoch": few, "delivery_complete_count": st.none() | few}
    updates = st.builds(ShareUpdate, **own, leader_epoch=st.none() | few, batches=found)
    whole = {"state_epoch": few, "leader_epoch": few, "create_timestamp_ms": times, "write_timestamp_ms": times}
    return updates | updates | st.builds(ShareSnapshot, **own, **whole, batches=st.just(()) | found)
