"""The dependencies of a topic's partitions across all its expansions, as columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Final

import numpy as np

from acktrail.columnar.binary_column import Int64Array, runs
from acktrail.model.expansion.key_mapping import KeyMapping

_AT_ONCE: Final = 500_000
"""About how many dependencies are made at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyColumns:
    """Dependencies by expansion `event` (of the destination), `source_event`, `destination`, `source`; all of shape
    (n,). Events are numbers of the topic's expansions, oldest first."""

    event: Int64Array
    source_event: Int64Array
    destination: Int64Array
    source: Int64Array

    def starts(self) -> Int64Array:
        """Where the sources of each event, source event and destination begin."""
        if not len(self.event):
            return np.empty(0, np.int64)
        keys = (self.event, self.source_event, self.destination)
        changes = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
        return np.concatenate([[0], 1 + np.flatnonzero(changes)])


def step_of(source_count: int, new_count: int, mapping: KeyMapping) -> int:
    """Sources of a destination leave its remainder by this number."""
    return 1 if mapping is KeyMapping.NONE else gcd(source_count, new_count)


def dependency_chunks(
    counts: Sequence[tuple[int, int]], mapping: KeyMapping, at_once: int = _AT_ONCE
) -> Iterator[DependencyColumns]:
    """The dependencies of a topic with expansions from and to `counts`, oldest first, in their order, all sources of a
    destination in one chunk.

    Each source belongs to the newest expansion up to the destination's own whose old count shows it, as in
    ``dependencies.sources_across``. Where the mapping is not known, only partitions that an expansion made depend on
    others, and on all that were there before it, as in ``dependencies.dependencies``.
    """
    for event, (old_count, new_count) in enumerate(counts):
        is_known = mapping is not KeyMapping.NONE
        oldest = 0 if is_known else event
        steps = [step_of(counts[each][0], new_count, mapping) for each in range(oldest, event + 1)]
        most = max(1, sum(counts[oldest + n][0] // step + 1 for n, step in enumerate(steps)))
        width = max(1, at_once // most)
        for begin in range(0 if is_known else old_count, new_count, width):
            destinations = np.arange(begin, min(begin + width, new_count))
            sources = [counts[each][0] for each in range(oldest, event + 1)]
            yield from _chunk(event, oldest, destinations, list(zip(sources, steps, strict=True)))


def _chunk(
    event: int, oldest: int, destinations: Int64Array, shapes: Sequence[tuple[int, int]]
) -> Iterator[DependencyColumns]:
    """The dependencies of `destinations`; `shapes` has source count and step of each source event from `oldest` on."""
    for number, (count, step) in enumerate(shapes):
        first = destinations % step
        rows, place = runs(np.maximum(0, -(-(count - first) // step)))
        destination, source = destinations[rows], first[rows] + step * place
        kept = source != destination
        for newer_count, newer_step in shapes[number + 1 :]:
            kept &= (source >= newer_count) | ((source - destination) % newer_step != 0)
        if kept.any():
            size = int(kept.sum())
            yield DependencyColumns(
                event=np.full(size, event),
                source_event=np.full(size, oldest + number),
                destination=destination[kept],
                source=source[kept],
            )
