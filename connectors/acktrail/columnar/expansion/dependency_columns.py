"""The dependencies of a topic's partitions across all its expansions, as columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd, lcm
from typing import Final

import numpy as np

from acktrail.columnar.binary_column import Int64Array, runs
from acktrail.model.expansion.key_mapping import KeyMapping

_AT_ONCE: Final = 500_000
"""About how many sources and destinations are made at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSources:
    """What destinations wait for, where many wait for the same: those of one class for all sources of the class but
    themselves.

    `event` (of the destinations) and `source_event` are numbers of the topic's expansions, oldest first.
    `destination` and `of_class` have shape (n,); the sources of class c are those from `bounds[c]` to before
    `bounds[c + 1]` in `source`, ascending. `own`, shape (n,): where a destination is itself in `source`; -1: it is not
    there. Each destination waits for at least one source.
    """

    event: int
    source_event: int
    destination: Int64Array
    of_class: Int64Array
    source: Int64Array
    bounds: Int64Array
    own: Int64Array

    def waits(self) -> Int64Array:
        """For how many sources each destination waits."""
        return np.diff(self.bounds)[self.of_class] - (self.own >= 0)


def step_of(source_count: int, new_count: int, mapping: KeyMapping) -> int:
    """Sources of a destination leave its remainder by this number."""
    return 1 if mapping is KeyMapping.NONE else gcd(source_count, new_count)


def shared_sources(
    counts: Sequence[tuple[int, int]], mapping: KeyMapping, at_once: int = _AT_ONCE
) -> Iterator[SharedSources]:
    """The dependencies of a topic with expansions from and to `counts`, oldest first, some classes at a time.

    Each source belongs to the newest expansion up to the destination's own whose old count shows it, as in
    ``dependencies.sources_across``. Where the mapping is not known, only partitions that an expansion made depend on
    others, and on all that were there before it, as in ``dependencies.dependencies``. Cost: for one expansion the
    number of its partitions, with any mapping; of several, the classes are those by the steps of all of them.
    """
    for event, (old_count, new_count) in enumerate(counts):
        is_known = mapping is not KeyMapping.NONE
        oldest = 0 if is_known else event
        sources = [counts[each][0] for each in range(oldest, event + 1)]
        shapes = [(count, step_of(count, new_count, mapping)) for count in sources]
        for number in range(len(shapes)):
            own = _Classes(event, oldest + number, shapes[number:], new_count, 0 if is_known else old_count)
            yield from own.pieces(at_once)


@dataclass(frozen=True, slots=True)
class _Classes:
    """The classes of an expansion's destinations from `lowest` on: their remainders by the least common multiple of
    all steps, which divides the new count. `shapes` has source count and step of the source event, then of the newer
    ones."""

    event: int
    source_event: int
    shapes: Sequence[tuple[int, int]]
    new_count: int
    lowest: int

    def pieces(self, at_once: int) -> Iterator[SharedSources]:
        """All of them, some at a time."""
        period = lcm(*(step for _, step in self.shapes))
        count, step = self.shapes[0]
        width = max(1, at_once // (count // step + self.new_count // period))
        for begin in range(0, period, width):
            found = self._piece(np.arange(begin, min(begin + width, period)), period)
            if len(found.destination):
                yield found

    def _piece(self, classes: Int64Array, period: int) -> SharedSources:
        row, source = self._sources(classes)
        bounds = np.searchsorted(row, np.arange(len(classes) + 1))
        destination = (classes + np.arange(0, self.new_count, period)[:, None]).ravel()
        of_class = np.tile(np.arange(len(classes)), self.new_count // period)
        keys, wanted = row * self.new_count + source, of_class * self.new_count + destination
        place = np.searchsorted(keys, wanted)
        is_there = np.append(keys, -1)[place] == wanted
        kept = (destination >= self.lowest) & (np.diff(bounds)[of_class] > is_there)
        return SharedSources(
            event=self.event,
            source_event=self.source_event,
            destination=destination[kept],
            of_class=of_class[kept],
            source=source,
            bounds=bounds,
            own=np.where(is_there, place, -1)[kept],
        )

    def _sources(self, classes: Int64Array) -> tuple[Int64Array, Int64Array]:
        """The sources of each class, without those that a newer count shows as well: the class's place, and the
        source."""
        (count, step), *newer = self.shapes
        row, place = runs(np.full(len(classes), count // step))
        source = (classes % step)[row] + step * place
        kept = np.ones(len(source), np.bool_)
        for newer_count, newer_step in newer:
            kept &= (source >= newer_count) | ((source - classes[row]) % newer_step != 0)
        return row[kept], source[kept]
