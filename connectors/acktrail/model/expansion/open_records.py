"""What a share group had left of an old partition when it is first seen at work in one that keys moved to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from acktrail.model.delivery import DeliveryState
from acktrail.model.offset_history.offset_status import OffsetStatus, OffsetStatusKind
from acktrail.model.offset_history.record_history import status_intervals
from acktrail.model.offset_history.status_changes import Cause, RecordPosition, StatusChange

_PLACED: Final = frozenset({Cause.INITIALIZE, Cause.RESET, Cause.TOMBSTONE})
"""Causes that move a start offset without any delivery."""
_OPEN_STATES: Final = frozenset({int(DeliveryState.AVAILABLE), int(DeliveryState.ACQUIRED)})
_UNKNOWN_KINDS: Final = frozenset({OffsetStatusKind.UNKNOWN, OffsetStatusKind.UNINITIALIZED, OffsetStatusKind.ABSENT})


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRecords:
    """Records of a source from before an expansion, as the state records up to a time have them: `open_records` could
    still be delivered, the first at offset `first_open` (None: none); of `unknown_records` the state is not known.
    What is in neither was finished, or below the start offset."""

    open_records: int
    unknown_records: int
    first_open: int | None


def first_work(changes: Iterable[StatusChange], begins: int) -> RecordPosition | None:
    """The first state record that shows a record at or behind offset `begins` delivered: it has a delivery state, or
    the start offset moved past it. `changes`: those of one share partition, in log order. None: no such state record
    is known. A delivery in progress is in no state record, so that the work may have begun earlier. Cost: O(c)."""
    for change in changes:
        if change.at.cause in _PLACED or change.last_offset < begins:
            continue
        if change.after.kind is OffsetStatusKind.RECORDED or _is_passed(change):
            return change.at
    return None


def _is_passed(change: StatusChange) -> bool:
    return change.after.kind is OffsetStatusKind.BELOW_START and change.before.kind in {
        OffsetStatusKind.RECORDED,
        OffsetStatusKind.UNRECORDED,
    }


def open_records(changes: Sequence[StatusChange], first: int, end: int, at: RecordPosition) -> OpenRecords:
    """Count the offsets from `first` to before `end` by their status at the time of the state record `at`.

    `changes`: those of the source's share partition, in log order. On the state partition of `at` those before it
    count, on another one those before the first with a later time, by the brokers' clocks: state partitions have no
    common order. A count of open records is then a lower bound, as a change in the same millisecond is taken for the
    earlier one. Cost: O(c log c) for c changes.
    """
    found: list[tuple[int, int, OffsetStatus]] = [
        (max(each.first_offset, first), min(each.last_offset + 1, end), each.status)
        for each in status_intervals(_until(changes, at))
        if each.until is None and each.first_offset < end and each.last_offset >= first
    ]
    if not found:
        return OpenRecords(open_records=0, unknown_records=max(0, end - first), first_open=None)
    opened = [(low, high) for low, high, status in found if _is_open(status)]
    return OpenRecords(
        open_records=sum(high - low for low, high in opened),
        unknown_records=sum(high - low for low, high, status in found if status.kind in _UNKNOWN_KINDS),
        first_open=min((low for low, _ in opened), default=None),
    )


def _until(changes: Sequence[StatusChange], at: RecordPosition) -> Sequence[StatusChange]:
    for index, change in enumerate(changes):
        if change.at.state_partition == at.state_partition:
            is_later = change.at.offset > at.offset
        else:
            is_later = _is_after(change.at.timestamp_ms, at.timestamp_ms)
        if is_later:
            return changes[:index]
    return changes


def _is_after(one: int | None, other: int | None) -> bool:
    return one is not None and other is not None and one > other


def _is_open(status: OffsetStatus) -> bool:
    if status.kind is OffsetStatusKind.UNRECORDED:
        return True
    return status.kind is OffsetStatusKind.RECORDED and status.delivery_state in _OPEN_STATES
