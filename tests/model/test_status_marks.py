"""Marks against the law: an update in place gives the changes and the state that the model's history gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from samples.random_records import INT16, batches, disjoint_batches, records

from acktrail.model.delivery import StateBatch
from acktrail.model.offset_history.offset_status import (
    LAST_OFFSET,
    OffsetStatus,
    OffsetStatusKind,
    differences,
    status_ranges,
)
from acktrail.model.offset_history.status_marks import (
    LEAST_RECORDED,
    UNRECORDED_KINDS,
    OffsetMarks,
    mark,
    mark_of_status,
)
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord
from acktrail.model.replay import SharePartitionState, apply
from acktrail.model.share_partition import GroupId, SharePartition, TopicId

KEY = SharePartition(group_id=GroupId("g"), topic_id=TopicId("t"), partition=0)

own_batches = st.one_of(batches(high=12, most=4), disjoint_batches(), disjoint_batches(start=6))
starts = st.one_of(st.none(), st.integers(0, 14))
own_updates = st.builds(
    ShareUpdate,
    key=st.just(KEY),
    snapshot_epoch=st.integers(0, 2),
    leader_epoch=st.one_of(st.none(), st.integers(0, 3)),
    start_offset=starts,
    delivery_complete_count=st.one_of(st.none(), st.integers(0, 9)),
    batches=own_batches,
)
own_snapshots = st.builds(
    ShareSnapshot,
    key=st.just(KEY),
    snapshot_epoch=st.integers(0, 2),
    state_epoch=st.integers(0, 2),
    leader_epoch=st.integers(0, 3),
    start_offset=starts,
    delivery_complete_count=st.none(),
    create_timestamp_ms=st.just(1),
    write_timestamp_ms=st.just(2),
    batches=own_batches,
)
logs = st.lists(st.one_of(own_updates, own_updates, own_updates, own_snapshots, records(st.just(KEY))), max_size=12)
conditions = st.one_of(
    st.sampled_from([OffsetStatus(kind=kind) for kind in OffsetStatusKind if kind is not OffsetStatusKind.RECORDED]),
    st.builds(
        OffsetStatus,
        kind=st.just(OffsetStatusKind.RECORDED),
        delivery_state=st.integers(-128, 127),
        delivery_count=INT16,
    ),
)


def status_of_mark(number: int) -> OffsetStatus:
    if number < LEAST_RECORDED:
        return OffsetStatus(kind=UNRECORDED_KINDS[LEAST_RECORDED - 1 - number])
    count, state = divmod(number, 256)
    return OffsetStatus(kind=OffsetStatusKind.RECORDED, delivery_state=state - 128, delivery_count=count)


def by_marks(marked: OffsetMarks, update: ShareUpdate) -> list[tuple[int, int, OffsetStatus, OffsetStatus]] | None:
    """The changes, or None where the update was refused."""
    flat: list[int] = []
    own = update.batches
    done = marked.update(
        update.start_offset,
        update.leader_epoch,
        update.delivery_complete_count,
        [each.first_offset for each in own],
        [each.last_offset for each in own],
        [mark(each.delivery_state, each.delivery_count) for each in own],
        flat,
    )
    if not done:
        assert not flat
        return None
    rows = zip(*(iter(flat),) * 4, strict=True)
    return [(first, last, status_of_mark(old), status_of_mark(new)) for first, last, old, new in rows]


@given(logs)
def test_updates_in_place_equal_history(log: list[StateRecord]) -> None:
    """Whatever came before: where an update is taken, its changes and the state after it are those of the law; where it
    is refused, nothing happened."""
    state: SharePartitionState | None = None
    marked: OffsetMarks | None = None
    for record in log:
        before, state = state, apply(state, record)
        found = None
        if isinstance(record, ShareUpdate) and before is not None and marked is not None:
            found = by_marks(marked, record)
            assert found is not None or marked.state == before
        if found is None:
            marked = None if state is None else OffsetMarks.of(state)
            assert marked is None or marked.state == state
            continue
        assert marked is not None
        assert state is not None
        assert before is not None
        assert found == list(differences(status_ranges(before), status_ranges(state)))
        assert marked.state == state


@given(disjoint_batches(), disjoint_batches(start=3), st.integers(0, 20))
def test_states_that_brokers_write_have_marks(
    base: tuple[StateBatch, ...], own: tuple[StateBatch, ...], start: int
) -> None:
    """Snapshots and updates with ascending disjoint batches and a start offset that does not go back are never left to
    the law."""
    update = ShareUpdate(
        key=KEY, snapshot_epoch=0, leader_epoch=None, start_offset=start, delivery_complete_count=1, batches=own
    )
    state = apply(None, _snapshot(base))
    assert state is not None
    marked = OffsetMarks.of(state)
    assert marked is not None
    assert by_marks(marked, update) is not None


def test_the_largest_offset_has_a_status() -> None:
    """Ranges that end where offsets end."""
    state = apply(None, _snapshot(()))
    assert state is not None
    marked = OffsetMarks.of(state)
    assert marked is not None
    one = (StateBatch(first_offset=LAST_OFFSET - 1, last_offset=LAST_OFFSET, delivery_state=2, delivery_count=1),)
    update = ShareUpdate(
        key=KEY, snapshot_epoch=0, leader_epoch=None, start_offset=None, delivery_complete_count=2, batches=one
    )
    assert by_marks(marked, update) == list(differences(status_ranges(state), status_ranges(_after(state, update))))
    assert marked.state == _after(state, update)


@given(conditions, conditions)
def test_marks_compare_like_statuses(one: OffsetStatus, other: OffsetStatus) -> None:
    """There and back; of two recorded ones the greater delivery count wins, then the greater state; any other is
    less."""
    assert status_of_mark(mark_of_status(one)) == one
    if one.delivery_count is None or other.delivery_count is None:
        assert (one.delivery_count is None) <= (
            mark_of_status(one) < mark_of_status(other)
        ) or other.delivery_count is None
        return
    assert one.delivery_state is not None
    assert other.delivery_state is not None
    order = (one.delivery_count, one.delivery_state) < (other.delivery_count, other.delivery_state)
    assert (mark_of_status(one) < mark_of_status(other)) == order


def _snapshot(own: tuple[StateBatch, ...]) -> ShareSnapshot:
    return ShareSnapshot(
        key=KEY,
        snapshot_epoch=0,
        state_epoch=1,
        leader_epoch=0,
        start_offset=0,
        delivery_complete_count=0,
        create_timestamp_ms=1,
        write_timestamp_ms=1,
        batches=own,
    )


def _after(state: SharePartitionState, update: ShareUpdate) -> SharePartitionState:
    found = apply(state, update)
    assert found is not None
    return found
