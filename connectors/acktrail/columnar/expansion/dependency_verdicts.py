"""Verdicts on many dependencies of one expansion at once, as ``tests/definitions/group_series.py`` judges each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.columnar.expansion.fence_columns import MISSING
from acktrail.columnar.expansion.reading_series import ReadingSeries
from acktrail.model.expansion.ordering import OrderingReason, OrderingVerdict

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
NUMBER_OF: Final = {verdict: number for number, verdict in enumerate(VERDICTS)}
"""The number of each verdict."""
REASONS: Final = (*OrderingReason,)
REASON_NUMBER: Final = {reason: number for number, reason in enumerate(REASONS)}
"""The number of each reason."""
_VIOLATION: Final = NUMBER_OF[OrderingVerdict.VIOLATION]
_EXPIRED: Final = REASON_NUMBER[OrderingReason.EXPIRED]
_OPEN: Final = (NUMBER_OF[OrderingVerdict.POSSIBLE_VIOLATION], NUMBER_OF[OrderingVerdict.INDETERMINATE])


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedExpansion:
    """What is known of groups across a source event's fences to an event's destinations.

    `begun` is ``ReadingSeries.begun`` of the destinations, `idle` the last reading that rules a beginning out, `paused`
    the last one whose position does, `doubt` the number of the reason where that is no proof (MISSING: there is none),
    and `is_worked` where state records show work. `low` and `high` are the fences by source (MISSING: not known), and
    `record_end` is one past the newest record that is known below the low one, `gone_low` and `gone_high` the first
    readings after the retention had taken the records below (their number: never); `at` the instants of readings,
    `settles_at` when producers knew the count, both in microseconds; `apart`: 1 for share groups, whose partitions are
    not read at once.
    """

    series: ReadingSeries
    empty_before: npt.NDArray[np.int32]
    at: Int64Array
    begun: Int64Array
    idle: Int64Array
    paused: Int64Array
    doubt: Int64Array
    is_worked: BoolArray
    low: Int64Array
    high: Int64Array
    record_end: Int64Array
    gone_low: Int64Array
    gone_high: Int64Array
    settles_at: int
    apart: int


class DependencyVerdicts:
    """The verdict on each of n dependencies: of `group` and `source`, shape (n,), with `destination`, a row of the
    series. `reason` is a number of ``REASONS`` (MISSING: none). `before` and `at` are the readings that it rests on
    (-1: there is none); of a destination that is not begun, `at` is the newest one that knows the source."""

    def __init__(self, known: JudgedExpansion, group: Int64Array, destination: Int64Array, source: Int64Array) -> None:
        series = self._series = known.series
        self._known, self._group = known, group
        self._source = group * series.partitions + source
        self.low, self.high = known.low[source], known.high[source]
        self._record_end = known.record_end[source]
        gone_low, gone_high = known.gone_low[source], known.gone_high[source]
        first = np.maximum(series.restart[destination], series.restart[self._source])
        # Positions only grow: begun before the restart of the source is begun at the first reading that knows it.
        begun, idle = known.begun[destination], known.idle[destination]
        begun = np.where(begun < first, series.after[destination, first], begun)
        perhaps = 1 + np.where(idle >= first, idle, first - 1)
        paused = known.paused[destination]
        newest_idle = np.where(known.is_worked[destination], idle, paused)
        is_begun, is_started = begun < series.readings, newest_idle < series.readings - 1
        self.at = self._known_from(np.where(is_begun, begun, perhaps) + known.apart)
        self.before = self._known_until(perhaps - 1 - known.apart, first)
        self.source_before, self.source_at = (self._positions(each) for each in (self.before, self.at))
        joined = self._joined(first)
        is_left = self.at < gone_low
        self.verdict = self._verdicts(joined >= 0, is_started, is_begun, is_left)
        open_verdicts = np.isin(self.verdict, _OPEN)
        is_vacuous = (perhaps > first) & (perhaps > gone_high) & (open_verdicts | (self.verdict == _VIOLATION))
        self.verdict = np.where(is_vacuous, NUMBER_OF[OrderingVerdict.SAFE], self.verdict)
        is_doubted = (paused >= perhaps) & np.isin(self.verdict, _OPEN)
        self.reason = np.where(is_doubted, known.doubt[destination], MISSING)
        is_below = is_begun & (self.source_at >= 0) & (self.source_at < self.low) & np.isin(self.verdict, _OPEN)
        why = np.where(is_left, REASON_NUMBER[OrderingReason.NO_RECORD_KNOWN], _EXPIRED)
        self.reason = np.where(is_below, why, np.where(is_vacuous, _EXPIRED, self.reason))
        newest = self._known_until(np.full_like(first, series.readings - 1), first)
        self.at = np.where(joined >= 0, joined, np.where(is_started, self.at, newest))
        self.before = np.where((joined >= 0) | ~is_started, -1, self.before)
        self.source_before, self.source_at = (self._positions(each) for each in (self.before, self.at))
        is_known = (self.high >= 0) & (self.source_at >= 0)
        self.remaining = np.where(is_known, np.maximum(self.high - self.source_at, 0), MISSING)

    def _known_from(self, readings: Int64Array) -> Int64Array:
        """The first reading from each of `readings` on that knows the position in the source; -1: there is none."""
        last = self._series.readings - 1
        found = self._series.after[self._source, np.minimum(readings, last)].astype(np.int64)
        return np.where((readings <= last) & (found <= last), found, -1)

    def _known_until(self, readings: Int64Array, first: Int64Array) -> Int64Array:
        """The newest one from `first` up to each of `readings`; -1: there is none."""
        found = self._series.before[self._source, np.maximum(readings, 0)].astype(np.int64)
        return np.where((readings >= first) & (found >= first), found, -1)

    def _positions(self, readings: Int64Array) -> Int64Array:
        return positions_at(self._series, self._source, readings)

    def _joined(self, first: Int64Array) -> Int64Array:
        """The first reading that knows the source, where the group joined behind it after the expansion; else -1."""
        known, at = self._known_from(first), self._known.at
        away = self._known.empty_before[self._group, np.maximum(known, 0)].astype(np.int64)
        was_away = (known >= 0) & (away >= first) & (at[np.maximum(away, 0)] >= self._known.settles_at)
        is_behind = (self.high >= 0) & (self._positions(known) >= self.high)
        return np.where(was_away & is_behind, known, -1)

    def _verdicts(
        self, is_joined: BoolArray, is_started: BoolArray, is_begun: BoolArray, is_left: BoolArray
    ) -> Int64Array:
        earlier, now, has_high = self.source_before, self.source_at, self.high >= 0
        is_below = is_begun & (now >= 0) & (now < self.low)
        conditions = {
            OrderingVerdict.NOT_APPLICABLE: is_joined,
            OrderingVerdict.NOT_STARTED: ~is_started,
            OrderingVerdict.UNKNOWN_FENCE: self.low < 0,
            OrderingVerdict.VIOLATION: is_below & (now < self._record_end) & is_left,
            OrderingVerdict.POSSIBLE_VIOLATION: is_below,
            OrderingVerdict.SAFE: has_high & (np.maximum(earlier, 0) >= self.high),
            OrderingVerdict.INDETERMINATE: (earlier < 0) | (now < 0) | (has_high & (now >= self.high)),
        }
        otherwise = NUMBER_OF[OrderingVerdict.POSSIBLE_VIOLATION]
        return np.select([*conditions.values()], [NUMBER_OF[each] for each in conditions], otherwise)

    def deciding(self, starts: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Of each stretch of dependencies the one that decides, and the one that decides without it (the same one where
        it is alone): of the worst verdict, the most left, then the first."""
        best = _deciding(self.verdict, self.remaining, starts)
        others = self.verdict.copy()
        others[best] = -1
        return best, _deciding(others, self.remaining, starts)


def positions_at(series: ReadingSeries, rows: Int64Array, readings: Int64Array) -> Int64Array:
    """The positions of rows of the series at `readings`; MISSING where there is none, or it is not known."""
    found = series.flat[rows, np.maximum(readings, 0)]
    return np.where(readings >= 0, np.maximum(found, MISSING), MISSING)


def _deciding(verdict: Int64Array, remaining: Int64Array, starts: Int64Array) -> Int64Array:
    lengths = np.diff(np.append(starts, len(verdict)))
    worst = np.repeat(np.maximum.reduceat(verdict, starts), lengths)
    left = np.where(verdict == worst, remaining, MISSING - 1)
    most = np.repeat(np.maximum.reduceat(left, starts), lengths)
    places = np.arange(len(verdict))
    return np.minimum.reduceat(np.where(left == most, places, len(places)), starts)
