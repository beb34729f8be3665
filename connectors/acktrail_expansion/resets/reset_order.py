"""What a reset means for the records of one key, where the partitions of their topic became more. Pure.

Judged is where a group will be in every partition of the topic: the targets of the reset, and its places elsewhere. A
source that starts before an expansion delivers records again whose successors are in its destinations.

Example: from 2 to 4 partitions keys moved from 0 to 2. In partition 0 the records from before end at offset 1,000. A
group set to 500 there, and left at 50 in partition 2, gets old records of these keys after newer ones.

    >>> doubled = FencedExpansion(old_count=2, new_count=4, mapping=KeyMapping.MURMUR2, fences={0: (1000, 1000)})
    >>> places = {0: GroupPlace(first=500), 1: GroupPlace(first=9, end=9), 2: GroupPlace(first=50)}
    >>> print(*check_reset(places, [doubled]))
    partition 0 starts before the expansion from 2 to 4, but partition 2 keeps records from after it
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import gcd
from typing import Final, NamedTuple

from acktrail_expansion.law.key_mapping import KeyMapping

Fence = tuple[int | None, int | None]
"""Between which offsets the last record of a partition from before an expansion lies; None: not known."""
_NO_FENCE: Final = (None, None)
_SHOWN: Final = 8


class ResetOrdering(StrEnum):
    """Why a reset is not simply accepted, the worst first."""

    REJECT = "reject"
    """Records from before an expansion are delivered again after records from behind it are done."""
    UNCERTAIN = "uncertain"
    """A place lies between the ends of a fence, or a fence or a place is not known."""
    WARN_NEEDS_GATE = "warn_needs_gate"
    """Offsets that fit together; the order is kept only if the destinations wait until the sources are finished."""


_WORST_FIRST: Final = tuple(ResetOrdering)


@dataclass(frozen=True, slots=True, kw_only=True)
class FencedExpansion:
    """One expansion of a topic, with the fences that are known of the partitions from before. `is_single` False:
    another count may have been in between."""

    old_count: int
    new_count: int
    mapping: KeyMapping
    fences: Mapping[int, Fence] = field(default_factory=dict)
    is_single: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicExpansions:
    """The expansions of a topic, oldest first. `reason`: why it is not known whether there were any."""

    expansions: tuple[FencedExpansion, ...] = ()
    reason: str | None = None


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

    def is_finished(self, fence: Fence) -> bool:
        """Whether nothing from before the fence is delivered from here on."""
        first, high = max(self.first, self.start), fence[1]
        return (self.end is not None and first >= self.end) or (high is not None and first >= high)

    def is_before(self, fence: Fence) -> bool:
        """Whether something from before the fence is delivered for certain."""
        return self.is_exact and fence[0] is not None and max(self.first, self.start) < fence[0]

    def has_begun(self, fence: Fence) -> bool | None:
        """Whether the group was given something from behind the fence; None: not known."""
        given, (low, high) = max(self.first, self.given or 0), fence
        if high is not None and given > high:
            return True
        return False if self.given is not None and low is not None and given <= low else None


_NOWHERE: Final = GroupPlace(first=0, is_exact=False, given=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetReason:
    """Why a reset is not simply accepted: `sources` start before the expansion from `old_count` to `new_count`, or
    perhaps, and what that means for `destinations`; both ascending."""

    order: ResetOrdering
    old_count: int
    new_count: int
    sources: tuple[int, ...]
    destinations: tuple[int, ...]

    def __str__(self) -> str:
        """One sentence, with the first partitions."""
        start = "start" if len(self.sources) > 1 else "starts"
        keep = "keep" if len(self.destinations) > 1 else "keeps"
        reached, before = names(self.destinations), f"before the expansion from {self.old_count} to {self.new_count}"
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
    places: Mapping[int, GroupPlace], expansions: Sequence[FencedExpansion], touched: Collection[int] | None = None
) -> tuple[ResetReason, ...]:
    """Why a group that will be at `places` in all partitions of a topic may not get the records of each key in order,
    by the topic's `expansions`, oldest first; the worst first. Nothing: it gets them so. Only what has a source or a
    destination in `touched` (None: all) counts.

    A key whose partition was q by an old count can be in p by a later one where both leave the same remainder by the
    greatest common divisor of the counts. Where a count lies in between, or may have been hidden, the key can have had
    records there first, so that the order is broken perhaps. Cost: the partitions, for each two expansions.
    """
    named = frozenset(places if touched is None else touched)
    later = (expansions[index:] for index in reversed(range(len(expansions))))
    return tuple(sorted((each for own in later for each in _reasons(places, own, named)), key=_badness))


def _badness(reason: ResetReason) -> int:
    return _WORST_FIRST.index(reason.order)


class _Moves(NamedTuple):
    """Keys moved to the partitions of `reached` from `first` on, out of sources with the same remainder by `step`.
    `is_certain`: for each two of them there is such a key."""

    reached: FencedExpansion
    step: int
    first: int
    is_certain: bool


class _Unfinished(NamedTuple):
    """Sources with the same remainder: `before` start before the fence for certain, `perhaps` may do so."""

    before: frozenset[int]
    perhaps: frozenset[int]


def _moves(expansions: Sequence[FencedExpansion]) -> Iterator[_Moves]:
    """Out of the partitions of the first of `expansions`, in it and in the later ones."""
    left = expansions[0]
    for number, reached in enumerate(expansions):
        if left.mapping is KeyMapping.NONE:
            yield _Moves(reached, 1, left.old_count, is_certain=not number)
            continue
        is_certain = not number and (left.is_single or left.new_count % left.old_count == 0)
        yield _Moves(reached, gcd(left.old_count, reached.new_count), 0, is_certain)
        if not all(each.is_single for each in expansions[: number + 1]):
            yield _Moves(reached, 1, left.old_count, is_certain=False)


def _reasons(
    places: Mapping[int, GroupPlace], expansions: Sequence[FencedExpansion], touched: frozenset[int]
) -> Iterator[ResetReason]:
    """Those whose sources are partitions of the first of `expansions`."""
    left = expansions[0]
    sources = {source: places.get(source, _NOWHERE) for source in range(left.old_count)}
    fences = {source: left.fences.get(source, _NO_FENCE) for source in sources}
    unfinished = [source for source, place in sources.items() if not place.is_finished(fences[source])]
    before = frozenset(source for source in unfinished if sources[source].is_before(fences[source]))
    worst: dict[int, tuple[ResetOrdering, int, _Unfinished]] = {}
    for moves in _moves(expansions) if unfinished else ():
        every = _by_remainder(unfinished, before, moves.step)
        named = _by_remainder([each for each in unfinished if each in touched], before, moves.step)
        for destination in range(moves.first, moves.reached.new_count):
            own = (every if destination in touched else named).get(destination % moves.step)
            order = None if own is None else _order(moves, own, destination, places)
            if own is None or order is None:
                continue
            if destination not in worst or _WORST_FIRST.index(order) < _WORST_FIRST.index(worst[destination][0]):
                worst[destination] = order, moves.reached.new_count, own
    yield from _grouped(left.old_count, worst)


def _by_remainder(sources: Collection[int], before: frozenset[int], step: int) -> dict[int, _Unfinished]:
    found: dict[int, list[int]] = defaultdict(list)
    for source in sources:
        found[source % step].append(source)
    return {remainder: _Unfinished(before & {*own}, frozenset(own) - before) for remainder, own in found.items()}


def _order(
    moves: _Moves, sources: _Unfinished, destination: int, places: Mapping[int, GroupPlace]
) -> ResetOrdering | None:
    """What unfinished sources other than the destination itself mean for it; None: there are none."""
    before = len(sources.before) > (destination in sources.before)
    perhaps = len(sources.perhaps) > (destination in sources.perhaps)
    if not before and not perhaps:
        return None
    place, fences = places.get(destination, _NOWHERE), moves.reached.fences
    is_old = destination < moves.reached.old_count
    has_begun = place.has_begun(fences.get(destination, _NO_FENCE) if is_old else (place.start, place.start))
    if before and has_begun and moves.is_certain:
        return ResetOrdering.REJECT
    return ResetOrdering.UNCERTAIN if perhaps or has_begun is not False else ResetOrdering.WARN_NEEDS_GATE


def _grouped(old_count: int, worst: Mapping[int, tuple[ResetOrdering, int, _Unfinished]]) -> Iterator[ResetReason]:
    """One reason for all destinations that are alike."""
    found: dict[tuple[ResetOrdering, int], dict[_Unfinished, list[int]]] = defaultdict(lambda: defaultdict(list))
    for destination, (order, new_count, own) in worst.items():
        found[order, new_count][own].append(destination)
    for (order, new_count), classes in found.items():
        sources: set[int] = set()
        for own, reached in classes.items():
            every = own.before | own.perhaps if order is ResetOrdering.UNCERTAIN else own.before
            sources |= every - {*reached} if len(reached) == 1 else every
        yield ResetReason(
            order=order,
            old_count=old_count,
            new_count=new_count,
            sources=tuple(sorted(sources)),
            destinations=tuple(sorted(each for reached in classes.values() for each in reached)),
        )
