"""What a reset means for the records of one key, where the partitions of their topic became more. Pure.

Judged is where a group will be in every partition of the topic: the targets of the reset, and its places elsewhere. A
source that starts before an expansion delivers records again whose successors are in its destinations.

Example: from 2 to 4 partitions keys moved from 0 to 2. In partition 0 the records from before end at offset 1,000. A
group set to 500 there, and left at 50 in partition 2, gets old records of these keys after newer ones.

    >>> doubled = FencedExpansion(2, 4, KeyMapping.MURMUR2, {0: (1000, 1000)})
    >>> places = {0: GroupPlace(first=500), 1: GroupPlace(first=9, end=9), 2: GroupPlace(first=50)}
    >>> print(*check_reset(places, [doubled], {0}))
    partition 0 starts before the expansion from 2 to 4, but partition 2 keeps records from after it
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import gcd
from typing import Final, NamedTuple

from acktrail_expansion.ordering.order import KeyMapping

Fence = tuple[int | None, int | None]
"""Between which offsets the last record of a partition from before an expansion lies; None: not known."""
_NO_FENCE: Final = (None, None)
_SHOWN: Final = 8


class ResetOrdering(StrEnum):
    """Why a reset is not simply accepted, the worst first, as notices name it."""

    REJECT = "order_broken"
    """Records from before an expansion are delivered again after records from behind it are done."""
    UNCERTAIN = "order_uncertain"
    """A place lies between the ends of a fence, or a fence or a place is not known."""
    WARN_NEEDS_GATE = "order_needs_gate"
    """Offsets that fit together; the order is kept only if the destinations wait until the sources are finished."""


_WORST_FIRST: Final = tuple(ResetOrdering)


class FencedExpansion(NamedTuple):
    """One expansion of a topic, with the fences that are known of the partitions from before. `is_single` False:
    another count may have been in between."""

    old_count: int
    new_count: int
    mapping: KeyMapping
    fences: Mapping[int, Fence]
    is_single: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlace:
    """Where a group is in a partition: its first unfinished record is at `first`, or (`is_exact` False) there or later.

    `given`: it was given nothing from this offset on, where that is above `first`; None: not known. `start` and `end`
    are those of the log; `end` None: not known.
    """

    first: int
    is_exact: bool = True
    given: int | None = 0
    start: int = 0
    end: int | None = None

    def is_before(self, fence: Fence) -> bool | None:
        """Whether something from before the fence is delivered from here on; None: not known."""
        first, (low, high) = max(self.first, self.start), fence
        if (self.end is not None and first >= self.end) or (high is not None and first >= high):
            return False
        return True if self.is_exact and low is not None and first < low else None

    def has_begun(self, fence: Fence) -> bool | None:
        """Whether the group was given a record at or after the fence, an offset between two bounds. None: not known."""
        given, (low, high) = max(self.first, self.given or 0), fence
        if high is not None and given > high:
            return True
        return False if self.given is not None and low is not None and given <= low else None


_NOWHERE: Final = GroupPlace(first=0, is_exact=False, given=None)
Places = Mapping[int, GroupPlace]


class ResetReason(NamedTuple):
    """Why a reset is not simply accepted: `sources` start before the expansion `left`, or perhaps, and what that means
    for `destinations`; both ascending."""

    order: ResetOrdering
    left: FencedExpansion
    sources: list[int]
    destinations: list[int]

    def __str__(self) -> str:
        """One sentence, with the first partitions."""
        start = "start" if len(self.sources) > 1 else "starts"
        keep = "keep" if len(self.destinations) > 1 else "keeps"
        reached, before = names(self.destinations), f"before the expansion from {self.left[0]} to {self.left[1]}"
        said = {
            ResetOrdering.REJECT: f"{start} {before}, but {reached} {keep} records from after it",
            ResetOrdering.UNCERTAIN: f"{start} perhaps {before}, which {reached} may have passed",
            ResetOrdering.WARN_NEEDS_GATE: f"{start} {before}: to be finished before {reached} may be delivered",
        }
        return f"{names(self.sources)} {said[self.order]}"


def names(partitions: Sequence[int]) -> str:
    """Partitions for people.

    >>> names([2]), names(range(11))
    ('partition 2', 'partitions 0, 1, 2, 3, 4, 5, 6, 7 and 3 more')
    """
    more = f" and {len(partitions) - _SHOWN} more" if len(partitions) > _SHOWN else ""
    return f"partition{'s' * (len(partitions) > 1)} {', '.join(map(str, partitions[:_SHOWN]))}{more}"


def check_reset(
    places: Places, expansions: Sequence[FencedExpansion], touched: Collection[int]
) -> Iterator[ResetReason]:
    """Why a group that will be at `places` in all partitions of a topic may not get the records of each key in order,
    by the topic's `expansions`, oldest first. Nothing: it gets them so. Only what has a source or a destination in
    `touched` counts.

    A key whose partition was q by an old count can be in p by a later one where both leave the same remainder by the
    greatest common divisor of the counts. Where a count lies in between, or may have been hidden, the key can have had
    records there first, so that the order is broken perhaps.
    """
    for index, left in enumerate(expansions):
        judged = _judged(places, expansions[index:], frozenset(touched))
        found = sorted(judged, key=lambda each: -_WORST_FIRST.index(each.order))
        worst = {each.destination: each for each in found}
        for order in ResetOrdering:
            alike = [each for each in worst.values() if each.order is order]
            if alike:
                sources: frozenset[int] = frozenset().union(*(each.sources for each in alike))
                yield ResetReason(order, left, sorted(sources), sorted(each.destination for each in alike))


class _Judged(NamedTuple):
    """What unfinished `sources` mean for one destination."""

    order: ResetOrdering
    sources: frozenset[int]
    destination: int


class _Moves(NamedTuple):
    """Keys moved to the partitions of `reached` from `first` on, out of sources with the same remainder by `step`.
    `is_certain`: for each two of them there is such a key."""

    reached: FencedExpansion
    step: int
    first: int
    is_certain: bool


def _moves(expansions: Sequence[FencedExpansion]) -> Iterator[_Moves]:
    """Out of the partitions of the first of `expansions`, in it and in the later ones."""
    left, is_hidden = expansions[0], False
    for number, reached in enumerate(expansions):
        is_hidden |= not reached.is_single
        if left.mapping is not KeyMapping.NONE:
            is_certain = not number and (left.is_single or left.new_count % left.old_count == 0)
            yield _Moves(reached, gcd(left.old_count, reached.new_count), 0, is_certain)
        if left.mapping is KeyMapping.NONE or is_hidden:
            yield _Moves(reached, 1, left.old_count, left.mapping is KeyMapping.NONE and not number)


def _judged(places: Places, expansions: Sequence[FencedExpansion], touched: frozenset[int]) -> Iterator[_Judged]:
    """Every destination of keys that unfinished partitions of the first of `expansions` had."""
    left = expansions[0]
    known = {
        source: places.get(source, _NOWHERE).is_before(left.fences.get(source, _NO_FENCE))
        for source in range(left.old_count)
    }
    before = frozenset(source for source, is_before in known.items() if is_before)
    for moves in _moves(expansions):
        classes: dict[int, set[int]] = defaultdict(set)
        for source, is_before in known.items():
            if is_before is not False:
                classes[source % moves.step].add(source)
        for destination in range(moves.first, moves.reached.new_count):
            own = classes[destination % moves.step] - {destination}
            sources = frozenset(own if destination in touched else own & touched)
            if sources:
                yield _judge(moves, sources, sources & before, destination, places.get(destination, _NOWHERE))


def _judge(
    moves: _Moves, sources: frozenset[int], before: frozenset[int], destination: int, place: GroupPlace
) -> _Judged:
    """`before`: those of `sources` that start before the fence for certain."""
    is_old, begins = destination < moves.reached.old_count, (place.start, place.start)
    begun = place.has_begun(moves.reached.fences.get(destination, _NO_FENCE) if is_old else begins)
    if before and begun and moves.is_certain:
        return _Judged(ResetOrdering.REJECT, before, destination)
    is_certain = before == sources and begun is False
    return _Judged(ResetOrdering.WARN_NEEDS_GATE if is_certain else ResetOrdering.UNCERTAIN, sources, destination)
