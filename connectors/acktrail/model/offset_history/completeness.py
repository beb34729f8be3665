"""What a history lacks: the state records that were not exported or cannot be read, and their times.

A history answers only from the records that it has. `HistoryCompleteness` lists the records that it lacks, so that an
answer can say "at least" instead of passing for the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from acktrail.model.offset_history.offset_status import OffsetStatusKind
from acktrail.model.offset_history.record_history import UnknownReason
from acktrail.model.offset_history.status_changes import RecordPosition, StatusChange
from acktrail.model.offset_history.status_intervals import StatusInterval, status_intervals
from acktrail.model.offset_ranges import OffsetRanges
from acktrail.model.share_partition import SharePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingRecords:
    """State records of one state partition that the history of a share partition lacks.

    Attributes:
        key: the share partition; None: every share partition of the state partition.
        reason: ``EARLIER`` (written before the export began), ``GAP`` (pruned before they were exported) or
            ``UNREADABLE``.
        first_record: offset of the first one in the state partition; None: not known (``EARLIER``).
        last_record: offset of the last one, inclusive; None: not known.
        after_ms: broker's time of the last record before them, in ms; None: not known, any time before `until`.
        until: the next state record that has the whole state of the share partition; None: there is none yet.
    """

    key: SharePartition | None
    state_partition: int
    reason: UnknownReason
    first_record: int | None = None
    last_record: int | None = None
    after_ms: int | None = None
    until: RecordPosition | None = None

    def touches(self, since_ms: int | None = None, until_ms: int | None = None) -> bool:
        """Whether their changes may have happened at or after `since_ms` and before `until_ms` (ms)."""
        ended = None if self.until is None else self.until.timestamp_ms
        is_before = since_ms is not None and ended is not None and ended < since_ms
        is_after = until_ms is not None and self.after_ms is not None and self.after_ms >= until_ms
        return not (is_before or is_after)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCompleteness:
    """What the history of some share partitions lacks in a period.

    `is_current`: every exported state record is in the history. `state_partitions`: those with records of each share
    partition.
    """

    missing: tuple[MissingRecords, ...]
    is_current: bool
    state_partitions: Mapping[SharePartition, frozenset[int]]

    @property
    def is_complete(self) -> bool:
        """Whether a count from the history is exact; otherwise it is a lower bound."""
        return self.is_current and not self.missing

    @property
    def known_from(self) -> RecordPosition | None:
        """The record from which on all share partitions are known; None: each is known from its beginning, or one is
        not known yet."""
        begun = [each.until for each in self.missing if each.reason is UnknownReason.EARLIER]
        known = [evidence for evidence in begun if evidence is not None]
        return max(known, key=_time) if known and len(known) == len(begun) else None

    def keys_on(self, state_partition: int) -> tuple[SharePartition, ...]:
        """The share partitions that have records on a state partition."""
        return tuple(key for key, places in self.state_partitions.items() if state_partition in places)

    def of(self, key: SharePartition) -> HistoryCompleteness:
        """What the history of one share partition lacks."""
        places = self.state_partitions.get(key, frozenset())
        own = (
            each for each in self.missing if each.key == key or (each.key is None and each.state_partition in places)
        )
        return replace(self, missing=tuple(own), state_partitions={key: places})

    def within(self, since_ms: int | None = None, until_ms: int | None = None) -> HistoryCompleteness:
        """What it lacks of the time at or after `since_ms` and before `until_ms`."""
        return replace(self, missing=tuple(each for each in self.missing if each.touches(since_ms, until_ms)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LastKnownState:
    """The last known delivery state of offsets `first_offset` to `last_offset`, both inclusive.

    Attributes:
        known: the newest interval in which they had a delivery state (``RECORDED``), or had none since the state was
            last started (``UNRECORDED``); None: there is none.
        lacking: an unknown interval after `known` (``UNKNOWN``), in which the state may have changed; None: `known` is
            certain.
    """

    first_offset: int
    last_offset: int
    known: StatusInterval | None
    lacking: StatusInterval | None

    @property
    def records(self) -> int:
        """How many offsets."""
        return self.last_offset - self.first_offset + 1


def last_known_states(changes: Iterable[StatusChange], first: int, last: int) -> tuple[LastKnownState, ...]:
    """The newest delivery state that each offset from `first` to `last` (inclusive) had.

    Ascending pieces; offsets without a piece were never in scope of the group. Statuses without a delivery state are
    skipped: that the start offset moved past an offset, that the share partition was deleted.

    Args:
        changes: those of one share partition on one state partition that share an offset with the range, in log order.
    """
    settled, doubted = OffsetRanges(), OffsetRanges()
    known, lacking = list[_Piece](), list[_Piece]()
    for interval in reversed(status_intervals(changes)):
        begin, end = max(interval.first_offset, first), min(interval.last_offset, last)
        standing = interval.status.kind
        if standing in _SKIPPED or begin > end:
            continue
        fresh = list(settled.outside(begin, end))
        if standing is not OffsetStatusKind.UNKNOWN:
            known.extend((*piece, interval) for piece in fresh)
            settled.add(begin, end)
            continue
        for piece in fresh:
            lacking.extend((*rest, interval) for rest in list(doubted.outside(*piece)))
            doubted.add(*piece)
    return tuple(_cut_at_edges(sorted(known, key=_begin), sorted(lacking, key=_begin)))


_Piece = tuple[int, int, StatusInterval]
_SKIPPED = frozenset({OffsetStatusKind.BELOW_START, OffsetStatusKind.ABSENT, OffsetStatusKind.UNINITIALIZED})


def _cut_at_edges(known: Sequence[_Piece], lacking: Sequence[_Piece]) -> Iterator[LastKnownState]:
    """Both, each ascending and without an overlap in itself, cut at each other's edges."""
    edges = sorted({edge for first, last, _ in (*known, *lacking) for edge in (first, last + 1)})
    knowns, lackings = _Cursor(known), _Cursor(lacking)
    for first, after in pairwise(edges):
        state, doubt = knowns.at(first), lackings.at(first)
        if state is not None or doubt is not None:
            yield LastKnownState(first_offset=first, last_offset=after - 1, known=state, lacking=doubt)


class _Cursor:
    """Finds the piece at an offset among ascending pieces; offsets must ascend from call to call."""

    def __init__(self, pieces: Sequence[_Piece]) -> None:
        self._pieces = pieces
        self._next = 0

    def at(self, offset: int) -> StatusInterval | None:
        while self._next < len(self._pieces) and self._pieces[self._next][1] < offset:
            self._next += 1
        if self._next == len(self._pieces) or self._pieces[self._next][0] > offset:
            return None
        return self._pieces[self._next][2]


def _begin(piece: _Piece) -> int:
    return piece[0]


def _time(evidence: RecordPosition) -> tuple[int, int, int]:
    return (evidence.timestamp_ms or 0, evidence.state_partition, evidence.offset)
