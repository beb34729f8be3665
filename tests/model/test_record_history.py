"""The laws of history: changes, laid over each other, are the fold's states; what is not known is never made up. A
record's fate: one condition after the other; what was archived, told once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from definitions.status_history import History, changes_of
from hypothesis import given
from hypothesis import strategies as st
from samples.coordinator_random_logs import KEYS, coordinator_logs
from samples.random_records import batches, records, small_records
from state_topics.coordinator_log import Coordinator, batch, share_partition

from acktrail.model.offset_changes import (
    LAST_OFFSET,
    UNKNOWN,
    Cause,
    OffsetStatus,
    OffsetStatusKind,
    StatusChange,
    UnknownReason,
)
from acktrail.model.record_history import ArchivedRange, RecordHistory, StatusEnd, archived_ranges, record_history
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.replay import SharePartitionState, apply, replay
from acktrail.model.share_partition import SharePartition

KEY = share_partition()


def fate_in(log: Sequence[StateRecord], offset: int, **more: Any) -> RecordHistory:
    """The fate of `offset` in a log of one share partition; `more`: see ``changes_of``."""
    found = record_history(offset, changes_of(log, **more))
    assert found is not None
    return found


def blanks(found: RecordHistory) -> list[UnknownReason]:
    assert found.unknown_periods[0].reason is UnknownReason.DELIVERIES
    return [blank.reason for blank in found.unknown_periods[1:]]


def worked(*writes: tuple[int, int, int]) -> Coordinator:
    """Writes of (start offset, delivery state, delivery count) of offset 7."""
    life = Coordinator(limit=50)
    life.initialize(KEY)
    for start, state, count in writes:
        life.write(KEY, start, batch(7, 7, state, count))
    return life


@given(coordinator_logs())
def test_intervals_are_contiguous_and_differ(log: list[StateRecord]) -> None:
    """Without a hole and each different from the one before; the newest holds to this day; nothing is unknown of a log
    read from its beginning, but the deliveries themselves."""
    changes = changes_of(log)
    for offset in range(0, 20, 3):
        found = record_history(offset, [change for change in changes if change.key == log[0].key])
        assert found is not None
        assert found.now.until is None
        for one, next_one in pairwise(found.intervals):
            assert (one.until, one.status != next_one.status) == (next_one.since, True)
        assert {blank.reason for blank in found.unknown_periods} <= {
            UnknownReason.DELIVERIES,
            UnknownReason.SKIPPED_ENDINGS,
            UnknownReason.PASSED_UNRECORDED,
            UnknownReason.NEVER_IN_SCOPE,
        }


def test_released_and_archived() -> None:
    """Every ending of a delivery is there with its count; nothing but the deliveries themselves is not known."""
    found = fate_in(worked((0, 0, 1), (0, 0, 2), (0, 4, 3)).log, 7)
    told = [(i.status.delivery_state, i.status.delivery_count) for i in found.intervals[2:]]
    assert told == [(0, 1), (0, 2), (4, 3)]
    assert found.last_recorded is found.now
    assert blanks(found) == []


def test_a_count_that_jumps_shows_skipped_endings() -> None:
    """The ending of a delivery that left no record, as when a broker is killed, is said to be missing."""
    found = fate_in(worked((0, 0, 1), (0, 2, 3)).log, 7)
    assert blanks(found) == [UnknownReason.SKIPPED_ENDINGS]
    assert found.unknown_periods[1].until == found.now.since


def test_passed_with_and_without_a_state() -> None:
    """The start offset moves past an acknowledged record, and past one of which nothing was ever recorded."""
    log = worked((0, 2, 1), (20, 2, 1)).log
    done = fate_in(log, 7)
    assert done.now.status.kind is OffsetStatusKind.BELOW_START
    assert done.last_recorded is not None
    assert blanks(done) == []
    assert blanks(fate_in(log, 12)) == [UnknownReason.PASSED_UNRECORDED]


def test_below_the_start_offset_from_the_beginning() -> None:
    """A record below a group's start offset is not reported."""
    life = Coordinator()
    life.initialize(KEY, start_offset=10)
    assert blanks(fate_in(life.log, 7)) == [UnknownReason.NEVER_IN_SCOPE]
    assert blanks(fate_in(life.log, 10)) == []


def test_an_export_that_began_late_has_an_unknown_period() -> None:
    """What was before the first record is not known, nor since when it was as that record shows it."""
    life = worked((0, 0, 1))
    life.cool()
    life.write(KEY, 0, batch(7, 7, 2, 2))
    found = fate_in(life.log, 7, first=2)
    assert blanks(found) == [UnknownReason.EARLIER, UnknownReason.UNDATED]
    assert [interval.is_dated for interval in found.intervals] == [False, False, True]


def test_a_gap_is_an_unknown_period() -> None:
    """What was lost is named from its first record to the next that tells."""
    life = worked((0, 0, 1), (0, 0, 2), (0, 4, 3))
    life.cool()
    found = fate_in(life.log, 7, lost=range(2, 4))
    assert blanks(found) == [UnknownReason.GAP, UnknownReason.UNDATED]
    gap = found.unknown_periods[1]
    assert gap.since is not None
    assert gap.until is not None
    assert (gap.since.offset, gap.until.offset) == (2, 4)


@given(coordinator_logs(), st.integers(0, 12), st.integers(0, 4))
def test_every_offset_that_a_record_shows_archived_is_told(log: list[StateRecord], first: int, length: int) -> None:
    """As many distinct offsets as the exported records show at or above their start offset; undated ones only where
    they were not archived when they were last known."""
    found = list(archived_ranges(changes_of(log, range(first, first + length))))
    told = {(each.key, offset) for each in found for offset in range(each.first_offset, each.last_offset + 1)}
    shown = {
        (record.key, offset)
        for at, record in enumerate(log)
        if not first <= at < first + length and hasattr(record, "batches")
        for found_batch in record.batches
        if found_batch.delivery_state == 4
        for offset in range(found_batch.first_offset, found_batch.last_offset + 1)
    }
    assert told == shown
    again = {(each.at.offset, each.key, offset) for each in found for offset in _offsets(each) if not each.is_dated}
    assert again == undated(changes_of(log, range(first, first + length)))


def undated(changes: list[StatusChange]) -> set[tuple[int, object, int]]:
    """Record, share partition and offset of every undated archiving, offset by offset."""
    was_archived: dict[tuple[object, int], bool] = {}
    found: set[tuple[int, object, int]] = set()
    for change in changes:
        for offset in range(change.first_offset, min(change.last_offset, 200) + 1):
            own, is_archived = (change.key, offset), change.after.delivery_state == 4
            if is_archived and change.before.kind == "unknown" and not change.is_dated:
                found |= set() if was_archived.get(own) else {(change.at.offset, *own)}
            if change.after.kind != "unknown":
                was_archived[own] = is_archived
    return found


def _offsets(archiving: ArchivedRange) -> range:
    return range(archiving.first_offset, archiving.last_offset + 1)


def test_an_archived_offset_shown_again_after_a_gap_counts_once() -> None:
    """A snapshot after lost records shows what was archived before, and what was archived meanwhile: only that is new,
    and the time is the latest it can be."""
    life = Coordinator(limit=50)
    life.initialize(KEY)
    life.write(KEY, 0, batch(3, 4, 4, 5))
    life.write(KEY, 0, batch(5, 9, 4, 2))
    life.cool()
    assert isinstance(life.log[3], ShareSnapshot)
    found = [
        (a.first_offset, a.last_offset, a.delivery_count, a.is_dated)
        for a in archived_ranges(changes_of(life.log, range(2, 3)))
    ]
    assert found == [(3, 4, 5, True), (5, 9, 2, False)]


def test_archived_again_after_a_reset_counts_twice() -> None:
    """Two deaths of one record are two archivings."""
    life = Coordinator(limit=50)
    life.initialize(KEY)
    life.write(KEY, 0, batch(3, 3, 4, 5))
    life.initialize(KEY, state_epoch=2, start_offset=0)
    life.write(KEY, 0, batch(3, 3, 4, 2))
    assert [(a.at.offset, a.delivery_count, a.records) for a in archived_ranges(changes_of(life.log))] == [
        (1, 5, 1),
        (3, 2, 1),
    ]


@pytest.mark.parametrize("lost_as_well", [False, True])
@pytest.mark.parametrize("is_deleted", [False, True])
def test_archived_again_after_a_reset_counts_also_where_only_a_snapshot_shows_it(
    is_deleted: bool, lost_as_well: bool
) -> None:
    """After a reset or a deletion, a second death of which only a later snapshot tells is told too; also where the
    first one is followed by a time of which nothing is known."""
    life = Coordinator(limit=50)
    life.initialize(KEY)
    life.write(KEY, 0, batch(3, 3, 4, 5))
    if lost_as_well:
        life.write(KEY, 0, batch(1, 1, 0, 1))
        life.cool()
    if is_deleted:
        life.delete(KEY)
    life.initialize(KEY, state_epoch=2, start_offset=0)
    life.write(KEY, 0, batch(3, 3, 4, 2))
    unseen = {len(life.log) - 1} | ({2} if lost_as_well else set())
    life.cool()
    found = [(a.at.offset, a.delivery_count, a.is_dated) for a in archived_ranges(changes_of(life.log, unseen))]
    assert found == [(1, 5, True), (len(life.log) - 1, 2, False)]


PLACES = (*range(16), LAST_OFFSET - 1, LAST_OFFSET)
"""Offsets to look at: records below speak of the first few, some of the whole range."""

starts = st.one_of(st.none(), st.integers(0, 12))
small = small_records(st.sampled_from(KEYS), starts, batches(high=9, most=3))
tombstones = st.builds(Tombstone, key=st.sampled_from(KEYS))
any_records = st.one_of(small, small, tombstones, records(st.sampled_from(KEYS)))
logs = st.lists(any_records, max_size=9)


def changes_by_record(log: Sequence[StateRecord]) -> list[list[StatusChange]]:
    history = History(0, {})
    return [[*history.record(record, offset=offset, timestamp_ms=offset)] for offset, record in enumerate(log)]


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
    for record, changes in zip(log, changes_by_record(log), strict=True):
        laid.lay(changes)
        states[record.key] = apply(states[record.key], record)
        for place, condition in laid.at.get(record.key, {}).items():
            assert condition == pointwise(states[record.key], place)


@given(logs)
def test_changes_are_the_longest_ranges_that_changed(log: list[StateRecord]) -> None:
    """A record's changes ascend without touching where they are alike; none is without a difference, but for the first
    record of a share partition, which speaks of every offset."""
    for record, changes in zip(log, changes_by_record(log), strict=True):
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
    assert all(change.is_dated for change in changes_of(log))


def told(offset: int, *log: StateRecord) -> list[tuple[StatusEnd | None, Cause | None]]:
    """How each interval of an offset ended, and the cause."""
    intervals = fate_in(log, offset).intervals
    return [(each.ended_by, each.until.cause) for each in intervals if each.until is not None]


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

    assert told(16, *life.log) == [
        (StatusEnd.STARTED, Cause.INITIALIZE),
        (StatusEnd.STARTED, Cause.UPDATE),
        (StatusEnd.CHANGED, Cause.UPDATE),
        (StatusEnd.PASSED, Cause.UPDATE),
        (StatusEnd.RESET, Cause.RESET),
        (StatusEnd.DELETED, Cause.TOMBSTONE),
    ]


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
