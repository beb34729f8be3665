"""Counts by tone over time as bars: one bar for each interval, at most 60."""

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
_ROWS_SHOWN: Final = 24
_GAP: Final = 0.12


@dataclass(frozen=True, slots=True, kw_only=True)
class ToneBar:
    """Counts by tone at one instant."""

    at: datetime
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackedBars:
    """Bars over a range of time. `words` name the tones that occur."""

    title: str
    chosen: TimeRange
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
        pieces: dict[str, str] = {}
        for bar in self.bars:
            left, wide, under = self._left(bar.at), WIDTH / _MOST * (1 - _GAP), 0
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
        return f"{self.title}, {self.chosen.text}; at the end {newest}"

    @property
    def rows(self) -> list[ToneBar]:
        """Bars, the newest first, evenly left out where there are many."""
        stride = max(1, -(-len(self.bars) // _ROWS_SHOWN))
        return list(self.bars[::-1][::stride])

    def _left(self, at: datetime) -> float:
        return _place(self.chosen, at) * WIDTH / _MOST


def last_of_each_bar(rows: pa.Table, column: str, chosen: TimeRange, order: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The rows that count: of those in one interval, by their instants in `column`, the last by `order`, then by time;
    the earliest interval first. A range may have 25,000 reconciliations: few of them become Python's."""
    begin = np.datetime64(chosen.begin.replace(tzinfo=None), "us")
    span = int((chosen.end - chosen.begin).total_seconds() * 1e6)
    since = (rows[column].to_numpy() - begin).astype(np.int64)
    places = np.clip(since * _MOST // span, 0, _MOST - 1)
    ranked = rows.append_column("place", pa.array(places)).sort_by(
        [(name, "ascending") for name in ("place", *order, column)]
    )
    sorted_places = ranked["place"].to_numpy()
    is_last = np.append(sorted_places[1:] != sorted_places[:-1], True)[: len(sorted_places)]
    found: list[dict[str, Any]] = ranked.filter(pa.array(is_last)).to_pylist()
    return found


def _place(chosen: TimeRange, at: datetime) -> int:
    span = chosen.end - chosen.begin
    return int(min(max((at - chosen.begin) * _MOST // span, 0), _MOST - 1))
