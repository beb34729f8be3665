"""Pictures of one expansion: how many partitions the topic had, and a group's position in a source against the "
"fence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from acktrail.model.expansion.ordering import OrderingVerdict
from acktrail_dashboard.offset_bands import short
from acktrail_dashboard.wording import instant, number

WIDTH: Final = 600
HEIGHT: Final = 130
_LEAST: Final = 3.0
"""An interval of time that a reader must not miss is at least so wide."""
_MOST_POINTS: Final = 400
_MARGIN: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountTimeline:
    """The partition count of one topic. `rows`: its expansions (``PARTITION_EXPANSIONS``), the first one first, at
    least one, with both looks known; `event_id`: the one that the page is about."""

    rows: tuple[Mapping[str, Any], ...]
    event_id: str
    begin: datetime
    end: datetime

    @property
    def line(self) -> str:
        """The path of the count: level between expansions, a slope from the last look with the old count to the first
        with the higher one."""
        path = f"M0 {short(self._top(self.rows[0]['old_count']))}"
        for row in self.rows:
            old, new = self._top(row["old_count"]), self._top(row["new_count"])
            path += f"H{short(self._left(row['last_seen_old_at']))}V{short(old)}"
            path += f"L{short(self._left(row['first_seen_new_at']))} {short(new)}"
        return f"{path}H{WIDTH}"

    @property
    def intervals(self) -> list[tuple[str, float, float]]:
        """Intervals of time as (class, x, width): between the two looks, and until producers know the count."""
        found = []
        for row in self.rows:
            is_own = "" if row["event_id"] == self.event_id else " of-other"
            last, first, settled = (row[name] for name in ("last_seen_old_at", "first_seen_new_at", "settles_at"))
            if settled is not None:
                found.append((f"settling{is_own}", *self._span(first, settled)))
            found.append((f"between{is_own}", *self._span(last, first)))
        return found

    @property
    def summary(self) -> str:
        """The picture in words."""
        steps = (
            f"{number(row['old_count'])} partitions at {instant(row['last_seen_old_at'])}, "
            f"{number(row['new_count'])} at {instant(row['first_seen_new_at'])}"
            for row in self.rows
        )
        return "; ".join(steps)

    def _top(self, count: int) -> float:
        most: int = self.rows[-1]["new_count"]
        least: int = self.rows[0]["old_count"]
        return 6 + (most - count) * (HEIGHT - 12) / ((most - least) or 1)

    def _left(self, moment: datetime) -> float:
        return _place(moment, self.begin, self.end)

    def _span(self, first: datetime, last: datetime) -> tuple[float, float]:
        left = self._left(first)
        return left, max(self._left(last) - left, _LEAST)


def count_timeline(rows: Sequence[Mapping[str, Any]], event_id: str, now: datetime) -> CountTimeline | None:
    """The timeline of a topic's expansions up to `now`; None: none of them has both looks and counts."""
    names = ("old_count", "new_count", "last_seen_old_at", "first_seen_new_at")
    known = [row for row in rows if all(row[name] is not None for name in names)]
    if not known:
        return None
    ordered = tuple(sorted(known, key=lambda row: (row["first_seen_new_at"], row["sequence"] or 0)))
    first, last = ordered[0]["last_seen_old_at"], max(now, ordered[-1]["first_seen_new_at"] + _MARGIN)
    return CountTimeline(rows=ordered, event_id=event_id, begin=first - (last - first) / 12 - _MARGIN, end=last)


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceChart:
    """Positions of a group in a source (instant and offset, at least one) against the fence `low` to `high` (None: not
    known), and the interval in which it began with the destination: not until `before` (None: not observed), and at
    `begun` (None: it has not begun); `is_certain` False: at `begun` it had perhaps begun."""

    points: tuple[tuple[datetime, int], ...]
    low: int | None
    high: int | None
    before: datetime | None
    begun: datetime | None
    is_certain: bool = True

    @property
    def begin(self) -> datetime:
        return self.points[0][0]

    @property
    def end(self) -> datetime:
        return self.points[-1][0]

    @property
    def line(self) -> str:
        """The path of the positions."""
        return "".join(
            f"{'L' if at else 'M'}{self._x(moment)} {self._y(p)}" for at, (moment, p) in enumerate(self.points)
        )

    @property
    def dots(self) -> str:
        """A path with a dot for each observation, drawn by round ends of lines without length."""
        return "".join(f"M{self._x(moment)} {self._y(position)}h0" for moment, position in self.points)

    @property
    def fence(self) -> tuple[str, float, float] | None:
        """The band between the fences as (class, y, height); up to the top where the high end is not known."""
        if self.low is None:
            return None
        bottom = float(self._y(self.low))
        top = 0.0 if self.high is None else float(self._y(self.high))
        return "open" if self.high is None else "known", top, max(bottom - top, 1.5)

    @property
    def beginning(self) -> tuple[float, float] | None:
        """The interval in which the destination was begun, as (x, width)."""
        if self.begun is None:
            return None
        left = _place(self.before or self.begun, self.begin, self.end)
        return left, max(_place(self.begun, self.begin, self.end) - left, _LEAST)

    @property
    def fence_text(self) -> str:
        """The fence in words."""
        if self.low is None:
            return "the fence is not known"
        upper = "an end that is not known yet" if self.high is None else number(self.high)
        return f"the fence is {number(self.low)} to {upper}"

    @property
    def summary(self) -> str:
        """The picture in words."""
        begun = "the destination was not begun"
        if self.begun is not None:
            until = f"was not begun until {instant(self.before)}, and " if self.before else ""
            perhaps = "" if self.is_certain else "perhaps "
            begun = f"the destination {until}was {perhaps}begun at {instant(self.begun)}"
        (first, lowest), (last, highest) = self.points[0], self.points[-1]
        return (
            f"Position from {number(lowest)} at {instant(first)} to {number(highest)} at {instant(last)}; "
            f"{self.fence_text}; "
            f"{begun}"
        )

    def _x(self, moment: datetime) -> str:
        return short(_place(moment, self.begin, self.end))

    def _y(self, offset: int) -> str:
        known = [p for _, p in self.points] + [each for each in (self.low, self.high) if each is not None]
        least, most = min(known), max(known)
        return short(8 + (most - offset) * (HEIGHT - 16) / ((most - least) or 1))


def fence_chart(positions: Sequence[Mapping[str, Any]], audit: Mapping[str, Any]) -> FenceChart | None:
    """Of rows of ``group_positions`` of a group in the source of `audit` (row of ``ordering_audits``), evenly left out
    where there are many; None: no position is known."""
    known = {
        row["observed_at"]: row["position"] for row in positions if None not in (row["observed_at"], row["position"])
    }
    if not known:
        return None
    points = sorted(known.items())
    stride = max(1, -(-len(points) // _MOST_POINTS))
    kept = tuple(dict.fromkeys((*points[::stride], points[-1])))
    verdict = audit["verdict"]
    return FenceChart(
        points=kept,
        low=audit["fence_low"],
        high=audit["fence_high"],
        before=audit["before_at"],
        begun=None if verdict == OrderingVerdict.NOT_STARTED.value else audit["at"],
        is_certain=verdict == OrderingVerdict.VIOLATION.value,
    )


def chart_span(row: Mapping[str, Any], audit: Mapping[str, Any]) -> tuple[datetime, datetime] | None:
    """Which observations a chart shows: from before the expansion `row` until the proof, and a quarter of that time
    around both."""
    begin = row["last_seen_old_at"] or row["first_seen_new_at"]
    ends = [each for each in (row["settles_at"], row["first_seen_new_at"], audit["at"]) if each is not None]
    if begin is None or not ends:
        return None
    margin = max((max(ends) - begin) / 2, timedelta(minutes=30))
    return begin - margin, max(ends) + margin


def _place(moment: datetime, begin: datetime, end: datetime) -> float:
    span = (end - begin) or timedelta(seconds=1)
    return min(max((moment - begin) / span, 0.0), 1.0) * WIDTH
