"""Lines over time: one grid of instants, the values of each line on it; as data for the script and as a table.

A bucket without a row had no reconciliation, or nothing moved: levels stay as they were, counts are none.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from acktrail.view.wording import number

_MOST_POINTS: Final = 500
_ROWS_SHOWN: Final = 24
_MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLine:
    """One line: a label, the class of its colour, and a value at each instant (None: not known)."""

    label: str
    name: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendChart:
    """Lines over instants that are `step` apart, from `begin` on; at least one. `from_zero`: the scale has 0."""

    title: str
    unit: str
    begin: datetime
    step: timedelta
    lines: tuple[ChartLine, ...]
    from_zero: bool

    @property
    def data(self) -> str:
        """For the script, as JSON: seconds since the epoch, and values."""
        lines = [{"label": line.label, "name": line.name, "values": line.values} for line in self.lines]
        whole = {
            "begin": int(self.begin.timestamp()),
            "step": int(self.step.total_seconds()),
            "zero": self.from_zero,
            "lines": lines,
        }
        return json.dumps(whole, separators=(",", ":"))

    @property
    def summary(self) -> str:
        """The picture in words."""
        known = [value for line in self.lines for value in line.values if value is not None] or [0]
        values = f"from {_text(min(known))} to {_text(max(known))} {self.unit}"
        return f"{self.title}: {values}; the values are in the table below"

    @property
    def rows(self) -> list[tuple[datetime, list[str]]]:
        """Instants with the value of each line, the newest first, evenly left out where there are many."""
        count = len(self.lines[0].values)
        stride = max(1, -(-count // _ROWS_SHOWN))
        return [
            (self.begin + at * self.step, [_text(line.values[at]) for line in self.lines])
            for at in range(count - 1, -1, -stride)
        ]


def charts_of(trend: pa.Table, until: datetime | None, *, offsets: bool) -> list[TrendChart]:
    """Unfinished records and rates of rows of ``queue_trends`` (one share partition, or one group, ascending), and with
    `offsets` the first unfinished offset, the end offset and the log end. `until`: the newest observation; levels are
    known up to it. None for no rows."""
    if not trend.num_rows:
        return []
    rows = trend.to_pylist()
    grid = _Grid.of(rows, until)
    unfinished = [("unfinished_records", "unfinished records"), ("most_unfinished_records", "the most")]
    found = [grid.levels("Unfinished records", rows, unfinished, from_zero=True)]
    if offsets:
        names = [
            ("log_end_offset", "log end"),
            ("end_offset", "end offset"),
            ("first_unfinished_offset", "first unfinished offset"),
            ("log_start_offset", "log start"),
        ]
        kept = [pair for pair in names if pair[0] != "log_start_offset" or _is_near(rows)]
        found.insert(0, grid.levels("First unfinished offset, end offset and log end", rows, kept, from_zero=False))
    return [*found, grid.rates("Acknowledged, released and archived", rows)]


def _is_near(rows: Sequence[dict[str, Any]]) -> bool:
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
    def of(cls, rows: Sequence[dict[str, Any]], until: datetime | None) -> _Grid:
        begin, last = rows[0]["bucket_at"].astimezone(UTC), rows[-1]["bucket_at"].astimezone(UTC)
        end = last if until is None else max(last, until)
        steps = [timedelta(milliseconds=length) for length in sorted({row["bucket_ms"] for row in rows})]
        step = next((each for each in steps if (end - begin) // each < _MOST_POINTS), steps[-1])
        return cls(begin=begin, step=step, count=min((end - begin) // step + 1, _MOST_POINTS))

    def place(self, row: dict[str, Any]) -> int:
        return int(min(max((row["bucket_at"] - self.begin) // self.step, 0), self.count - 1))

    def levels(
        self, title: str, rows: Sequence[dict[str, Any]], names: Sequence[tuple[str, str]], *, from_zero: bool
    ) -> TrendChart:
        lines = []
        for column, label in names:
            at = {self.place(row): row[column] for row in rows}
            last = None
            values = [last := at.get(index, last) for index in range(self.count)]
            lines.append(ChartLine(label=label, name=column.replace("_", "-"), values=tuple(values)))
        return self._chart(title, "records" if from_zero else "", lines, from_zero=from_zero)

    def rates(self, title: str, rows: Sequence[dict[str, Any]]) -> TrendChart:
        lines = []
        for column in ("acknowledged", "released", "archived"):
            values: list[float | None] = [0.0] * self.count
            for row in rows:
                at, count = self.place(row), row[column]
                rate = None if count is None else round(count * _MINUTE_MS / row["bucket_ms"], 1)
                width = max(1, timedelta(milliseconds=row["bucket_ms"]) // self.step)
                values[at : at + width] = [rate] * min(width, self.count - at)
            lines.append(ChartLine(label=column, name=column, values=tuple(values)))
        return self._chart(title, "records a minute", lines, from_zero=True)

    def _chart(self, title: str, unit: str, lines: Sequence[ChartLine], *, from_zero: bool) -> TrendChart:
        return TrendChart(
            title=title, unit=unit, begin=self.begin, step=self.step, lines=tuple(lines), from_zero=from_zero
        )


def _text(value: float | None) -> str:
    if value is None or value == int(value):
        return number(None if value is None else int(value))
    return f"{value:,.1f}"
