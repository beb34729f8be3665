"""The status of every offset of a share partition after one record, as ranges that cover all offsets.

After any record every offset from 0 to 2^63-1 has exactly one *status*: a delivery state with its count, or the reason
why it has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from acktrail.model.batches import combine_state_batches
from acktrail.model.replay import SharePartitionState

LAST_OFFSET: Final = 2**63 - 1
"""The highest offset of a topic partition. Other numbers in a state record are not offsets of any record."""


class OffsetStatusKind(StrEnum):
    """The kind of status that an offset has within a share partition."""

    RECORDED = "recorded"
    """It has a delivery state and a delivery count."""
    UNRECORDED = "unrecorded"
    """At or above the start offset, without a delivery state: not delivered yet, or a delivery has not ended."""
    BELOW_START = "below_start"
    """Below the start offset: it is not delivered any more."""
    UNINITIALIZED = "uninitialized"
    """The share partition has no start offset yet."""
    ABSENT = "absent"
    """The share partition does not exist."""
    UNKNOWN = "unknown"
    """The state records about it were not exported, or cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetStatus:
    """The status of an offset; delivery state (Kafka's number) and count only where it is recorded."""

    kind: OffsetStatusKind
    delivery_state: int | None = None
    delivery_count: int | None = None


UNKNOWN: Final = OffsetStatus(kind=OffsetStatusKind.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRange:
    """Offsets `first_offset` to `last_offset`, both inclusive, with one status."""

    first_offset: int
    last_offset: int
    status: OffsetStatus


KnownState = SharePartitionState | Literal[OffsetStatusKind.ABSENT, OffsetStatusKind.UNKNOWN]
"""The state of a share partition, or that it does not exist, or that its state is not known."""


def status_ranges(state: KnownState) -> tuple[StatusRange, ...]:
    """Every offset's status in `state`: ascending ranges from 0 to 2^63-1, neighbours with different status.

    Where only updates were seen (`state_epoch` None) an offset in none of them is unknown, not unrecorded.
    """
    if not isinstance(state, SharePartitionState):
        return (StatusRange(first_offset=0, last_offset=LAST_OFFSET, status=OffsetStatus(kind=state)),)
    start = state.start_offset
    ranges: list[StatusRange] = []
    if start is not None:
        _fill(ranges, start, OffsetStatus(kind=OffsetStatusKind.BELOW_START))
    rest = OffsetStatus(kind=kind_of_rest(state))
    for batch in combine_state_batches(state.batches, (), start):
        first, last = max(batch.first_offset, 0), batch.last_offset
        if first <= last:
            _fill(ranges, first, rest)
            recorded = OffsetStatus(
                kind=OffsetStatusKind.RECORDED,
                delivery_state=batch.delivery_state,
                delivery_count=batch.delivery_count,
            )
            ranges.append(StatusRange(first_offset=first, last_offset=last, status=recorded))
    _fill(ranges, LAST_OFFSET + 1, rest)
    return tuple(ranges)


def kind_of_rest(state: SharePartitionState) -> OffsetStatusKind:
    """The status of offsets at or above the start offset that are in no batch."""
    if state.state_epoch is None:
        return OffsetStatusKind.UNKNOWN
    return OffsetStatusKind.UNINITIALIZED if state.start_offset is None else OffsetStatusKind.UNRECORDED


def differences(
    before: Iterable[StatusRange], after: Iterable[StatusRange], *, all_offsets: bool = False
) -> Iterator[tuple[int, int, OffsetStatus, OffsetStatus]]:
    """First offset, last offset and both statuses of each longest range whose status differs between two coverings; if
    `all_offsets`, also of those whose status is the same.

    Cost: O(n) for n ranges of both.
    """
    olds, news = iter(before), iter(after)
    old, new = next(olds), next(news)
    first = 0
    while first <= LAST_OFFSET:
        last = min(old.last_offset, new.last_offset)
        if all_offsets or old.status != new.status:
            yield first, last, old.status, new.status
        first = last + 1
        if old.last_offset == last:
            old = next(olds, old)
        if new.last_offset == last:
            new = next(news, new)


def _fill(ranges: list[StatusRange], end: int, status: OffsetStatus) -> None:
    """Give `status` to the offsets between the last range and `end`."""
    reached = ranges[-1].last_offset + 1 if ranges else 0
    if reached < end:
        ranges.append(StatusRange(first_offset=reached, last_offset=end - 1, status=status))
