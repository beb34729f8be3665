"""What the state records of a share group prove of a source and a destination of an expansion.

The start offset is no progress: Kafka moves it with the next write after records are finished. A group that
acknowledged offsets 0 to 59 can stand at start offset 26 for good, with a batch (26, 59, acknowledged) in its state.
So each offset counts by its own status, in the log order of the state topic. Records of two state partitions are
ordered only by the brokers' clocks, which may be `CLOCKS_MS` apart. A first delivery in progress is in no record.

Example: the state of partition 0 has offsets 0 to 59 acknowledged at record 7, partition 2 is first shown at work at
record 9 of the same state partition, and the fence is at 60. No offset below it is open or unknown at record 9: safe.
Had record 7 said (0, 49, acknowledged), offsets 50 to 59 were open at record 9: broken.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from acktrail.model.batches import DeliveryState
from acktrail.model.offset_changes import Cause, OffsetStatus, OffsetStatusKind, RecordPosition, StatusChange
from acktrail_expansion.ordering.order import Judged, NotProven, OrderVerdict, SourceFence, nothing_of

CLOCKS_MS: Final = 5_000
"""How far the clocks of brokers may be apart."""
_K: Final = OffsetStatusKind
_RESTARTS: Final = frozenset({Cause.RESET, Cause.TOMBSTONE})
_PLACED: Final = _RESTARTS | {Cause.INITIALIZE}
"""Causes that move a start offset without any delivery."""
_OPEN_STATES: Final = frozenset({int(DeliveryState.AVAILABLE), int(DeliveryState.ACQUIRED)})
_NOT_THERE: Final = frozenset({_K.ABSENT, _K.UNINITIALIZED})
_PERHAPS: Final = frozenset({_K.RECORDED, _K.UNRECORDED, _K.UNKNOWN})
_BEFORE_ALL: Final = frozenset({_K.ABSENT, _K.UNKNOWN})
_US: Final = 1_000
Changes = Sequence[StatusChange]
"""Those of one share partition, in log order."""


def is_whole(changes: Changes) -> bool:
    """Whether nothing was dropped from the front, and one state partition has them all."""
    return len({each.at.state_partition for each in changes}) == 1 and changes[0].before.kind in _BEFORE_ALL


def first_work(changes: Changes, begins: int, *, is_certain: bool = False) -> StatusChange | None:
    """The first change since the last restart that shows a record at or behind offset `begins` delivered: it has a
    delivery state, or, unless `is_certain`, the start offset moved past it: it follows the start of the log as well,
    and where the state before is not known the group can have been placed there. None: there is none. Cost: O(c)."""
    from_where = frozenset({_K.RECORDED}) if is_certain else _PERHAPS
    for each in changes[_life(changes) :]:
        is_passed = each.after.kind is _K.BELOW_START and each.before.kind in from_where
        if (
            each.at.cause not in _PLACED
            and each.last_offset >= begins
            and (is_passed or each.after.kind is _K.RECORDED)
        ):
            return each
    return None


def _life(changes: Changes) -> int:
    """The place of the first change after the last restart."""
    return 1 + max((index for index, each in enumerate(changes) if each.at.cause in _RESTARTS), default=-1)


def placed_at(changes: Changes) -> tuple[int, RecordPosition] | None:
    """The offset above 0 at which a share partition was placed first, and the state record that shows it; None: it
    began at 0, or what came before is missing. A share partition's first write has the start offset that it was placed
    at, with the batches that were finished since."""
    for change in changes:
        if change.before.kind not in _NOT_THERE or change.at.cause in _RESTARTS:
            return None
        if change.first_offset == 0 and change.after.kind not in _NOT_THERE:
            return (change.last_offset + 1, change.at) if change.after.kind is _K.BELOW_START else None
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Offsets of a source at one record of the state topic: ranges, both ends inclusive, that were open (and whether
    they have a delivery state), whether some are unknown, and the newest change before it."""

    ranges: tuple[tuple[int, int, bool], ...]
    has_unknown: bool
    shown_by: RecordPosition | None


def open_at(changes: Changes, end: int) -> Open:
    """The offsets below `end` as the last of `changes` leave them. Cost: O(c log c)."""
    own = [each for each in changes if each.first_offset < end]
    edges = sorted({0, end, *(edge for each in own for edge in (each.first_offset, min(each.last_offset + 1, end)))})
    status: list[OffsetStatus | None] = [None] * (len(edges) - 1)
    for each in own:
        first, last = bisect_left(edges, each.first_offset), bisect_left(edges, min(each.last_offset + 1, end))
        status[first:last] = [each.after] * (last - first)
    found = [
        (edges[place], edges[place + 1] - 1, each.kind is _K.RECORDED)
        for place, each in enumerate(status)
        if each is not None and _is_open(each)
    ]
    has_unknown = any(each is None or each.kind is _K.UNKNOWN or each.kind in _NOT_THERE for each in status)
    return Open(ranges=tuple(found), has_unknown=has_unknown, shown_by=own[-1].at if own else None)


def _is_open(status: OffsetStatus) -> bool:
    return status.kind is _K.UNRECORDED or (status.kind is _K.RECORDED and status.delivery_state in _OPEN_STATES)


def _until(changes: Changes, at: RecordPosition, slack_ms: int) -> Changes:
    """Those before the record `at`; of another state partition those before its time and `slack_ms`."""
    for index, change in enumerate(changes):
        if change.at.state_partition == at.state_partition:
            is_later = change.at.offset > at.offset
        else:
            is_later = _is_after(change.at.timestamp_ms, at.timestamp_ms, slack_ms)
        if is_later:
            return changes[:index]
    return changes


def _is_after(one: int | None, other: int | None, slack_ms: int) -> bool:
    return one is not None and (other is None or one > other + slack_ms)


def judge_by_records(
    destination: Changes, begins: tuple[int | None, int | None], changes: Changes, source: SourceFence
) -> Judged:
    """Judge by state records. `begins`: from which offset of the destination on a record is perhaps, and for certain,
    from after the expansion (None: not known). `changes`: those of the source.

    What was finished before the first work that is perhaps the beginning is safe; what was open at the first work that
    is the beginning for certain is broken, if it is a record for certain.
    """
    found = nothing_of(source)
    low, high = begins
    if source.low is None or low is None:
        return replace(found, reason=NotProven.NO_FENCE)
    perhaps = first_work(destination, low)
    if perhaps is None:
        is_unknown = destination and destination[-1].after.kind is _K.UNKNOWN
        return replace(found, reason=NotProven.NOT_RECORDED if is_unknown else NotProven.NOT_BEGUN)
    found = replace(found, **_named(perhaps.at, "begun_at", "begun_state"))
    if not (is_whole(destination) and is_whole(changes)):
        return replace(found, reason=NotProven.NOT_RECORDED)
    early = _until(changes, perhaps.at, -CLOCKS_MS)
    placed = [each for each in destination[: _life(destination)] if each.covers(low)]
    is_placed_above = bool(placed) and placed[-1].after.kind is _K.BELOW_START
    if is_placed_above or any(each.at.cause in _RESTARTS for each in changes[len(early) :]):
        return replace(found, reason=NotProven.RESET)
    certain = None if high is None else first_work(destination, high, is_certain=True)
    if certain is not None:
        late = _until(changes, certain.at, CLOCKS_MS)
        meanwhile = late[len(_until(changes, certain.at, -CLOCKS_MS)) :]
        if not any(_K.UNKNOWN in {each.before.kind, each.after.kind} for each in meanwhile):  # it may hide a reset
            found = _broken(found, late, source, certain.at)
    if found.verdict is OrderVerdict.BROKEN:
        return found
    return _safe(found, early, source, is_first=perhaps.before.kind is not _K.UNKNOWN)


def _broken(found: Judged, late: Changes, source: SourceFence, begun: RecordPosition) -> Judged:
    """BROKEN, or what was open that may be no record."""
    state = open_at(late, max(source.low or 0, source.before))
    records = [each for each in state.ranges if _is_record(each, source)]
    if not records:
        return replace(found, source_offset=state.ranges[0][0]) if state.ranges else found
    return replace(
        _shown(found, state),
        **_named(begun, "begun_at", "begun_state"),
        verdict=OrderVerdict.BROKEN,
        open_records=sum(last - first + 1 for first, last, _ in records),
        source_offset=records[0][0],
        last_open=records[-1][1],
    )


def _safe(found: Judged, early: Changes, source: SourceFence, *, is_first: bool) -> Judged:
    """SAFE, or why not. `is_first`: the beginning is shown, and none before it."""
    if source.high is None:
        return replace(found, reason=NotProven.NO_FENCE)
    state = open_at(early, max(source.high, source.before))
    left = [first for first, _, has_state in state.ranges if first < source.high or has_state]
    if not is_first or state.has_unknown:
        return replace(found, reason=NotProven.NOT_RECORDED)
    if not left:
        return _shown(replace(found, verdict=OrderVerdict.SAFE), state)
    if found.source_offset is not None:
        return replace(found, reason=NotProven.NO_RECORD_KNOWN)
    is_between = left[0] >= (source.low or 0)
    return replace(found, reason=NotProven.BETWEEN_FENCES if is_between else NotProven.BETWEEN_LOOKS)


def _is_record(each: tuple[int, int, bool], source: SourceFence) -> bool:
    first, last, has_state = each
    return has_state or source.is_gapless or first <= source.last_record <= last


def _shown(found: Judged, state: Open) -> Judged:
    return replace(found, evidence="state_records", **_named(state.shown_by, "source_shown_at", "source_state"))


def _named(at: RecordPosition | None, instant: str, record: str) -> dict[str, Any]:
    """Columns of a verdict that name a state record."""
    if at is None:
        return {}
    us = None if at.timestamp_ms is None else at.timestamp_ms * _US
    return {instant: us, f"{record}_partition": at.state_partition, f"{record}_offset": at.offset}
