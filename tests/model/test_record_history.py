"""A record's fate: one condition after the other, honest about what is not known; what was archived, told once."""

from __future__ import annotations

from collections.abc import Container
from itertools import pairwise

import pytest
from definitions.status_history import History
from hypothesis import given
from hypothesis import strategies as st
from samples.coordinator_random_logs import coordinator_logs
from state_topics.coordinator_log import Coordinator, batch, share_partition

from acktrail.model.record_history import ArchivedRange, RecordHistory, archived_ranges, record_history
from acktrail.model.records import ShareSnapshot, StateRecord
from acktrail.model.status_changes import OffsetStatusKind, StatusChange, UnknownReason

KEY = share_partition()


def changes_of(log: list[StateRecord], lost: Container[int] = ()) -> list[StatusChange]:
    history, found = History(0, {}), list[StatusChange]()
    for at, record in enumerate(log):
        if at in lost:
            found += history.gap(at) if at - 1 not in lost else ()
        else:
            found += history.record(record, offset=at, timestamp_ms=at)
    return found


def fate_in(log: list[StateRecord], offset: int, *, missing: range = range(0), first: int = 0) -> RecordHistory:
    """The fate of `offset` in the share partition of a log; `first`: the offset of its first exported record."""
    history, changes = History(0, {}), list[StatusChange]()
    for at, record in enumerate(log):
        if at < first or at in missing:
            changes += history.gap(at) if missing and at == missing[0] else ()
        elif record.key == KEY:
            changes += history.record(record, offset=at, timestamp_ms=at)
    found = record_history(offset, changes)
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
    """A group that starts above a record says nothing of it."""
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
    found = fate_in(life.log, 7, missing=range(2, 4))
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
