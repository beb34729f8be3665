"""When the retention took what was left of partitions from before an expansion, by the log starts of looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from acktrail.columnar.binary_column import Int64Array
from acktrail.columnar.expansion.fence_columns import MISSING, LogValues
from acktrail.columnar.expansion.look_columns import NEVER, LookColumns
from acktrail.expansions.found_expansions import FencedTopicExpansion
from acktrail.expansions.table_shares import WantedLooks

_PROBES: Final = 16
"""Looks between two others that are read together."""


def with_expiry(
    expansions: Sequence[FencedTopicExpansion], looks: LookColumns, read: Callable[[WantedLooks], pa.Table]
) -> list[FencedTopicExpansion]:
    """`expansions` with when each source had no known record left below its low fence, and none below its high one.
    Log starts only grow: of all looks a few are read, and none for a source whose log begins below the fence in the
    newest one."""
    bounds, found = looks.bounds().tolist(), list(expansions)
    of_topic = dict(zip(looks.topic_ids.to_pylist(), pairwise(bounds), strict=True))
    searches = [
        _Search(number, is_low=is_low, wanted=wanted, newest=_newest(each, looks, begin), looks=range(begin, end))
        for number, each in enumerate(expansions)
        for begin, end in [of_topic.get(each.topic_id, (0, 0))]
        for is_low, wanted in ((True, np.minimum(each.record_end, each.source_low)), (False, each.source_high))
    ]
    while len(probes := np.unique([look for search in searches for look in search.probes()])):
        values = LogValues(read(_wanted(looks, probes)))
        for search in searches:
            search.learn(values)
    for search in searches:
        own, times = found[search.expansion], search.times(looks)
        found[search.expansion] = replace(own, gone_low=times) if search.is_low else replace(own, gone_high=times)
    return found


def _newest(each: FencedTopicExpansion, looks: LookColumns, begin: int) -> Int64Array:
    """The log starts in the newest look; MISSING for an expansion that only the tables have."""
    is_found = begin < len(looks.at) and looks.at[begin] <= each.last_seen_old_at
    return each.log_start if is_found else np.full(each.old_count, MISSING, np.int64)


def _wanted(looks: LookColumns, number: Int64Array) -> WantedLooks:
    return WantedLooks(
        topic_ids=tuple(looks.topic_ids.to_pylist()),
        runs=tuple(looks.runs.to_pylist()),
        number=number,
        topic=looks.topic[number],
        at=looks.at[number],
        run=looks.run[number],
    )


class _Search:
    """For the sources of one expansion, between which of `looks` their logs first began at `wanted` or behind it: after
    `below`, up to `above`. Looks that do not know a log start are in between."""

    def __init__(self, expansion: int, *, is_low: bool, wanted: Int64Array, newest: Int64Array, looks: range) -> None:
        self.expansion, self.is_low, self._end = expansion, is_low, looks.stop
        self._wanted = wanted
        self._is_asked = (wanted > 0) & ((newest >= wanted) | (newest < 0))
        self._below, self._above = np.full(len(wanted), looks.start - 1), np.full(len(wanted), looks.stop)
        self._probes: list[int] = []
        self._known: set[int] = set()

    def probes(self) -> list[int]:
        """The next looks to read."""
        asked = np.flatnonzero(self._is_asked)
        pairs = {(int(self._below[each]), int(self._above[each])) for each in asked}
        self._probes = sorted({look for pair in pairs for look in self._between(*pair)})
        return self._probes

    def _between(self, below: int, above: int) -> list[int]:
        left = [look for look in range(below + 1, above) if look not in self._known]
        places = np.linspace(0, len(left) - 1, min(_PROBES, len(left))).astype(int).tolist()
        return [left[place] for place in places]

    def learn(self, values: LogValues) -> None:
        """What those looks say."""
        asked = np.flatnonzero(self._is_asked)
        self._known.update(self._probes)
        for look in self._probes:
            starts = values.at("log_start_offset", np.full(len(asked), look), asked)
            below, above = asked[(starts >= 0) & (starts < self._wanted[asked])], asked[starts >= self._wanted[asked]]
            self._below[below] = np.maximum(self._below[below], look)
            self._above[above] = np.minimum(self._above[above], look)

    def times(self, looks: LookColumns) -> Int64Array:
        """Of the low fence the first look that no longer shows a record there, of the high one the first that shows
        that there is none; NEVER where there is no such look."""
        look = self._below + 1 if self.is_low else self._above
        is_found = self._is_asked & (look < self._end)
        return np.where(is_found, looks.at[np.where(is_found, look, 0)], NEVER)
