"""Does a reset of a group keep the order of records of one key across the expansions of a topic?"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from acktrail.model.expansion.dependencies import destinations_of
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.expansion.ordering import ExpansionFence, has_begun


class ResetOrdering(StrEnum):
    """What a reset means for the order of records of one key."""

    ACCEPT = "accept"
    """No record from before an expansion is delivered again, or its successors are already behind it."""
    WARN_NEEDS_GATE = "warn_needs_gate"
    """Offsets that fit together; the order is kept only if the destinations wait until the sources are finished."""
    UNCERTAIN = "uncertain"
    """A target lies between the two fences, or a fence or a target is not known."""
    REJECT = "reject"
    """Records from before an expansion are delivered again after records from behind it are done."""


_SHOWN: Final = 8
WORST_FIRST: Final = (
    ResetOrdering.REJECT,
    ResetOrdering.UNCERTAIN,
    ResetOrdering.WARN_NEEDS_GATE,
    ResetOrdering.ACCEPT,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FencedExpansion:
    """One expansion of a topic with what is known of its fences: by source partition, below `old_count`. A partition
    without an entry has no fence that is known. `is_single` False: another count may have been in between."""

    old_count: int
    new_count: int
    mapping: KeyMapping
    fences: Mapping[int, ExpansionFence]
    is_single: bool = True


def hides_counts(expansions: Sequence[FencedExpansion]) -> bool:
    """Whether another count may have been in between one of `expansions`: keys may have moved from each partition that
    was there before the first one to each that came."""
    return not all(each.is_single for each in expansions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetReason:
    """Why a reset is not simply accepted: `source` starts before the expansion `old_count` to `new_count`, or perhaps,
    and what that means for `destinations`, ascending."""

    order: ResetOrdering
    old_count: int
    new_count: int
    source: int
    destinations: tuple[int, ...]

    def __str__(self) -> str:
        """One sentence for people, with the first destinations.

        >>> print(ResetReason(order=ResetOrdering.REJECT, old_count=2, new_count=4, source=0, destinations=(2,)))
        partition 0 starts before the expansion from 2 to 4, but partition 2 keeps records from after it
        """
        left_out = len(self.destinations) - _SHOWN
        more = f" and {left_out} more" if left_out > 0 else ""
        shown = ", ".join(map(str, self.destinations[:_SHOWN]))
        named = f"partition{'s' if len(self.destinations) > 1 else ''} {shown}{more}"
        keep = "keep" if len(self.destinations) > 1 else "keeps"
        said = {
            ResetOrdering.REJECT: f"starts before %s, but {named} {keep} records from after it",
            ResetOrdering.WARN_NEEDS_GATE: f"starts before %s: finish it before {named} may be delivered",
            ResetOrdering.UNCERTAIN: f"starts perhaps before %s, which {named} may have passed",
            ResetOrdering.ACCEPT: "does not start before %s",
        }[self.order]
        expansion = f"the expansion from {self.old_count} to {self.new_count}"
        return f"partition {self.source} {said.replace('%s', expansion)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetCheck:
    """The worst of all `reasons`; without one the reset is accepted. Reasons: newest expansion first, then by source
    and how bad they are."""

    order: ResetOrdering
    reasons: tuple[ResetReason, ...] = field(default=())


def check_reset(
    targets: Mapping[int, int | None],
    expansions: Sequence[FencedExpansion],
    *,
    log_starts: Mapping[int, int] | None = None,
    log_ends: Mapping[int, int] | None = None,
    delivered: Mapping[int, int] | None = None,
) -> ResetCheck:
    """Compare where a group will be, by partition, with the fences of the topic's expansions, oldest first.

    `targets` is the whole outcome: the targets of the reset over the positions that stay. A partition without a target
    (None or absent) has none that is known. A source that is set to its end in `log_ends` has nothing that could be
    delivered again and is accepted with any fence. A new partition that begins at its start in `log_starts` (0 where
    absent) is not begun; one that was there before is begun behind its own high fence. `delivered`: the offset after
    the last record that the group was given, where that is beyond the target; it begins a destination as well. Where
    another count may be hidden (`hides_counts`), all partitions that came are destinations, uncertain if begun. Cost:
    the number of dependencies of the sources that are rewound; where the mapping of keys is not known, the number of
    partitions for each two expansions: sources have the same destinations then, and their reasons share one tuple.

    Raises:
        ValueError: an expansion that is none.
    """
    starts, ends = log_starts or {}, log_ends or {}
    begun = Beginnings(
        {p: None if t is None else max(t, (delivered or {}).get(p, 0)) for p, t in targets.items()}, starts
    )
    reasons: list[ResetReason] = []
    for index in range(len(expansions) - 1, -1, -1):
        left, judged = expansions[index], _JudgedDestinations(expansions[index:], begun)
        for source in range(left.old_count):
            if not is_finished(targets.get(source), left.fences.get(source), ends.get(source)):
                reasons += judged.reasons(source, targets.get(source))
    order = next((order for order in WORST_FIRST if any(each.order is order for each in reasons)), ResetOrdering.ACCEPT)
    return ResetCheck(order=order, reasons=tuple(reasons))


def is_finished(target: int | None, fence: ExpansionFence | None, end: int | None) -> bool:
    """Whether a group at `target` of a source, or reset to it, gets no record from before the expansion again."""
    if target is None:
        return False
    return (end is not None and target >= end) or (
        fence is not None and fence.high is not None and target >= fence.high
    )


class _JudgedDestinations:
    """The reasons of sources of the first of `expansions`; keys may have moved on in later ones, past a partition with
    no record of theirs. Sources with the same destinations share what is found of them."""

    def __init__(self, expansions: Sequence[FencedExpansion], beginnings: Beginnings) -> None:
        self._expansions, self._beginnings = expansions, beginnings
        self._shared: dict[bool, _Destinations] = {}
        first = next((index for index, each in enumerate(expansions) if not each.is_single), len(expansions))
        self._hiding = expansions[first:]
        self._perhaps: dict[bool, _Destinations] = {}

    def reasons(self, source: int, target: int | None) -> list[ResetReason]:
        """Of a source that is rewound before the first expansion, or perhaps."""
        left = self._expansions[0]
        fence = left.fences.get(source)
        is_rewound = target is not None and fence is not None and fence.low is not None and target < fence.low
        return [
            ResetReason(
                order=order,
                old_count=left.old_count,
                new_count=new_count,
                source=source,
                destinations=destinations,
            )
            for order, new_count, destinations in self._destinations(source, is_rewound=is_rewound)
        ]

    def _destinations(self, source: int, *, is_rewound: bool) -> _Destinations:
        left = self._expansions[0]
        if left.mapping is not KeyMapping.NONE:
            known = self._judged(source, left.mapping, self._expansions, _ORDERS if is_rewound else _NOT_KNOWN)
            return [*self._hidden(source, known, is_rewound=is_rewound)] if self._hiding else known
        if is_rewound not in self._shared:
            orders = _ORDERS if is_rewound else _NOT_KNOWN
            self._shared[is_rewound] = self._judged(source, left.mapping, self._expansions, orders)
        return self._shared[is_rewound]

    def _hidden(self, source: int, known: _Destinations, *, is_rewound: bool) -> Iterator[_Destination]:
        """`known` without what the same is found of below; then all partitions that came while counts may be hidden."""
        if is_rewound not in self._perhaps:
            orders = _PERHAPS if is_rewound else _NOT_KNOWN
            self._perhaps[is_rewound] = self._judged(source, KeyMapping.NONE, self._hiding, orders)
        perhaps = self._perhaps[is_rewound]
        wider = {(order, new_count): destinations for order, new_count, destinations in perhaps}
        for order, new_count, destinations in known:
            every = wider.get((order, new_count), ())
            if not all(_has(every, destination) for destination in destinations):
                yield order, new_count, destinations
        yield from perhaps

    def _judged(
        self,
        source: int,
        mapping: KeyMapping,
        expansions: Sequence[FencedExpansion],
        orders: Mapping[bool | None, ResetOrdering],
    ) -> _Destinations:
        left = self._expansions[0]
        found: dict[tuple[ResetOrdering, int], list[int]] = {}
        seen: set[int] = set()
        for reached in expansions:
            every = destinations_of(source, left.old_count, reached.new_count, mapping)
            for destination in (each for each in every if each not in seen):
                order = orders[self._beginnings.has_begun(reached, destination)]
                found.setdefault((order, reached.new_count), []).append(destination)
            seen.update(every)
        return [
            (order, reached.new_count, tuple(found[order, reached.new_count]))
            for order in WORST_FIRST
            for reached in expansions
            if (order, reached.new_count) in found
        ]


def _has(ascending: tuple[int, ...], number: int) -> bool:
    place = bisect_left(ascending, number)
    return place < len(ascending) and ascending[place] == number


_Destination = tuple[ResetOrdering, int, tuple[int, ...]]
_Destinations = list[_Destination]
"""The destinations of a source, by how they are and the newest count of the expansion that reached them: each once, and
once more where counts may be hidden."""
_ORDERS: Final = {True: ResetOrdering.REJECT, False: ResetOrdering.WARN_NEEDS_GATE, None: ResetOrdering.UNCERTAIN}
"""Of a source that is rewound for certain, by whether the destination has begun."""
_PERHAPS: Final = {**_ORDERS, True: ResetOrdering.UNCERTAIN}
"""The same where it is not known whether the destination depends on the source."""
_NOT_KNOWN: Final = dict.fromkeys(_ORDERS, ResetOrdering.UNCERTAIN)
"""Of a source that is rewound perhaps."""
_UNKNOWN: Final = ExpansionFence(low=None, high=None)


class Beginnings:
    """Whether a group at `positions` has begun with partitions after expansions; each pair is judged once."""

    def __init__(self, positions: Mapping[int, int | None], log_starts: Mapping[int, int]) -> None:
        self._positions, self._log_starts = positions, log_starts
        self._known: dict[tuple[int, int], bool | None] = {}

    def has_begun(self, expansion: FencedExpansion, destination: int) -> bool | None:
        """As `ordering.has_begun`."""
        pair = expansion.new_count, destination
        if pair not in self._known:
            fence = _beginning(expansion, destination, self._log_starts)
            self._known[pair] = has_begun(self._positions.get(destination), fence)
        return self._known[pair]


def _beginning(expansion: FencedExpansion, destination: int, starts: Mapping[int, int]) -> ExpansionFence:
    """Between which offsets the first record of `destination` from after the expansion lies."""
    if destination < expansion.old_count:
        return expansion.fences.get(destination, _UNKNOWN)
    start = starts.get(destination, 0)
    return ExpansionFence(low=start, high=start)
