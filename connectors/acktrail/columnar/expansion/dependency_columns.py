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
    one at most, which is the destination itself, or a source that a newer event shows as well.

    `event` (of the destinations) and `source_event` are numbers of the topic's expansions, oldest first.
    `destination` and `of_class` have shape (n,); the sources of class c are those from `bounds[c]` to before
    `bounds[c + 1]` in `source`, ascending. `left_out`, shape (n,): where in `source` the one is that a destination
    does not wait for; -1: there is none. Each destination waits for at least one source.
    """

    event: int
    source_event: int
    destination: Int64Array
    of_class: Int64Array
    source: Int64Array
    bounds: Int64Array
    left_out: Int64Array

    def waits(self) -> Int64Array:
        """For how many sources each destination waits."""
        return np.diff(self.bounds)[self.of_class] - (self.left_out >= 0)


def step_of(source_count: int, new_count: int, mapping: KeyMapping) -> int:
    """Sources of a destination leave its remainder by this number."""
    return 1 if mapping is KeyMapping.NONE else gcd(source_count, new_count)


def shared_sources(
    counts: Sequence[tuple[int, int]], mapping: KeyMapping, at_once: int = _AT_ONCE
) -> Iterator[SharedSources]:
    """The dependencies of a topic with expansions from and to `counts`, oldest first, some classes at a time.

    Each source belongs to the newest expansion up to the destination's own whose old count shows it, as in
    ``sources_across`` of the simulation. Where the mapping is not known, only partitions that an expansion made depend
    on others, and on all that were there before it, as in ``tests/definitions/dependencies.py``. Cost: for one
    expansion the number of its partitions, with any mapping; of several at most the number of dependencies.
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
    """The classes of an expansion's destinations from `lowest` on. `shapes` has source count and step of the source
    event, then of the newer ones.

    Classes are the remainders by the least common multiple of the steps, which divides the new count. A newer step that
    is not below the source count is none of them: it shows one source of a destination at most, which is left out.
    """

    event: int
    source_event: int
    shapes: Sequence[tuple[int, int]]
    new_count: int
    lowest: int

    def pieces(self, at_once: int) -> Iterator[SharedSources]:
        """All of them, some at a time."""
        count, step = self.shapes[0]
        alone = next((newer for _, newer in self.shapes[1:] if newer >= count), None)
        newer = [each for _, each in self.shapes[1:] if each != alone]
        period = lcm(step, *newer)
        width = max(1, at_once // (count // step + self.new_count // period))
        for begin in range(0, period, width):
            classes = np.arange(begin, min(begin + width, period))
            found = self._piece(classes, period, newer, alone or self.new_count)
            if len(found.destination):
                yield found

    def _piece(self, classes: Int64Array, period: int, newer: Sequence[int], alone: int) -> SharedSources:
        row, source = self._sources(classes, newer)
        bounds = np.searchsorted(row, np.arange(len(classes) + 1))
        destination = (classes + np.arange(0, self.new_count, period)[:, None]).ravel()
        of_class = np.tile(np.arange(len(classes)), self.new_count // period)
        keys, wanted = row * self.new_count + source, of_class * self.new_count + destination % alone
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
            left_out=np.where(is_there, place, -1)[kept],
        )

    def _sources(self, classes: Int64Array, newer: Sequence[int]) -> tuple[Int64Array, Int64Array]:
        """The sources of each class, without those that a newer count shows as well by one of its steps: the class's
        place, and the source."""
        count, step = self.shapes[0]
        row, place = runs(np.full(len(classes), count // step))
        source = (classes % step)[row] + step * place
        kept = np.ones(len(source), np.bool_)
        for each in newer:
            kept &= (source - classes[row]) % each != 0
        return row[kept], source[kept]
