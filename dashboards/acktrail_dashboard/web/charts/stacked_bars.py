"""Counts by tone over time as bars: one bar for each interval, at most 60, over the time that has any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa

from acktrail_dashboard.offset_bands import short
from acktrail_dashboard.web.time_ranges import TimeRange
from acktrail_dashboard.wording import TONES, number

WIDTH: Final = 600
HEIGHT: Final = 120
_MOST: Final = 60
_FEWEST: Final = 15
_ROWS_SHOWN: Final = 24
_GAP: Final = 0.12


@dataclass(frozen=True, slots=True, kw_only=True)
class ToneBar:
    """Counts by tone at one instant."""

    at: datetime
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackedBars:
    """Bars over the time `drawn`. `words` name the tones that occur."""

    title: str
    drawn: TimeRange
    bars: tuple[ToneBar, ...]
    words: Mapping[str, str]

    @property
    def tones(self) -> list[str]:
        """Tones that occur, the most urgent first."""
        return [tone for tone in TONES if any(bar.counts.get(tone) for bar in self.bars)]

    @property
    def paths(self) -> list[tuple[str, str]]:
        """The path of each tone, stacked, the most urgent at the bottom."""
        most = max((sum(bar.counts.values()) for bar in self.bars), default=0) or 1
        places, pieces = self._places, dict[str, str]()
        for bar in self.bars:
            left, wide, under = _place(self.drawn, bar.at, places) * WIDTH / places, WIDTH / places * (1 - _GAP), 0
            for tone in self.tones:
                count = bar.counts.get(tone, 0)
                if count:
                    top, high = HEIGHT - (under + count) * HEIGHT / most, count * HEIGHT / most
                    piece = f"M{short(left)} {short(top)}h{short(wide)}v{short(high)}h-{short(wide)}z"
                    pieces[tone] = pieces.get(tone, "") + piece
                    under += count
        return [(tone, pieces[tone]) for tone in self.tones if tone in pieces]

    @property
    def summary(self) -> str:
        """The newest bar in words."""
        if not self.bars:
            return self.title
        newest = ", ".join(f"{number(self.bars[-1].counts.get(tone, 0))} {self.words[tone]}" for tone in self.tones)
        return f"{self.title}, {self.drawn.text}; at the end {newest}"

    @property
    def rows(self) -> list[ToneBar]:
        """Bars, the newest first, evenly left out where there are many."""
        stride = max(1, -(-len(self.bars) // _ROWS_SHOWN))
        return list(self.bars[::-1][::stride])

    @property
    def _places(self) -> int:
        """Few bars are wide, as long as each has a place of its own."""
        for places in (_FEWEST, 2 * _FEWEST):
            if len({_place(self.drawn, bar.at, places) for bar in self.bars}) == len(self.bars):
                return places
        return _MOST


def last_of_each_bar(rows: pa.Table, column: str, drawn: TimeRange, order: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The rows that count: of those in one interval, by their instants in `column`, the last by `order`, then by time;
    the earliest interval first. A range may have 25,000 reconciliations: few of them become Python's."""
    begin = np.datetime64(drawn.begin.replace(tzinfo=None), "us")
    span = int((drawn.end - drawn.begin).total_seconds() * 1e6)
    since = (rows[column].to_numpy() - begin).astype(np.int64)
    places = np.clip(since * _MOST // span, 0, _MOST - 1)
    ranked = rows.append_column("place", pa.array(places)).sort_by(
        [(name, "ascending") for name in ("place", *order, column)]
    )
    sorted_places = ranked["place"].to_numpy()
    is_last = np.append(sorted_places[1:] != sorted_places[:-1], True)[: len(sorted_places)]
    found: list[dict[str, Any]] = ranked.filter(pa.array(is_last)).to_pylist()
    return found


def _place(drawn: TimeRange, at: datetime, places: int) -> int:
    span = drawn.end - drawn.begin
    return int(min(max((at - drawn.begin) * places // span, 0), places - 1))
