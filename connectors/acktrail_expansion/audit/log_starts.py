"""What the starts of logs say about verdicts: what the retention took, and first records that a group never got."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from acktrail_expansion.audit.found_expansions import Row, TopicExpansion
from acktrail_expansion.audit.topic_looks import Logs, LookPlace, TopicLooks
from acktrail_expansion.law.order import NEVER_YET
from acktrail_expansion.law.verdict import NotProven, OrderVerdict


def check_log_starts(
    rows: Sequence[Row],
    expansions: Mapping[str, Sequence[TopicExpansion]],
    looks: Mapping[str, TopicLooks],
    read: Callable[[Collection[LookPlace]], Mapping[LookPlace, Logs]],
) -> None:
    """Judge rows again where the retention took what was open, and say what groups skipped. `read` gives the logs of
    looks."""
    events = {each.row["event_id"]: each for own in expansions.values() for each in own}
    opened = [(row, _look(row, looks, "begun_at")) for row in rows if row["verdict"] == OrderVerdict.BROKEN]
    placed = [(row, _look(row, looks, "placed_at")) for row in rows if row.get("first_start_offset") is not None]
    logs = read({place for _, place in (*opened, *placed)})
    starts = {place: {n: log["log_start_offset"] or 0 for n, log in own.items()} for place, own in logs.items()}
    for row, place in opened:
        _expire(row, starts.get(place, {}), events[row["event_id"]].begins(row["partition"])[1] or 0)
    for row, place in placed:
        _skip(row, starts.get(place, {}), is_gapless=events[row["event_id"]].is_gapless)


def _look(row: Row, looks: Mapping[str, TopicLooks], instant: str) -> LookPlace:
    """The first look since then, or the newest: logs never begin at a lower offset than before."""
    if row["topic_id"] not in looks:
        return row["topic_id"], NEVER_YET
    at = looks[row["topic_id"]].at
    return row["topic_id"], int(at[min(int(np.searchsorted(at, row[instant] or 0)), len(at) - 1)])


def _expire(row: Row, starts: Mapping[int, int], begins: int) -> None:
    """Take from a broken verdict what the retention had taken when the destination was begun: that was not overtaken. A
    position follows the start of the log, too: then no record of the destination was begun."""
    has_moved = row["evidence"] == "commits" and starts.get(row["partition"], 0) > begins
    start = starts.get(row["source_partition"], 0)
    if has_moved or start > row["last_open"]:
        row |= {"verdict": OrderVerdict.NOT_PROVEN, "reason": NotProven.EXPIRED, "evidence": None}
    elif start > row["source_offset"]:
        row |= {"source_offset": start, "open_records": None}


def _skip(row: Row, starts: Mapping[int, int], *, is_gapless: bool) -> None:
    """Note the records before the offset where a share group was placed first."""
    skipped = row["first_start_offset"] - starts.get(row["partition"], row["first_start_offset"])
    if skipped > 0:
        row["skipped_records"] = skipped if is_gapless else None
        if row["verdict"] != OrderVerdict.BROKEN:
            row |= {"verdict": OrderVerdict.SKIPPED, "reason": None, "evidence": "state_records"}
