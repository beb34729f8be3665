"""The laws of history: changes, laid over each other, are the fold's states; what is not known is never made up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from definitions.status_history import History
from hypothesis import given
from hypothesis import strategies as st
from samples.coordinator_random_logs import KEYS, coordinator_logs
from samples.random_records import batches, records, small_records
from state_topics.coordinator_log import Coordinator, batch

from acktrail.model.record_history import StatusEnd, record_history
from acktrail.model.records import ShareUpdate, StateRecord, Tombstone
from acktrail.model.replay import SharePartitionState, apply, replay
from acktrail.model.share_partition import SharePartition
from acktrail.model.status_changes import (
    LAST_OFFSET,
    UNKNOWN,
    Cause,
    OffsetStatus,
    OffsetStatusKind,
    StatusChange,
)

PLACES = (*range(16), LAST_OFFSET - 1, LAST_OFFSET)
"""Offsets to look at: records below speak of the first few, some of the whole range."""

starts = st.one_of(st.none(), st.integers(0, 12))
small = small_records(st.sampled_from(KEYS), starts, batches(high=9, most=3))
tombstones = st.builds(Tombstone, key=st.sampled_from(KEYS))
any_records = st.one_of(small, small, tombstones, records(st.sampled_from(KEYS)))
logs = st.lists(any_records, max_size=9)


def changes_of(
    log: Iterable[StateRecord], history: History | None = None, first: int = 0
) -> Iterator[list[StatusChange]]:
    """The changes of each record."""
    history = history or History(0, {})
    for offset, record in enumerate(log, start=first):
        yield list(history.record(record, offset=offset, timestamp_ms=1_000 + offset))


def pointwise(state: SharePartitionState | None, offset: int) -> OffsetStatus:
    """The condition of one offset in a state, from its batches one by one: the naive version."""
    if state is None:
        return OffsetStatus(kind=OffsetStatusKind.ABSENT)
    if state.start_offset is not None and offset < state.start_offset:
        return OffsetStatus(kind=OffsetStatusKind.BELOW_START)
    said = [(b.delivery_count, b.delivery_state) for b in state.batches if b.first_offset <= offset <= b.last_offset]
    if said:
        count, number = max(said)
        return OffsetStatus(kind=OffsetStatusKind.RECORDED, delivery_state=number, delivery_count=count)
    if state.state_epoch is None:
        return UNKNOWN
    return OffsetStatus(
        kind=OffsetStatusKind.UNINITIALIZED if state.start_offset is None else OffsetStatusKind.UNRECORDED
    )


class Laid:
    """Changes laid over each other at some offsets: what the history says as of the last one."""

    def __init__(self) -> None:
        self.at: dict[SharePartition, dict[int, OffsetStatus]] = {}

    def lay(self, changes: Iterable[StatusChange]) -> None:
        for change in changes:
            own = self.at.setdefault(change.key, dict.fromkeys(PLACES, change.before))
            for place in PLACES:
                if change.covers(place):
                    own[place] = change.after


@given(logs)
def test_the_history_at_any_record_equals_the_replayed_state(log: list[StateRecord]) -> None:
    """After every record every offset is in the condition that the fold's state gives it, whatever was written."""
    laid, states = Laid(), dict.fromkeys(KEYS, None)
    for record, changes in zip(log, changes_of(log), strict=True):
        laid.lay(changes)
        states[record.key] = apply(states[record.key], record)
        for place, condition in laid.at.get(record.key, {}).items():
            assert condition == pointwise(states[record.key], place)


@given(logs)
def test_changes_are_the_longest_ranges_that_changed(log: list[StateRecord]) -> None:
    """A record's changes ascend without touching where they are alike; none is without a difference, but for the first
    record of a share partition, which speaks of every offset."""
    for record, changes in zip(log, changes_of(log), strict=True):
        assert all(change.before != change.after or change.before == UNKNOWN for change in changes)
        assert all(0 <= change.first_offset <= change.last_offset <= LAST_OFFSET for change in changes)
        assert {change.key for change in changes} <= {record.key}
        for one, next_one in pairwise(changes):
            assert one.last_offset < next_one.first_offset
            is_alike = (one.before, one.after) == (next_one.before, next_one.after)
            assert not (is_alike and one.last_offset + 1 == next_one.first_offset)


@given(coordinator_logs(), st.integers(0, 12), st.integers(0, 5), st.booleans())
def test_what_is_known_beside_a_gap_is_true(log: list[StateRecord], first: int, length: int, unreadable: bool) -> None:
    """Records of a broker are lost, or cannot be read. Before and after it, whatever the history does not call unknown
    is what the whole log says; at the lost records nothing is known; and a next snapshot makes everything known."""
    history, laid = History(0, {}), Laid()
    states: dict[SharePartition, SharePartitionState] = {}
    known_again: set[SharePartition] = set(KEYS)
    for offset, record in enumerate(log):
        states = replay(log[: offset + 1])
        if first <= offset < first + length:
            if unreadable:
                laid.lay(history.unreadable(record.key, offset=offset, timestamp_ms=None))
                known_again.discard(record.key)
            elif offset == first:
                laid.lay(history.gap(offset))
                known_again.clear()
            continue
        laid.lay(history.record(record, offset=offset, timestamp_ms=offset))
        if not isinstance(record, ShareUpdate):
            known_again.add(record.key)
        for key, own in laid.at.items():
            for place, condition in own.items():
                assert condition in (UNKNOWN, pointwise(states.get(key), place))
                assert condition != UNKNOWN or key not in known_again


@given(coordinator_logs())
def test_what_a_broker_writes_is_dated(log: list[StateRecord]) -> None:
    """Exported from its beginning, every change of a log happened with the record that shows it."""
    assert all(change.is_dated for changes in changes_of(log) for change in changes)


def told(offset: int, *log: StateRecord) -> list[tuple[StatusEnd | None, Cause | None]]:
    """How each interval of an offset ended, and the cause."""
    made = record_history(offset, (change for changes in changes_of(log) for change in changes))
    assert made is not None
    return [(each.ended_by, each.until.cause) for each in made.intervals if each.until is not None]


def test_statuses_of_one_offset_from_creation_to_deletion() -> None:
    """Initialized, started, released, acknowledged, passed, reset, deleted: each ending has its name and its record."""
    key = KEYS[0]
    life = Coordinator(limit=50)
    life.initialize(key, start_offset=None)
    life.write(key, 10, batch(10, 19, 0, 1))
    life.write(key, 10, batch(10, 19, 2, 2))
    life.write(key, 20, batch(20, 29, 4, 5))
    life.initialize(key, state_epoch=2, start_offset=15)
    life.delete(key)

    endings = [how for how, _ in told(16, *life.log)]
    assert endings == [
        StatusEnd.STARTED,
        StatusEnd.STARTED,
        StatusEnd.CHANGED,
        StatusEnd.PASSED,
        StatusEnd.RESET,
        StatusEnd.DELETED,
    ]
    causes = [cause for _, cause in told(16, *life.log)]
    assert causes == [Cause.INITIALIZE, *[Cause.UPDATE] * 3, Cause.RESET, Cause.TOMBSTONE]


def test_an_offset_that_a_snapshot_leaves_out_was_dropped() -> None:
    """A snapshot of the same state epoch replaces all: what it does not mention has no delivery state any more."""
    key = KEYS[0]
    life = Coordinator(limit=50)
    life.initialize(key, start_offset=0)
    life.write(key, 0, batch(3, 5, 0, 1))
    state = life.states[key]
    life.topic.coordinator_of(key).memory.states[key] = SharePartitionState(
        **{name: getattr(state, name) for name in SharePartitionState.__slots__ if name != "batches"}, batches=()
    )
    life.cool()

    assert (StatusEnd.DROPPED, Cause.SNAPSHOT) in told(3, *life.log)
