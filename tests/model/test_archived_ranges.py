"""What was archived, told once."""

from __future__ import annotations

from collections.abc import Container

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples.coordinator_random_logs import coordinator_logs
from state_topics.coordinator_log import Coordinator, batch, share_partition

from acktrail.model.record_history import ArchivedRange, archived_ranges
from acktrail.model.records import ShareSnapshot, StateRecord
from acktrail.model.status_changes import History, StatusChange

KEY = share_partition()


def changes_of(log: list[StateRecord], lost: Container[int] = ()) -> list[StatusChange]:
    history, found = History(0, {}), list[StatusChange]()
    for at, record in enumerate(log):
        if at in lost:
            found += history.gap(at) if at - 1 not in lost else ()
        else:
            found += history.record(record, offset=at, timestamp_ms=at)
    return found


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
