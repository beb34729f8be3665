"""How long every offset kept one status, and what ended it: the changes applied in order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import attrgetter
from typing import Final

from acktrail.model.offset_history.offset_status import LAST_OFFSET, OffsetStatus, OffsetStatusKind
from acktrail.model.offset_history.status_changes import Cause, RecordPosition, StatusChange


class StatusEnd(StrEnum):
    """How an interval ended."""

    CHANGED = "changed"
    """Another delivery state or delivery count was recorded."""
    PASSED = "passed"
    """The start offset moved past it."""
    STARTED = "started"
    """The share partition was created, or got its start offset."""
    REWOUND = "rewound"
    """The start offset went back below it."""
    RESET = "reset"
    """The state was started again."""
    DROPPED = "dropped"
    """A snapshot does not have it any more."""
    DELETED = "deleted"
    """The state was deleted, with the group, the topic or the offsets."""
    LOST = "lost"
    """The next records were not exported, or cannot be read."""
    SHOWN = "shown"
    """It became known again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusInterval:
    """Offsets `first_offset` to `last_offset` with one status, from the record `since` to the one before `until`.

    `since` None: from before the first known record. `is_dated`: it began with `since`; otherwise that record only
    shows what may have begun before. `until` and `ended_by` None: it has not ended.
    """

    first_offset: int
    last_offset: int
    status: OffsetStatus
    since: RecordPosition | None
    is_dated: bool
    until: RecordPosition | None = None
    ended_by: StatusEnd | None = None


def status_intervals(changes: Iterable[StatusChange]) -> tuple[StatusInterval, ...]:
    """The intervals between the changes of one share partition (in log order), ascending by `since`, then offset.

    The invariant: they cover offsets and time, so that any offset has exactly one at any record. No changes, no
    intervals.
    Cost: O(c * log n + m) for c changes, n open intervals and m intervals made.
    """
    open_now: list[StatusInterval] = []
    closed: list[StatusInterval] = []
    for change in changes:
        if not open_now:
            whole = StatusInterval(
                first_offset=0, last_offset=LAST_OFFSET, status=change.before, since=None, is_dated=False
            )
            open_now.append(whole)
        _cut(open_now, change.first_offset)
        _cut(open_now, change.last_offset + 1)
        begin, end = (bisect_left(open_now, edge, key=_FIRST) for edge in (change.first_offset, change.last_offset + 1))
        how = _status_end(change)
        closed.extend(replace(piece, until=change.at, ended_by=how) for piece in open_now[begin:end])
        begun = StatusInterval(
            first_offset=change.first_offset,
            last_offset=change.last_offset,
            status=change.after,
            since=change.at,
            is_dated=change.is_dated,
        )
        open_now[begin:end] = [begun]
    every = (*closed, *open_now)
    return tuple(sorted(every, key=lambda own: (-1 if own.since is None else own.since.offset, own.first_offset)))


def _status_end(change: StatusChange) -> StatusEnd:
    """How the status before `change` ended."""
    return (
        _OF_CAUSE.get(change.at.cause)
        or _FROM_NOTHING.get(change.before.kind)
        or _OF_STANDING.get(change.after.kind)
        or _NO_MORE.get(change.before.kind, StatusEnd.STARTED)
    )


_FIRST: Final = attrgetter("first_offset")

_OF_CAUSE: Final = {
    Cause.GAP: StatusEnd.LOST,
    Cause.UNREADABLE: StatusEnd.LOST,
    Cause.INITIALIZE: StatusEnd.STARTED,
    Cause.RESET: StatusEnd.RESET,
    Cause.TOMBSTONE: StatusEnd.DELETED,
}

_FROM_NOTHING: Final = {
    OffsetStatusKind.UNKNOWN: StatusEnd.SHOWN,
    OffsetStatusKind.ABSENT: StatusEnd.STARTED,
    OffsetStatusKind.UNINITIALIZED: StatusEnd.STARTED,
}

_OF_STANDING: Final = {OffsetStatusKind.RECORDED: StatusEnd.CHANGED, OffsetStatusKind.BELOW_START: StatusEnd.PASSED}
"""By the status after."""

_NO_MORE: Final = {OffsetStatusKind.RECORDED: StatusEnd.DROPPED, OffsetStatusKind.BELOW_START: StatusEnd.REWOUND}
"""By the status before, where the offset afterwards is at or above the start offset without a delivery state."""


def _cut(pieces: list[StatusInterval], edge: int) -> None:
    """Split the piece that contains `edge`, so that one begins there."""
    if not 0 < edge <= LAST_OFFSET:
        return
    index = bisect_left(pieces, edge, key=_FIRST)
    if index == len(pieces) or pieces[index].first_offset != edge:
        piece = pieces[index - 1]
        pieces[index - 1 : index] = [replace(piece, last_offset=edge - 1), replace(piece, first_offset=edge)]
