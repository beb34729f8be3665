"""What a group last did with each record, against a fold offset by offset."""

from __future__ import annotations

from collections.abc import Sequence

from definitions.status_history import History, change_table
from hypothesis import given
from hypothesis import strategies as st
from samples.coordinator_random_logs import KEYS, coordinator_logs

from acktrail.model.record_history import joined
from acktrail.model.records import StateRecord
from acktrail.model.status_changes import OffsetStatusKind, StatusChange
from acktrail.reconcile.past.settled_history import SettledCounts, by_share_partition, settled_counts, settled_filter

_SETTLED = (2, 4)
OFFSETS = 40


def history_of(log: Sequence[StateRecord], begin: int = 0, gap: tuple[int, int] = (0, 0)) -> list[StatusChange]:
    """The changes of the records of a log from `begin` on, without those in `gap`."""
    history = History(0, {})
    found: list[StatusChange] = []
    for offset, record in enumerate(log):
        if offset < begin or gap[0] < offset < gap[1]:
            continue
        if offset == gap[0] and gap[1] > offset + 1:
            found += history.gap(offset)
            continue
        found += history.record(record, offset=offset, timestamp_ms=1000 + offset)
    return found


def one_by_one(changes: Sequence[StatusChange], first: int, last: int) -> tuple[int, int, int]:
    """Acknowledged, archived and unknown, counted offset by offset in the order of the records."""
    acknowledged = archived = unknown = 0
    for offset in range(first, last + 1):
        own = [change for change in changes if change.covers(offset)]
        state, is_known = None, bool(own)
        for change in own:
            if change.after.kind is OffsetStatusKind.UNKNOWN:
                is_known = False
            elif change.before.kind is OffsetStatusKind.UNKNOWN:
                is_known = change.after.kind is not OffsetStatusKind.BELOW_START
            if change.after.delivery_state in _SETTLED:
                state, is_known = change.after.delivery_state, True
        acknowledged += state == 2
        archived += state == 4
        unknown += not is_known
    return acknowledged, archived, unknown


@given(coordinator_logs(), st.integers(0, 3), st.tuples(st.integers(0, 12), st.integers(0, 12)), st.data())
def test_counts_are_those_counted_one_by_one(
    log: list[StateRecord], begin: int, gap: tuple[int, int], data: st.DataObject
) -> None:
    """For any life of share partitions, cut anywhere at its beginning and with a gap: the same three numbers."""
    first = data.draw(st.integers(0, OFFSETS))
    last = data.draw(st.integers(first, OFFSETS))
    changes = history_of(log, begin, gap)
    rows = dict(by_share_partition(change_table(changes).filter(settled_filter())))
    for key in KEYS:
        own = [change for change in changes if change.key == key]
        table = rows.get((key.group_id, key.topic_id, key.partition))
        if table is None:
            assert not own
            continue
        found = settled_counts(table, first, last)
        assert (found.acknowledged, found.archived, found.unknown) == one_by_one(own, first, last)


@given(coordinator_logs(), st.data())
def test_what_was_archived_is_counted_wherever_the_start_offset_went(
    log: list[StateRecord], data: st.DataObject
) -> None:
    """From a share partition's beginning on nothing is unknown, and the archived are those that a record archived and
    none acknowledged later: resets, their undoing and deletions do not take them away."""
    key = data.draw(st.sampled_from(KEYS))
    last_state: dict[int, int] = {}
    for record in log:
        if record.key == key:
            for batch in getattr(record, "batches", ()):
                for offset in range(batch.first_offset, batch.last_offset + 1):
                    if batch.delivery_state in _SETTLED:
                        last_state[offset] = batch.delivery_state
    rows = dict(by_share_partition(change_table(history_of(log)).filter(settled_filter())))
    table = rows.get((key.group_id, key.topic_id, key.partition))
    if table is None:
        assert not last_state
        return
    found = settled_counts(table, 0, OFFSETS)
    states = list(last_state.values())
    assert found == SettledCounts(
        acknowledged=states.count(2), archived=states.count(4), unknown=0, since_ms=found.since_ms
    )
    assert found.since_ms is not None
    hidden = sorted(data.draw(st.sets(st.integers(0, OFFSETS))))
    rest = settled_counts(table, 0, OFFSETS, hidden=joined((offset, offset) for offset in hidden))
    seen = [state for offset, state in last_state.items() if offset not in hidden]
    assert (rest.acknowledged, rest.archived, rest.unknown) == (seen.count(2), seen.count(4), 0)


@given(coordinator_logs(), st.integers(0, 14))
def test_an_unattributed_record_leaves_a_doubt(log: list[StateRecord], doubt: int) -> None:
    """Of an unreadable record that may be about the share partition: only what was settled after it is known."""
    changes = history_of(log)
    for key in KEYS:
        own = [change for change in changes if change.key == key]
        for _, table in by_share_partition(change_table(own).filter(settled_filter())):
            later = sum(
                any(c.covers(o) and c.at.offset >= doubt and c.after.delivery_state in _SETTLED for c in own)
                for o in range(OFFSETS + 1)
            )
            assert settled_counts(table, 0, OFFSETS, doubts=[doubt]).unknown == OFFSETS + 1 - later
            assert settled_counts(table, 0, OFFSETS, doubts=[]).unknown == 0
