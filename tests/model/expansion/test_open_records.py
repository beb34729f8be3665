"""Open records of an old partition are those of the replayed state, at the record that shows work in a new one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from samples.coordinator_random_logs import KEYS, coordinator_logs

from acktrail.model.delivery import DeliveryState
from acktrail.model.expansion.open_records import first_work, open_records
from acktrail.model.offset_history.offset_status import OffsetStatusKind, StatusRange, status_ranges
from acktrail.model.offset_history.status_changes import Cause, History, RecordPosition, StatusChange
from acktrail.model.records import StateRecord
from acktrail.model.replay import replay

END = 12
FINAL = {int(DeliveryState.ACKNOWLEDGED), int(DeliveryState.ARCHIVED), int(DeliveryState.ARCHIVING)}


def changes_of(log: Sequence[StateRecord], state_partition: int = 3) -> list[StatusChange]:
    """The history of a whole log; its records come one ms apart."""
    history = History(state_partition, {})
    return [
        change for at, record in enumerate(log) for change in history.record(record, offset=at, timestamp_ms=1_000 + at)
    ]


def counted(ranges: Sequence[StatusRange]) -> tuple[int, int]:
    """Offsets below `END` that could be delivered, and those of which nothing is known, one by one."""
    open_now = unknown = 0
    for offset in range(END):
        status = next(own.status for own in ranges if own.first_offset <= offset <= own.last_offset)
        is_recorded = status.kind is OffsetStatusKind.RECORDED
        open_now += status.kind is OffsetStatusKind.UNRECORDED or (is_recorded and status.delivery_state not in FINAL)
        unknown += status.kind in {OffsetStatusKind.UNKNOWN, OffsetStatusKind.ABSENT, OffsetStatusKind.UNINITIALIZED}
    return open_now, unknown


@given(coordinator_logs(), st.integers(0, 30), st.booleans())
def test_they_are_the_replayed_states(log: Sequence[StateRecord], last: int, is_elsewhere: bool) -> None:
    """At any record, of this state partition by offset and of another one by time, the open records are those of
    the state that a replay up to there gives, and the others are finished, below the start offset or unknown."""
    last = min(last, len(log) - 1)
    at = RecordPosition(state_partition=3, offset=last, timestamp_ms=1_000 + last, cause=Cause.UPDATE)
    if is_elsewhere:
        at = replace(at, state_partition=4, offset=77)
    states = replay(log[: last + 1])
    for key in KEYS:
        changes = [change for change in changes_of(log) if change.key == key]
        found = open_records(changes, 0, END, at)
        state = states.get(key)
        expected = counted(status_ranges(OffsetStatusKind.ABSENT if state is None else state))
        assert (found.open_records, found.unknown_records) == expected
        assert (found.first_open is None) == (found.open_records == 0)


@given(coordinator_logs(), st.integers(0, END))
def test_work_is_seen_where_a_record_is_delivered(log: Sequence[StateRecord], begins: int) -> None:
    """The first work is the first record after which an offset from there on has a delivery state, or is below a start
    offset that no initialization, reset or deletion moved."""
    for key in KEYS:
        changes = [change for change in changes_of(log) if change.key == key]
        found = first_work(changes, begins)
        placed = {change.at.offset for change in changes if change.at.cause in {Cause.INITIALIZE, Cause.RESET}}
        seen = [
            offset
            for offset in range(len(log))
            if offset not in placed
            and any(
                change.at.offset == offset
                and change.last_offset >= begins
                and change.after.kind in {OffsetStatusKind.RECORDED, OffsetStatusKind.BELOW_START}
                for change in changes
            )
        ]
        assert (found.offset if found else None) == next(iter(seen), None)
