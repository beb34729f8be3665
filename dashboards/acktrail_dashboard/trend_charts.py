"""Lines over time, as data for the script and as a table.

They have one grid of instants, and the values of each line on it. A bucket without a row had no reconciliation, or
nothing moved: levels stay as they were, counts are none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from acktrail.view.wording import number

_MOST_POINTS: Final = 500
_ROWS_SHOWN: Final = 24
_MINUTE: Final = timedelta(minutes=1)
_OFFSETS: Final = {
    "log_end_offset": "log end",
    "end_offset": "end offset",
    "first_unfinished_offset": "first unfinished offset",
    "log_start_offset": "log start",
}
_UNFINISHED: Final = {"unfinished_records": "unfinished records", "most_unfinished_records": "the most"}
_OUTCOMES: Final = ("acknowledged", "released", "archived")
Rows = list[dict[str, Any]]
Values = tuple[float | None, ...]
"""At each instant; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendChart:
    """Lines by label over instants that are `step` apart, from `begin` on; at least one. `from_zero`: the scale has
    0."""

    title: str
    unit: str
    begin: datetime
    step: timedelta
    lines: Mapping[str, Values]
    from_zero: bool = True

    @property
    def data(self) -> str:
        """For the script, as JSON: seconds since the epoch, and values."""
        lines = [{"label": label, "values": values} for label, values in self.lines.items()]
        begin, step = int(self.begin.timestamp()), int(self.step.total_seconds())
        return json.dumps({"begin": begin, "step": step, "zero": self.from_zero, "lines": lines}, separators=(",", ":"))

    @property
    def summary(self) -> str:
        """The picture in words."""
        known = [value for values in self.lines.values() for value in values if value is not None] or [0]
        span = f"from {_text(min(known))} to {_text(max(known))} {self.unit}"
        return f"{self.title}: {span}; the values are in the table below"

    @property
    def columns(self) -> list[str]:
        """The titles of the table."""
        return ["Time", *(f"#{label}" for label in self.lines)]

    @property
    def rows(self) -> list[tuple[datetime, list[str]]]:
        """Instants with the value of each line, the newest first, evenly left out where there are many."""
        every = [*zip(*self.lines.values(), strict=True)]
        stride = max(1, -(-len(every) // _ROWS_SHOWN))
        return [(self.begin + at * self.step, [*map(_text, every[at])]) for at in range(len(every) - 1, -1, -stride)]


def charts_of(trend: pa.Table, until: datetime | None, *, offsets: bool) -> list[TrendChart]:
    """Unfinished records and rates of rows of ``queue_trends`` (one share partition, or one group, ascending), and with
    `offsets` the first unfinished offset, the end offset and the log end. `until`: the newest observation; levels are
    known up to it. None for no rows.

    A level stands at its observation, a rate at the time between two of them, which counts are divided by."""
    rows = trend.to_pylist()
    if not rows:
        return []
    grid = _Grid.of(rows, until)
    rates = {name: grid.rates(rows, name) for name in _OUTCOMES}
    found = [
        grid.chart("Unfinished records", "records", grid.levels(rows, _UNFINISHED)),
        grid.chart("Acknowledged, released and archived", "records a minute", rates),
    ]
    if offsets:
        names = {name: label for name, label in _OFFSETS.items() if name != "log_start_offset" or _is_near(rows)}
        title = "First unfinished offset, end offset and log end"
        found.insert(0, grid.chart(title, "", grid.levels(rows, names), from_zero=False))
    return found


def _is_near(rows: Rows) -> bool:
    """Whether the log start is so near that drawing it does not flatten the other lines."""
    last = rows[-1]
    log_start, start, end = (last[name] for name in ("log_start_offset", "first_unfinished_offset", "log_end_offset"))
    if None in (log_start, start, end):
        return False
    return bool(start - log_start <= 2 * max(end - (rows[0]["first_unfinished_offset"] or start), 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    begin: datetime
    step: timedelta
    count: int

    @classmethod
    def of(cls, rows: Rows, until: datetime | None) -> _Grid:
        length, (begin, end) = min(row["bucket_ms"] for row in rows), (_seen_at(rows[0]), _seen_at(rows[-1]))
        end = end if until is None else max(end, until)
        steps = (timedelta(milliseconds=length * times) for times in (1, 3, 12, 36, 72, 288, 2_016))
        step = next((each for each in steps if (end - begin) // each < _MOST_POINTS - 1), timedelta(days=30))
        return cls(begin=begin, step=step, count=min(-(-(end - begin) // step) + 1, _MOST_POINTS))

    def chart(self, title: str, unit: str, lines: Mapping[str, Values], *, from_zero: bool = True) -> TrendChart:
        return TrendChart(title=title, unit=unit, begin=self.begin, step=self.step, lines=lines, from_zero=from_zero)

    def levels(self, rows: Rows, names: Mapping[str, str]) -> dict[str, Values]:
        """A level stays until the next row."""
        found = {}
        for column, label in names.items():
            at = {self._place(_seen_at(row)): row[column] for row in rows}
            last = None
            found[label] = tuple(last := at.get(index, last) for index in range(self.count))
        return found

    def rates(self, rows: Rows, column: str) -> Values:
        """Counts by the time since the observation before. An idle row stands for later ones that are left out: then
        that time is at most an interval. The first row has no observation before it."""
        values: list[float | None] = [0.0] * self.count
        values[0], before = None, rows[0]
        for row in rows:
            length, at = timedelta(milliseconds=row["bucket_ms"]), _seen_at(row)
            is_idle = before["unfinished_records"] == 0 and not any(before[name] for name in _OUTCOMES)
            begin = max(_seen_at(before), at - length) if is_idle else _seen_at(before)
            if (elapsed := at - begin) > timedelta():
                rate = None if row[column] is None else round(row[column] * _MINUTE / elapsed, 1)
                first, last = self._place(begin), self._place(at)
                values[first + 1 : last + 1] = [rate] * (last - first)
            before = row
        return tuple(values)

    def _place(self, instant: datetime) -> int:
        """The first instant of the grid that is not before `instant`."""
        return int(min(max(-((self.begin - instant) // self.step), 0), self.count - 1))


def _seen_at(row: Mapping[str, Any]) -> datetime:
    return (row["observed_at"] or row["bucket_at"]).astimezone(UTC)  # type: ignore[no-any-return]


def _text(value: float | None) -> str:
    if value is None or value == int(value):
        return number(None if value is None else int(value))
    return f"{value:,.1f}"
