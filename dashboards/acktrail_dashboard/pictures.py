"""What became of each record past a start offset, as bands of offsets; and lines over time, as data for the script and
as a table.

The window of a share partition goes from its start offset to the end of what its state mentions. Kafka never persists
*acquired*: a record that a consumer holds right now is *available* here.

Lines have one grid of instants, and the values of each line on it. A bucket without a row had no reconciliation, or
nothing moved: levels stay as they were, counts are none.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa

from acktrail.model.batches import DURABLE_STATES, StateBatch
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.view.partition_rows import PartitionKey, TableRow, row_key
from acktrail.view.wording import canonical, counted, number

STRIP_WIDTH: Final = 240
"""Units across a picture of bands: no picture has more of them."""
STRIP_HEIGHT: Final = 14
_LEAST: Final = 3.0
"""Bands that a reader must not miss are at least so wide."""
_MOST_POINTS: Final = 500
_ROWS_SHOWN: Final = 24
_MINUTE_MS: Final = 60_000
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


class BandKind(StrEnum):
    """What is known of a run of offsets."""

    AVAILABLE = "available"
    ACKNOWLEDGED = "acknowledged"
    ARCHIVING = "archiving"
    ARCHIVED = "archived"
    UNKNOWN = "unknown"
    REMOVED = "removed"
    """Below the log start: the log no longer has them."""


_KINDS: Final[Mapping[int, BandKind]] = {state: BandKind(state.name.lower()) for state in DURABLE_STATES}
_ORDER: Final = (
    BandKind.ACKNOWLEDGED, BandKind.AVAILABLE, BandKind.REMOVED, BandKind.UNKNOWN, BandKind.ARCHIVING, BandKind.ARCHIVED
)  # fmt: skip
"""What is drawn later covers what is drawn earlier."""
_NEVER_HIDDEN: Final = frozenset({BandKind.ARCHIVED, BandKind.ARCHIVING, BandKind.UNKNOWN})


@dataclass(frozen=True, slots=True, kw_only=True)
class StateWindow:
    """Offsets `start` (inclusive) to `end` (exclusive) of one share partition.

    `is_complete` false: offsets that no batch covers are not known to be available. `log_start` None: not observed.
    """

    start: int
    end: int
    batches: tuple[StateBatch, ...]
    is_complete: bool = True
    log_start: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetBand:
    """Offsets `first` to `last`, both inclusive, of one kind."""

    kind: BandKind
    first: int
    last: int


def state_windows(
    states: pa.Table, reconciliations: pa.Table, keys: Collection[PartitionKey]
) -> dict[PartitionKey, StateWindow]:
    """The windows of the share partitions in `keys` whose start offset is known."""
    ends = reconciliations.select([*KEY_COLUMNS, "log_start_offset"]).to_pylist()
    log_starts = {row_key(row): row["log_start_offset"] for row in ends}
    columns = [*KEY_COLUMNS, "start_offset", "batches", "completeness"]
    wanted = pa.array([row_key(row) in keys for row in states.select(list(KEY_COLUMNS)).to_pylist()], pa.bool_())
    chosen = states.select(columns).filter(wanted).to_pylist()
    found = {row_key(row): state_window(row, log_start=log_starts.get(row_key(row))) for row in chosen}
    return {key: window for key, window in found.items() if window is not None}


def state_window(row: TableRow, *, log_start: int | None = None) -> StateWindow | None:
    """The window of a row with `start_offset` and `batches`, complete where it has no `completeness` that says
    otherwise; None: the start offset is not known."""
    is_complete = canonical(row.get("completeness", "complete")) == "complete"
    batches, start = tuple(StateBatch(**batch) for batch in row["batches"] or ()), row["start_offset"]
    if start is None:
        return None
    end = max((start, *(batch.last_offset + 1 for batch in batches)))
    return StateWindow(start=start, end=end, batches=batches, is_complete=is_complete, log_start=log_start)


def bands(window: StateWindow) -> tuple[OffsetBand, ...]:
    """Ascending, disjoint bands that cover the window without a hole; neighbours differ in kind."""
    cut = _cut_at_log_start(_cover(window), window.log_start)
    same_kind = (tuple(neighbours) for _, neighbours in groupby(cut, lambda band: band.kind))
    return tuple(OffsetBand(kind=own[0].kind, first=own[0].first, last=own[-1].last) for own in same_kind)


def _cover(window: StateWindow) -> Iterator[OffsetBand]:
    between = BandKind.AVAILABLE if window.is_complete else BandKind.UNKNOWN
    reached = window.start
    for batch in sorted(window.batches, key=lambda batch: batch.first_offset):
        first, last = max(batch.first_offset, reached), batch.last_offset
        if last < first:
            continue
        if first > reached:
            yield OffsetBand(kind=between, first=reached, last=first - 1)
        yield OffsetBand(kind=_KINDS.get(batch.delivery_state, BandKind.UNKNOWN), first=first, last=last)
        reached = last + 1
    if reached < window.end:
        yield OffsetBand(kind=between, first=reached, last=window.end - 1)


def _cut_at_log_start(covering: Iterable[OffsetBand], log_start: int | None) -> Iterator[OffsetBand]:
    """Available and unknown records below the log start are gone; a decision that was taken stays one."""
    for band in covering:
        if log_start is None or band.first >= log_start or band.kind not in {BandKind.AVAILABLE, BandKind.UNKNOWN}:
            yield band
            continue
        yield OffsetBand(kind=BandKind.REMOVED, first=band.first, last=min(band.last, log_start - 1))
        if band.last >= log_start:
            yield OffsetBand(kind=band.kind, first=log_start, last=band.last)


def records_by_kind(drawn: Collection[OffsetBand]) -> dict[BandKind, int]:
    """The number of offsets of each kind."""
    counts = {kind: sum(band.last - band.first + 1 for band in drawn if band.kind is kind) for kind in BandKind}
    return {kind: count for kind, count in counts.items() if count}


def scaled_bands(drawn: Iterable[OffsetBand], width: int) -> dict[BandKind, list[tuple[float, float]]]:
    """Bands that cover a window, by kind as (from, to) on a scale of 0 to `width`, in the order to draw them.

    What must not be missed covers the rest, is wide enough to be seen, and is one where it is less than a unit apart.
    Of the other kinds every unit has as much as it has offsets of them, each in one piece.
    """
    every = [*drawn]
    if not every:
        return {}
    start, scale = every[0].first, width / (every[-1].last + 1 - every[0].first)
    found: dict[BandKind, list[tuple[float, float]]] = {kind: [] for kind in _ORDER}
    for kind, begin, end in _unit_shares(every, width):
        if kind not in _NEVER_HIDDEN:
            found[kind].append((begin, end))
    for band in (each for each in every if each.kind in _NEVER_HIDDEN):
        begin = max(0.0, min((band.first - start) * scale, width - _LEAST))
        end = max((band.last + 1 - start) * scale, begin + _LEAST)
        own = found[band.kind]
        if own and begin - own[-1][1] < 1:
            begin = own.pop()[0]
        own.append((begin, end))
    return {kind: own for kind, own in found.items() if own}


def _unit_shares(every: list[OffsetBand], width: int) -> Iterator[tuple[BandKind, float, float]]:
    """Disjoint (kind, from, to), in order: where a unit has several bands of a kind, they stand where the first one
    does."""
    start, total = every[0].first, every[-1].last + 1 - every[0].first
    units: list[Counter[BandKind]] = [Counter() for _ in range(width)]
    for band in every:  # in whole numbers: a unit is `total` long
        at, end = (band.first - start) * width, (band.last + 1 - start) * width
        while at < end:
            begin, at = at, min(end, (at // total + 1) * total)
            units[begin // total][band.kind] += at - begin
    at = 0
    for kind, own in groupby(chain.from_iterable(unit.items() for unit in units), itemgetter(0)):
        begin, at = at, at + sum(share for _, share in own)
        yield kind, begin / total, at / total


def strip_paths(drawn: Iterable[OffsetBand], width: int = STRIP_WIDTH) -> list[tuple[BandKind, str]]:
    """The path in SVG of each kind of band, in the order to draw them; `width`: units across all of them."""
    return [
        (kind, "".join(f"M{short(x)} 0h{short(to - x)}v{STRIP_HEIGHT}h-{short(to - x)}z" for x, to in pieces))
        for kind, pieces in scaled_bands(drawn, width).items()
    ]


def strip_label(drawn: tuple[OffsetBand, ...]) -> str:
    """The same in words."""
    counts = (f"{number(count)} {kind}" for kind, count in records_by_kind(drawn).items())
    total = counted(drawn[-1].last - drawn[0].first + 1, "record")
    return f"{total} from offset {number(drawn[0].first)}: {', '.join(counts)}"


def short(value: float) -> str:
    """Two decimals at most."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"


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
    def rows(self) -> list[tuple[datetime, list[str]]]:
        """Instants with the value of each line, the newest first, evenly left out where there are many."""
        every = [*zip(*self.lines.values(), strict=True)]
        stride = max(1, -(-len(every) // _ROWS_SHOWN))
        return [(self.begin + at * self.step, [*map(_text, every[at])]) for at in range(len(every) - 1, -1, -stride)]


def charts_of(trend: pa.Table, until: datetime | None, *, offsets: bool) -> list[TrendChart]:
    """Unfinished records and rates of rows of ``queue_trends`` (one share partition, or one group, ascending), and with
    `offsets` the first unfinished offset, the end offset and the log end. `until`: the newest observation; levels are
    known up to it. None for no rows."""
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
        begin, last = rows[0]["bucket_at"].astimezone(UTC), rows[-1]["bucket_at"].astimezone(UTC)
        end = last if until is None else max(last, until)
        steps = [timedelta(milliseconds=length) for length in sorted({row["bucket_ms"] for row in rows})]
        step = next((each for each in steps if (end - begin) // each < _MOST_POINTS), steps[-1])
        return cls(begin=begin, step=step, count=min((end - begin) // step + 1, _MOST_POINTS))

    def chart(self, title: str, unit: str, lines: Mapping[str, Values], *, from_zero: bool = True) -> TrendChart:
        return TrendChart(title=title, unit=unit, begin=self.begin, step=self.step, lines=lines, from_zero=from_zero)

    def levels(self, rows: Rows, names: Mapping[str, str]) -> dict[str, Values]:
        """A level stays until the next row."""
        found = {}
        for column, label in names.items():
            at = {self._place(row): row[column] for row in rows}
            last = None
            found[label] = tuple(last := at.get(index, last) for index in range(self.count))
        return found

    def rates(self, rows: Rows, column: str) -> Values:
        """The rate of a longer interval stands at all the instants that it covers; none without a row."""
        values: list[float | None] = [0.0] * self.count
        for row in rows:
            at, count = self._place(row), row[column]
            rate = None if count is None else round(count * _MINUTE_MS / row["bucket_ms"], 1)
            width = max(1, timedelta(milliseconds=row["bucket_ms"]) // self.step)
            values[at : at + width] = [rate] * min(width, self.count - at)
        return tuple(values)

    def _place(self, row: Mapping[str, Any]) -> int:
        return int(min(max((row["bucket_at"] - self.begin) // self.step, 0), self.count - 1))


def _text(value: float | None) -> str:
    if value is None or value == int(value):
        return number(None if value is None else int(value))
    return f"{value:,.1f}"
