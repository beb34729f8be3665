"""The partition count of a topic over time as a picture: level between expansions, a slope from the last look with the
old count to the first with the new one.

Example: from 2 to 4 between 10:00 and 11:00, drawn from 09:00 to 12:00 on a width of 600: ``M0 104H200L400 6H600``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from acktrail_dashboard.offset_bands import short
from acktrail_dashboard.wording import instant, number

WIDTH: Final = 600
HEIGHT: Final = 110
_LEAST: Final = 3.0
"""An interval that a reader must not miss is at least so wide."""
_NEEDED: Final = ("old_count", "new_count", "last_seen_old_at", "first_seen_new_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class CountPicture:
    """`path` of the count; `spans`: left end and width of the interval between the two looks, then of the time until
    producers know the count; `words`: the same for who does not see it."""

    path: str
    spans: tuple[tuple[float, float], ...]
    begin: datetime
    end: datetime
    words: str


def count_picture(rows: Iterable[Mapping[str, Any]], event_id: str, now: datetime) -> CountPicture | None:
    """Of the expansions of one topic, with the intervals of `event_id`; None: looks or counts are not known."""
    known = sorted(
        (row for row in rows if all(row[name] is not None for name in _NEEDED)),
        key=lambda row: (row["first_seen_new_at"], row["new_count"]),
    )
    own = next((row for row in known if row["event_id"] == event_id), None)
    if own is None:
        return None
    least, most = known[0]["old_count"], known[-1]["new_count"]
    first, end = known[0]["last_seen_old_at"], max(now, known[-1]["first_seen_new_at"])
    begin = first - (end - first) / 12 - timedelta(seconds=1)

    def left(moment: datetime) -> float:
        return min(max((moment - begin) / (end - begin), 0.0), 1.0) * WIDTH

    def top(count: int) -> str:
        return short(6 + (most - count) * (HEIGHT - 12) / ((most - least) or 1))

    def span(start: datetime, stop: datetime) -> tuple[float, float]:
        return left(start), max(left(stop) - left(start), _LEAST)

    path, words = f"M0 {top(least)}", []
    for row in known:
        last, seen = row["last_seen_old_at"], row["first_seen_new_at"]
        path += f"H{short(left(last))}V{top(row['old_count'])}L{short(left(seen))} {top(row['new_count'])}"
        words.append(
            f"{number(row['old_count'])} partitions at {instant(last)}, {number(row['new_count'])} at {instant(seen)}"
        )
    settles = own["settles_at"] or now
    spans = (span(own["last_seen_old_at"], own["first_seen_new_at"]), span(own["first_seen_new_at"], settles))
    return CountPicture(path=f"{path}H{WIDTH}", spans=spans, begin=begin, end=end, words="; ".join(words))
