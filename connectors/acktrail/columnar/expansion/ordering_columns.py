"""The audit of all dependencies of a topic for all its groups at once: as ``tests/definitions/group_series.py``
judges each one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from acktrail.columnar.binary_column import Int64Array
from acktrail.columnar.expansion.dependency_columns import shared_sources
from acktrail.columnar.expansion.dependency_verdicts import JudgedExpansion
from acktrail.columnar.expansion.fence_columns import MISSING
from acktrail.columnar.expansion.position_matrix import AuditedExpansion, AuditedTopic
from acktrail.columnar.expansion.reading_series import ReadingSeries
from acktrail.columnar.expansion.share_evidence import ShareEvidence
from acktrail.columnar.expansion.shared_verdicts import SharedVerdicts
from acktrail.columnar.schemas.schema_types import BOOL, INT8, INT64, schema
from acktrail.model.expansion.ordering import NO_POSITION

ORDERING_ROWS: Final = schema(
    (INT64, "group", "event", "source_event", "partition", "source_partition"),
    (INT8, "verdict", "reason"),  # numbers of VERDICTS and REASONS
    (INT64, "sources", "sources_safe", "sources_violated"),
    (INT64, "source_before", "source_at", "destination_before", "destination_at"),
    (INT64, "before_at", "at"),  # microseconds
    (INT64, "fence_low", "fence_high", "remaining"),
)
"""Rows of ``ordering_audits`` with numbers: the group's, and those of the topic's expansions. MISSING: null."""
START_ROWS: Final = schema(
    (INT64, "group", "event", "partition"),
    (INT64, "seen"),  # the first position
    (INT64, "seen_at", "before_at"),  # of the last reading without a position
    (BOOL, "is_last"),  # without a position in the newest reading
)
"""Where groups were first seen in new partitions. MISSING: null."""
_CELLS: Final = 1_500_000
"""Positions that are looked at together."""


def audit_topic(
    topic: AuditedTopic, kind: int, positions: npt.NDArray[np.int64], at: Int64Array
) -> Iterator[tuple[str, pa.Table]]:
    """The rows of ``ORDERING_ROWS`` and ``START_ROWS`` of the groups of one kind (1: share groups, which are not read
    at once) in a topic; `positions` of shape (groups, partitions, readings), `at` of shape (readings,)."""
    if not len(at):
        return
    for begin, some in _some_positions(positions):
        own = _Audit(topic, kind, some, at, begin)
        yield from own.ordering()
        yield "starts", own.starts()


def _some_positions(positions: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Those of some groups at a time, with the number of the first of them."""
    groups, partitions, readings = positions.shape
    width = max(1, _CELLS // max(1, partitions * readings))
    for begin in range(0, groups, width):
        yield begin, positions[begin : begin + width]


class _Audit:
    """Some groups of one kind in one topic, from the group `begin` on."""

    def __init__(
        self, topic: AuditedTopic, kind: int, positions: npt.NDArray[np.int64], at: Int64Array, begin: int
    ) -> None:
        self._topic, self.at, self._first_group = topic, at, topic.first_group[kind] + begin
        self._is_share = kind == 1
        self._groups = slice(begin, begin + len(positions))
        shape = len(topic.groups[kind]), topic.partitions
        self._evidence = topic.evidence or ShareEvidence.nothing(*shape, len(topic.expansions))
        cuts = self._evidence.cuts(at, self._groups) if self._is_share else None
        self.series = ReadingSeries(positions, cuts)
        self._empty_before = self.series.empty_before()

    def ordering(self) -> Iterator[tuple[str, pa.Table]]:
        """The verdicts, one row for each group, event, source event and destination."""
        counts = [(each.old_count, each.new_count) for each in self._topic.expansions]
        for event, every in groupby(shared_sources(counts, self._topic.mapping), key=lambda each: each.event):
            own = self._destinations(event)
            for shared in every:
                source = self._sources(self._topic.expansions[shared.source_event])
                for columns in SharedVerdicts(replace(own, **source), shared).columns():
                    yield "ordering", self._table(columns)

    def _destinations(self, event: int) -> JudgedExpansion:
        """What is known of the destinations of an expansion, with its own sources."""
        expansion, series = self._topic.expansions[event], self.series
        low, high = (_begins(bounds, expansion, self._topic.partitions) for bounds in (expansion.low, expansion.high))
        paused = series.idle(low)
        nothing = np.full(len(paused), MISSING, np.int64)
        work = self._evidence.work[event].of_groups(self._groups) if self._is_share else None
        return JudgedExpansion(
            series=series,
            empty_before=self._empty_before,
            at=self.at,
            begun=series.begun(high),
            idle=paused if work is None else series.idle(low, work.quiet_until(self.at)),
            paused=paused,
            doubt=nothing if work is None else work.doubt,
            is_worked=nothing >= 0 if work is None else work.is_worked,
            apart=int(self._is_share),
            **self._sources(expansion),
        )

    def _sources(self, expansion: AuditedExpansion) -> dict[str, Any]:
        """What ``JudgedExpansion`` has of the sources of an expansion."""
        low, high = expansion.sources
        gone = {
            name: np.full(len(low), len(self.at)) if times is None else np.searchsorted(self.at, times)
            for name, times in (("gone_low", expansion.gone_low), ("gone_high", expansion.gone_high))
        }
        own = {"low": low, "high": high, "record_end": expansion.record_end, "settles_at": expansion.settles_at}
        return {**own, **gone}

    def _table(self, columns: dict[str, Int64Array]) -> pa.Table:
        times = {name: self._instants(columns[name]) for name in ("before_at", "at")}
        own = {**columns, **times, "group": columns["group"] + self._first_group}
        return pa.table({each.name: pa.array(own[each.name], each.type) for each in ORDERING_ROWS}, ORDERING_ROWS)

    def _instants(self, readings: Int64Array) -> Int64Array:
        """When `readings` were, in microseconds."""
        return np.where(readings >= 0, self.at[np.maximum(readings, 0)], MISSING)

    def starts(self) -> pa.Table:
        """Where groups that were in the topic before were first seen in each new partition."""
        return pa.concat_tables(
            [
                START_ROWS.empty_table(),
                *(self._starts(number, each) for number, each in enumerate(self._topic.expansions)),
            ]
        )

    def _starts(self, event: int, expansion: AuditedExpansion) -> pa.Table:
        series, new = self.series, np.arange(expansion.old_count, expansion.new_count)
        first = series.after[:, 0].reshape(series.groups, series.partitions)
        rows = (np.arange(series.groups)[:, None] * series.partitions + new).ravel()
        seen = series.after[rows, 0]
        was_there = np.repeat(first.min(axis=1), len(new)) < seen
        is_seen = was_there & (seen < series.readings)
        is_away = np.where(series.flat[rows] == NO_POSITION, series.numbers, np.int32(-1))
        away = np.maximum.accumulate(is_away, axis=1)[np.arange(len(rows)), np.maximum(seen - 1, 0)]
        place = np.minimum(seen, series.readings - 1)
        newest = series.flat[:, -1].reshape(series.groups, series.partitions)
        is_here = np.repeat((newest >= 0).any(axis=1), len(new)) & (series.flat[rows, -1] == NO_POSITION)
        kept = is_seen | (self._is_share & (seen == series.readings) & is_here)
        columns = {
            "group": np.repeat(self._first_group + np.arange(series.groups), len(new)),
            "event": np.full(len(rows), event),
            "partition": np.tile(new, series.groups),
            "seen": np.where(is_seen, series.flat[rows, place], MISSING),
            "seen_at": np.where(is_seen, self.at[place], MISSING),
            "before_at": np.where(is_seen & (away >= 0), self.at[np.maximum(away, 0)], MISSING),
            "is_last": ~is_seen,
        }
        return pa.table({name: pa.array(own[kept], START_ROWS.field(name).type) for name, own in columns.items()})


def _padded(values: Int64Array, size: int) -> Int64Array:
    return np.concatenate([values, np.full(size - len(values), MISSING, np.int64)])


def _begins(bounds: Int64Array, expansion: AuditedExpansion, size: int) -> Int64Array:
    """Where the first record of each partition from after the expansion lies: in a new one at its beginning."""
    new = np.zeros(expansion.new_count - expansion.old_count, np.int64)
    return _padded(np.concatenate([bounds, new]), size)
