"""The delivery states of one share partition as ranges of offsets that updates change in place: fast ``History``.

An update has a few batches, a state hundreds. ``History`` compares the whole state before and after each record; this
visits only the ranges that the update overlaps. Both give the same changes and the same state
(``tests/model/test_status_marks.py``).

A *mark* is an offset's status as one integer: of two recorded ones the greater mark wins, as in
``combine_state_batches`` (delivery count first, then delivery state); all other statuses are less than these.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Self

from acktrail.model.batches import combine_state_batches
from acktrail.model.delivery import StateBatch
from acktrail.model.offset_history.offset_status import OffsetStatus, OffsetStatusKind, kind_of_rest
from acktrail.model.replay import SharePartitionState

UNRECORDED_KINDS: Final = tuple(kind for kind in OffsetStatusKind if kind is not OffsetStatusKind.RECORDED)
"""The kinds of status without a delivery state; the mark of ``STANDINGS[n]`` is ``LEAST_RECORDED - 1 - n``."""

LEAST_RECORDED: Final = -(1 << 24)
"""Lower bound of recorded marks: counts have 16 bits, states 8."""

_Range = tuple[int, int, int]
"""First and last offset, and a mark."""

_STATES: Final = 256
_NO_STATE: Final = 128  # added to a state, so that negative ones come first


def mark(delivery_state: int, delivery_count: int) -> int:
    """The mark of a recorded status."""
    return delivery_count * _STATES + delivery_state + _NO_STATE


def mark_of_status(status: OffsetStatus) -> int:
    """The mark of any status."""
    if status.delivery_state is None or status.delivery_count is None:
        return _MARKS[status.kind]
    return mark(status.delivery_state, status.delivery_count)


_MARKS: Final[dict[OffsetStatusKind, int]] = {
    standing: LEAST_RECORDED - 1 - number for number, standing in enumerate(UNRECORDED_KINDS)
}
_BELOW_START: Final = _MARKS[OffsetStatusKind.BELOW_START]


class OffsetMarks:
    """A state and the updates since: `firsts`, `lasts` and `marks` are disjoint ascending ranges, as short a list as
    covers them; offsets at or above the start offset outside of them have the mark `rest`."""

    __slots__ = ("_base", "_complete", "_firsts", "_is_changed", "_lasts", "_leader", "_marks", "_rest", "_start")

    def __init__(self, base: SharePartitionState, batches: Sequence[StateBatch]) -> None:
        self._base = base
        self._start, self._leader = base.start_offset, base.leader_epoch
        self._complete = base.delivery_complete_count
        self._firsts = [batch.first_offset for batch in batches]
        self._lasts = [batch.last_offset for batch in batches]
        self._marks = [mark(batch.delivery_state, batch.delivery_count) for batch in batches]
        self._rest = _MARKS[kind_of_rest(base)]
        self._is_changed = False

    @classmethod
    def of(cls, state: SharePartitionState) -> Self | None:
        """The marks of `state`; None where brokers never write such a state (inverted batches, negative offsets), since
        marks cannot represent it."""
        if state.start_offset is not None and state.start_offset < 0:
            return None
        if any(batch.first_offset < 0 or batch.last_offset < batch.first_offset for batch in state.batches):
            return None
        return cls(state, combine_state_batches(state.batches, (), state.start_offset))

    @property
    def state(self) -> SharePartitionState:
        """The state after all updates."""
        if not self._is_changed:
            return self._base
        ranges = zip(self._firsts, self._lasts, (divmod(number, _STATES) for number in self._marks), strict=True)
        return replace(
            self._base,
            leader_epoch=self._leader,
            start_offset=self._start,
            delivery_complete_count=self._complete,
            batches=tuple(
                StateBatch(first_offset=first, last_offset=last, delivery_state=state - _NO_STATE, delivery_count=count)
                for first, last, (count, state) in ranges
            ),
        )

    def update(
        self,
        start: int | None,
        leader: int | None,
        complete: int | None,
        firsts: Sequence[int],
        lasts: Sequence[int],
        marks: Sequence[int],
        changes: list[int],
    ) -> bool:
        """Apply an update with these batches.

        Args:
            start, leader, complete: start offset and leader epoch (None: unchanged), delivery complete count.
            changes: gets first offset, last offset, mark before and mark after of each change, ascending.

        Returns:
            False, without an effect, for updates that brokers never write: the start offset goes back or is the first
            one, or batches do not ascend, overlap or are inverted.
        """
        old_start = self._start
        if start is not None and start != old_start and (old_start is None or start < old_start):
            return False
        own = _joined(firsts, lasts, marks)
        if own is None:
            return False
        self._is_changed = True
        self._complete = complete
        if leader is not None:
            self._leader = leader
        if start is not None and start != old_start:
            self._pass(start, changes)
        low = self._start
        for first, last, number in own:
            if low is None or first >= low:
                self._apply(first, last, number, changes)
            elif last >= low:
                self._apply(low, last, number, changes)
        return True

    def _pass(self, start: int, changes: list[int]) -> None:
        """Move the start offset forward to `start`."""
        firsts, lasts, marks = self._firsts, self._lasts, self._marks
        position, passed = self._start or 0, 0
        while passed < len(firsts) and firsts[passed] < start:
            first, last = firsts[passed], lasts[passed]
            if position < first:
                changes += (position, first - 1, self._rest, _BELOW_START)
            if last >= start:
                changes += (first, start - 1, marks[passed], _BELOW_START)
                firsts[passed] = position = start
                break
            changes += (first, last, marks[passed], _BELOW_START)
            position = last + 1
            passed += 1
        if position < start:
            changes += (position, start - 1, self._rest, _BELOW_START)
        del firsts[:passed], lasts[:passed], marks[:passed]
        self._start = start

    def _apply(self, first: int, last: int, number: int, changes: list[int]) -> None:
        """Apply one batch to the ranges."""
        firsts, lasts, marks = self._firsts, self._lasts, self._marks
        begin = end = bisect_left(lasts, first)
        pieces: list[_Range] = []
        if begin < len(firsts) and firsts[begin] < first:
            pieces.append((firsts[begin], first - 1, marks[begin]))
        position = first
        while position <= last:
            reached, before, end = self._piece(position, last, end)
            after = max(before, number)
            if after != before:
                changes += (position, reached, before, after)
            _add(pieces, position, reached, after)
            position = reached + 1
        if end < len(firsts) and firsts[end] <= last:
            _add(pieces, last + 1, lasts[end], marks[end])
            end += 1
        self._put(begin, end, pieces)

    def _piece(self, position: int, last: int, at: int) -> tuple[int, int, int]:
        """How far, at most to `last`, offsets from `position` on have one mark; the mark; and the index of the range
        that comes next, which was `at`."""
        if at == len(self._firsts) or self._firsts[at] > last:
            return last, self._rest, at
        if self._firsts[at] > position:
            return self._firsts[at] - 1, self._rest, at
        reached = self._lasts[at]
        return (last, self._marks[at], at) if reached > last else (reached, self._marks[at], at + 1)

    def _put(self, begin: int, end: int, pieces: list[_Range]) -> None:
        """Replace the ranges from `begin` to before `end` by `pieces`, joined with equal neighbours."""
        firsts, lasts, marks = self._firsts, self._lasts, self._marks
        if begin and lasts[begin - 1] + 1 == pieces[0][0] and marks[begin - 1] == pieces[0][2]:
            begin -= 1
            pieces[0] = (firsts[begin], pieces[0][1], pieces[0][2])
        if end < len(firsts) and pieces[-1][1] + 1 == firsts[end] and marks[end] == pieces[-1][2]:
            pieces[-1] = (pieces[-1][0], lasts[end], pieces[-1][2])
            end += 1
        firsts[begin:end] = [piece[0] for piece in pieces]
        lasts[begin:end] = [piece[1] for piece in pieces]
        marks[begin:end] = [piece[2] for piece in pieces]


def _joined(firsts: Sequence[int], lasts: Sequence[int], marks: Sequence[int]) -> list[_Range] | None:
    """The batches as ranges, neighbours with one mark as one; None where they do not ascend, overlap, are inverted or
    below 0."""
    ranges: list[_Range] = []
    reached = -1
    for first, last, number in zip(firsts, lasts, marks, strict=True):
        if first <= reached or last < first:
            return None
        if ranges and first == reached + 1 and ranges[-1][2] == number:
            ranges[-1] = (ranges[-1][0], last, number)
        else:
            ranges.append((first, last, number))
        reached = last
    return ranges


def _add(pieces: list[_Range], first: int, last: int, number: int) -> None:
    """Add a range that begins where the last one of `pieces` ends; one with the same mark becomes a part of it."""
    if pieces and pieces[-1][2] == number:
        pieces[-1] = (pieces[-1][0], last, number)
    else:
        pieces.append((first, last, number))
