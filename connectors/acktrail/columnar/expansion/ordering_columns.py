"""The audit of all dependencies of a topic for all its groups at once: as ``acktrail.model.expansion.group_series``
judges each one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.columnar.expansion.dependency_columns import DependencyColumns, dependency_chunks
from acktrail.columnar.expansion.fence_columns import MISSING
from acktrail.columnar.expansion.position_matrix import AuditedExpansion, AuditedTopic
from acktrail.columnar.schemas.schema_types import BOOL, INT8, INT64, schema
from acktrail.model.expansion.group_series import NO_POSITION
from acktrail.model.expansion.ordering import OrderingVerdict

VERDICTS: Final = (
    OrderingVerdict.NOT_APPLICABLE,
    OrderingVerdict.SAFE,
    OrderingVerdict.NOT_STARTED,
    OrderingVerdict.UNKNOWN_FENCE,
    OrderingVerdict.INDETERMINATE,
    OrderingVerdict.POSSIBLE_VIOLATION,
    OrderingVerdict.VIOLATION,
)
"""The worst last: of several sources the one with the worst verdict decides."""
ORDERING_ROWS: Final = schema(
    (INT64, "group", "event", "source_event", "partition", "source_partition"),
    (INT8, "verdict"),  # a number of VERDICTS
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
"""Positions, and dependencies, that are looked at together."""
_NUMBER: Final = {verdict: number for number, verdict in enumerate(VERDICTS)}
_NEVER: Final = np.iinfo(np.int64).max


def audit_topic(
    topic: AuditedTopic, kind: int, positions: npt.NDArray[np.int64], at: Int64Array
) -> Iterator[tuple[str, pa.Table]]:
    """The rows of ``ORDERING_ROWS`` and ``START_ROWS`` of the groups of one kind (1: share groups, which are not read
    at once) in a topic; `positions` of shape (groups, partitions, readings), `at` of shape (readings,)."""
    if not len(at):
        return
    for begin, series in _series(positions):
        own = _Audit(topic, kind, series, at, topic.first_group[kind] + begin)
        yield from own.ordering()
        yield "starts", own.starts()


def _series(positions: npt.NDArray[np.int64]) -> Iterator[tuple[int, _Series]]:
    """Some groups at a time, with the number of the first of them."""
    groups, partitions, readings = positions.shape
    width = max(1, _CELLS // max(1, partitions * readings))
    for begin in range(0, groups, width):
        yield begin, _Series(positions[begin : begin + width])


class _Series:
    """Positions of some groups in one topic, and for each what is known before and after each reading.

    `flat` has a row for each group and partition. `before` and `after`: the newest reading up to one, and the first
    from one on, that knows the position (-1 and their number where none does). `restart`: the newest reading with a
    position below the last one known, or gone; 0 where there is none.
    """

    def __init__(self, positions: npt.NDArray[np.int64]) -> None:
        self.groups, self.partitions, self.readings = positions.shape
        self.flat = positions.reshape(self.groups * self.partitions, self.readings)
        self.numbers = np.arange(self.readings, dtype=np.int32)
        known = self.flat >= 0
        self.before = np.maximum.accumulate(np.where(known, self.numbers, np.int32(-1)), axis=1)
        after = np.where(known, self.numbers, np.int32(self.readings))
        self.after = np.minimum.accumulate(after[:, ::-1], axis=1)[:, ::-1]
        told = np.where(self.flat >= NO_POSITION, self.numbers, np.int32(0))
        values = np.take_along_axis(self.flat, np.maximum.accumulate(told, axis=1), axis=1)
        self.restart = 1 + _last(values[:, 1:] < values[:, :-1])

    def empty_before(self) -> npt.NDArray[np.int32]:
        """By group: the newest reading up to one that saw it without any position in the topic; -1: none did."""
        shaped = self.flat.reshape(self.groups, self.partitions, self.readings)
        is_empty = (shaped == NO_POSITION).all(axis=1)
        return np.maximum.accumulate(np.where(is_empty, self.numbers, np.int32(-1)), axis=1)

    def begun(self, low: Int64Array, high: Int64Array) -> tuple[Int64Array, Int64Array]:
        """For each row, since its restart: the first reading with its records from after the expansion begun for
        certain (the number of readings: none), and the last one without (-1: none). `low` and `high`: between which
        offsets the first of them lies, by partition."""
        lowest, most = (np.tile(bounds, self.groups) for bounds in (np.maximum(low, NO_POSITION), high))
        rows = np.arange(len(self.flat))
        first = np.minimum(self.after[rows, self.restart], self.readings - 1)
        most = np.where(most < 0, _NEVER, np.maximum(most, self.flat[rows, first]))
        since = self.numbers >= self.restart[:, None]
        is_begun = since & (self.flat > most[:, None])
        begun = np.where(is_begun.any(axis=1), is_begun.argmax(axis=1), self.readings)
        idle = _last(since & (self.flat >= NO_POSITION) & (self.flat <= lowest[:, None]))
        return begun, idle


def _last(mask: BoolArray) -> Int64Array:
    """The number of the last column that is true in each row; -1 where none is."""
    width = mask.shape[1]
    if not width:
        return np.full(len(mask), -1, np.int64)
    return np.where(mask.any(axis=1), width - 1 - mask[:, ::-1].argmax(axis=1), -1)


class _Audit:
    """Some groups of one kind in one topic."""

    def __init__(self, topic: AuditedTopic, kind: int, series: _Series, at: Int64Array, first_group: int) -> None:
        self._topic, self.series, self.at, self._first_group = topic, series, at, first_group
        self._is_share, self.apart = kind == 1, kind
        self.empty_before = series.empty_before()
        self._begun: dict[int, tuple[Int64Array, Int64Array]] = {}
        events = topic.expansions
        self.low = np.array([_padded(each.low, topic.partitions) for each in events])
        self.high = np.array([_padded(each.high, topic.partitions) for each in events])
        self.settles_at = np.array([each.settles_at for each in events])

    def ordering(self) -> Iterator[tuple[str, pa.Table]]:
        """The verdicts, one row for each group, event, source event and destination."""
        counts = [(each.old_count, each.new_count) for each in self._topic.expansions]
        at_once = max(1, _CELLS // self.series.groups)
        for chunk in dependency_chunks(counts, self._topic.mapping, at_once):
            yield "ordering", self._chunk(chunk)

    def _chunk(self, chunk: DependencyColumns) -> pa.Table:
        found = _Judged(self, chunk)
        starts = chunk.starts()
        chosen = _deciding(found.verdict, found.remaining, starts)
        groups = np.arange(self.series.groups)[:, None]

        def own(values: Int64Array) -> Int64Array:
            return values[groups, chosen].ravel()

        def of_source(values: Int64Array) -> Int64Array:
            return np.asarray(values[chosen], np.int64).ravel()

        def count(mask: BoolArray) -> Int64Array:
            return np.add.reduceat(mask.astype(np.int64), starts, axis=1).ravel()

        columns = {
            "group": np.repeat(self._first_group + groups.ravel(), len(starts)),
            **{name: of_source(getattr(chunk, name)) for name in ("event", "source_event")},
            "partition": of_source(chunk.destination),
            "source_partition": of_source(chunk.source),
            "verdict": own(found.verdict),
            "sources": count(np.ones_like(found.verdict, np.bool_)),
            "sources_safe": count(found.verdict == _NUMBER[OrderingVerdict.SAFE]),
            "sources_violated": count(found.verdict == _NUMBER[OrderingVerdict.VIOLATION]),
            "source_before": own(found.source_before),
            "source_at": own(found.source_at),
            "destination_before": own(found.positions_of_destinations(found.before)),
            "destination_at": own(found.positions_of_destinations(found.at)),
            "before_at": own(found.instants(found.before)),
            "at": own(found.instants(found.at)),
            "fence_low": of_source(found.low),
            "fence_high": of_source(found.high),
            "remaining": own(found.remaining),
        }
        return pa.table({name: pa.array(values, ORDERING_ROWS.field(name).type) for name, values in columns.items()})

    def begins(self, event: int) -> tuple[Int64Array, Int64Array]:
        """``_Series.begun`` of the destinations of an expansion."""
        if event not in self._begun:
            own = self._topic.expansions[event]
            low, high = (_begins(bounds, own, self._topic.partitions) for bounds in (own.low, own.high))
            self._begun[event] = self.series.begun(low, high)
        return self._begun[event]

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


class _Judged:
    """The dependencies of a chunk for all groups: arrays of shape (groups, dependencies). `before` and `at` are the
    readings that each verdict rests on (-1: there is none); of a destination that is not begun, `at` is the newest one
    that knows the source."""

    def __init__(self, audit: _Audit, chunk: DependencyColumns) -> None:
        series, event, source_event = audit.series, int(chunk.event[0]), int(chunk.source_event[0])
        self._series, self._instants = series, audit.at
        base = np.arange(series.groups)[:, None] * series.partitions
        self._destination, self._source = base + chunk.destination, base + chunk.source
        self.low = audit.low[source_event][chunk.source]
        self.high = audit.high[source_event][chunk.source]
        begun, idle = (values[self._destination] for values in audit.begins(event))
        first = np.maximum(series.restart[self._destination], series.restart[self._source])
        # Positions only grow: begun before the restart of the source is begun at the first reading that knows it.
        begun = np.where(begun < first, series.after[self._destination, first], begun)
        perhaps = 1 + np.where(idle >= first, idle, first - 1)
        is_begun, is_started = begun < series.readings, perhaps < series.readings
        self.at = self._known_from(np.where(is_begun, begun, perhaps) + audit.apart)
        self.before = self._known_until(perhaps - 1 - audit.apart, first)
        self.source_before, self.source_at = (self._positions(self._source, each) for each in (self.before, self.at))
        joined = self._joined(audit, first, int(audit.settles_at[source_event]))
        self.verdict = self._verdicts(joined >= 0, is_started, is_begun)
        newest = self._known_until(np.full_like(first, series.readings - 1), first)
        self.at = np.where(joined >= 0, joined, np.where(is_started, self.at, newest))
        self.before = np.where((joined >= 0) | ~is_started, -1, self.before)
        self.source_before, self.source_at = (self._positions(self._source, each) for each in (self.before, self.at))
        is_known = (self.high >= 0) & (self.source_at >= 0)
        self.remaining = np.where(is_known, np.maximum(self.high - self.source_at, 0), MISSING)

    def positions_of_destinations(self, readings: Int64Array) -> Int64Array:
        """The positions at `readings`; MISSING where there is none, or it is not known."""
        return self._positions(self._destination, readings)

    def instants(self, readings: Int64Array) -> Int64Array:
        """When `readings` were, in microseconds."""
        return np.where(readings >= 0, self._instants[np.maximum(readings, 0)], MISSING)

    def _known_from(self, readings: Int64Array) -> Int64Array:
        """The first reading from each of `readings` on that knows the position in the source; -1: there is none."""
        last = self._series.readings - 1
        found = self._series.after[self._source, np.minimum(readings, last)].astype(np.int64)
        return np.where((readings <= last) & (found <= last), found, -1)

    def _known_until(self, readings: Int64Array, first: Int64Array) -> Int64Array:
        """The newest one from `first` up to each of `readings`; -1: there is none."""
        found = self._series.before[self._source, np.maximum(readings, 0)].astype(np.int64)
        return np.where((readings >= first) & (found >= first), found, -1)

    def _positions(self, rows: Int64Array, readings: Int64Array) -> Int64Array:
        found = self._series.flat[rows, np.maximum(readings, 0)]
        return np.where(readings >= 0, np.maximum(found, MISSING), MISSING)

    def _joined(self, audit: _Audit, first: Int64Array, settles_at: int) -> Int64Array:
        """The first reading that knows the source, where the group joined behind it after the expansion; else -1."""
        known = self._known_from(first)
        groups = np.arange(self._series.groups)[:, None]
        away = audit.empty_before[groups, np.maximum(known, 0)].astype(np.int64)
        was_away = (known >= 0) & (away >= first) & (audit.at[np.maximum(away, 0)] >= settles_at)
        is_behind = (self.high >= 0) & (self._positions(self._source, known) >= self.high)
        return np.where(was_away & is_behind, known, -1)

    def _verdicts(self, is_joined: BoolArray, is_started: BoolArray, is_begun: BoolArray) -> Int64Array:
        earlier, now = self.source_before, self.source_at
        has_high = np.broadcast_to(self.high >= 0, now.shape)
        conditions = {
            OrderingVerdict.NOT_APPLICABLE: is_joined,
            OrderingVerdict.NOT_STARTED: ~is_started,
            OrderingVerdict.UNKNOWN_FENCE: np.broadcast_to(self.low < 0, now.shape),
            OrderingVerdict.VIOLATION: is_begun & (now >= 0) & (now < self.low),
            OrderingVerdict.SAFE: has_high & (np.maximum(earlier, 0) >= self.high),
            OrderingVerdict.INDETERMINATE: (earlier < 0) | (now < 0) | (has_high & (now >= self.high)),
        }
        otherwise = _NUMBER[OrderingVerdict.POSSIBLE_VIOLATION]
        return np.select([*conditions.values()], [_NUMBER[each] for each in conditions], otherwise)


def _deciding(verdict: Int64Array, remaining: Int64Array, starts: Int64Array) -> Int64Array:
    """The column that decides for each group and segment: of the worst verdict, the most left, then the first. Shape
    (groups, segments)."""
    lengths = np.diff(np.concatenate([starts, [verdict.shape[1]]]))
    worst = np.repeat(np.maximum.reduceat(verdict, starts, axis=1), lengths, axis=1)
    left = np.where(verdict == worst, remaining, MISSING - 1)
    most = np.repeat(np.maximum.reduceat(left, starts, axis=1), lengths, axis=1)
    columns = np.arange(verdict.shape[1])
    return np.minimum.reduceat(np.where(left == most, columns, len(columns)), starts, axis=1)


def _padded(values: Int64Array, size: int) -> Int64Array:
    return np.concatenate([values, np.full(size - len(values), MISSING, np.int64)])


def _begins(bounds: Int64Array, expansion: AuditedExpansion, size: int) -> Int64Array:
    """Where the first record of each partition from after the expansion lies: in a new one at its beginning."""
    new = np.zeros(expansion.new_count - expansion.old_count, np.int64)
    return _padded(np.concatenate([bounds, new]), size)
