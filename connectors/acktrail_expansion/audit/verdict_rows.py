"""Rows of ``expansion_verdicts``: what marks, state records and log starts prove together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail_expansion.audit.destinations import KeyDestination, Source, destinations, expire, verdict_columns
from acktrail_expansion.audit.found_expansions import TopicExpansion
from acktrail_expansion.audit.position_marks import SHARE, Lanes
from acktrail_expansion.audit.share_evidence import ByTopic, ShareKey
from acktrail_expansion.audit.topic_looks import Logs, LookPlace, TopicLooks
from acktrail_expansion.law.order import NEVER, NEVER_YET, Judged, Marks, judge_by_looks
from acktrail_expansion.law.verdict import NotProven, OrderVerdict

Row = dict[str, Any]
GroupMarks = Mapping[int, Marks]
"""Those of one group, by lane."""
ReadLogs = Callable[[Collection[LookPlace]], Mapping[LookPlace, Logs]]
_NOTHING: Final[Mapping[str, None]] = dict.fromkeys(TABLES["expansion_verdicts"].names)
_UNSEEN: Final = Marks()


def lanes_of(expansions: ByTopic) -> Lanes:
    """The partitions of all expansions, one lane each."""
    most = max((len(own) for own in expansions.values()), default=1)
    begins, ends = (np.zeros((most, len(expansions)), np.int64) for _ in range(2))
    columns: list[tuple[int, int, int, int, int]] = []
    for topic, own in enumerate(expansions.values()):
        for place, each in enumerate(own):
            begins[place, topic] = len(columns)
            columns += [_lane(each, partition) for partition in range(each.new_count)]
            ends[place, topic] = len(columns)
    idle, begun, low, high, reached_at = np.array(columns, np.int64).reshape(-1, 5).T
    since = np.array([own[0].row["last_seen_old_at"] for own in expansions.values()], np.int64)
    return Lanes(tuple(expansions), begins, ends, since, idle, begun, low, high, reached_at)


def _lane(each: TopicExpansion, partition: int) -> tuple[int, int, int, int, int]:
    idle, begun = each.begins(partition)
    low, high = each.ends(partition) if partition < each.old_count else (None, None)
    is_before = high is not None and high <= (each.fences[partition]["fence_low"] or 0)
    reached_at = each.row["last_seen_old_at"] if is_before else each.settled_at
    return _or(idle, NEVER_YET), _or(begun, NEVER), _or(low, 0), _or(high, NEVER), _or(reached_at, NEVER)


def _or(value: int | None, nothing: int) -> int:
    return nothing if value is None else value


def verdict_rows(
    expansions: ByTopic,
    lanes: Lanes,
    marks: Mapping[tuple[str, str], GroupMarks],
    evidence: Mapping[ShareKey, Mapping[str, Any]],
) -> Iterator[Row]:
    """A row for every destination of each group that has a position or a state in its topic."""
    topic_of = {each.row["event_id"]: topic_id for topic_id, own in expansions.items() for each in own}
    of_shares = {(group_id, topic_of[event_id]) for group_id, event_id, _ in evidence}
    for number, (topic_id, own) in enumerate(expansions.items()):
        begins = lanes.begins[:, number].tolist()
        groups = {group: found for group, found in marks.items() if begins[0] in found}
        every = list(destinations(own))
        nothing = ((group_id, SHARE) for group_id, name in sorted(of_shares) if name == topic_id)
        for (group_id, kind), found in {**{each: {} for each in nothing}, **groups}.items():
            judge = partial(_by_looks, own, begins, found, is_share=kind == SHARE)
            for each in every:
                event = own[each.event].row
                shown = evidence.get((group_id, event["event_id"], each.partition)) if kind == SHARE else None
                yield {
                    **_NOTHING,
                    **{name: event[name] for name in ("cluster_id", "run_id", "event_id", "topic_id", "topic")},
                    "group_id": group_id,
                    "group_type": kind,
                    "partition": each.partition,
                    **_better(verdict_columns(each.judged(partial(judge, each))), shown),
                }


def _better(seen: Row, shown: Mapping[str, Any] | None) -> Row:
    """What looks prove of a share group, and what state records do."""
    is_against = shown is not None and (shown["verdict"] == OrderVerdict.BROKEN or shown["reason"] == NotProven.RESET)
    if shown is None or (seen["verdict"] == OrderVerdict.SAFE and not is_against):
        starts = {name: None if shown is None else shown[name] for name in ("first_start_offset", "placed_at")}
        return {**seen, **starts}
    return dict(shown)


def _by_looks(
    own: Sequence[TopicExpansion],
    begins: Sequence[int],
    marks: GroupMarks,
    destination: KeyDestination,
    source: Source,
    *,
    is_share: bool,
) -> Judged:
    event, (place, partition) = own[source[0]], source
    low, high = event.ends(partition)
    to = marks.get(begins[destination.event] + destination.partition, _UNSEEN)
    of, last = marks.get(begins[place] + partition, _UNSEEN), event.last_record(partition)
    found = judge_by_looks(to, of, low=low, high=high, last_record=last, partition=partition, is_share=is_share)
    if found.verdict is OrderVerdict.BROKEN and event.is_gapless:
        return replace(found, open_records=(low or 0) - of.below)
    return found


def check_log_starts(
    rows: Sequence[Row],
    expansions: ByTopic,
    looks: Mapping[str, TopicLooks],
    newest: Mapping[str, Logs],
    read: ReadLogs,
) -> None:
    """Judge rows again where the retention may have taken what was open, and say what groups skipped. `newest`: the
    logs in the newest look of each topic; `read` gives those of other looks, around the instants that rows rest on."""
    events = {each.row["event_id"]: each for own in expansions.values() for each in own}
    opened = [(row, row["begun_at"]) for row in rows if _may_be_gone(row, newest.get(row["topic_id"], {}))]
    placed = [(row, row["placed_at"]) for row in rows if row["first_start_offset"] is not None]
    places = [(row["topic_id"], _look(looks.get(row["topic_id"]), at)) for row, at in (*opened, *placed)]
    logs = read(set(places))
    for place, (row, _) in zip(places, opened, strict=False):
        begins = events[row["event_id"]].begins(row["partition"])[1] or 0
        has_moved = row["evidence"] == "commits" and (_start(logs, place, row["partition"]) or 0) > begins
        expire(row, NEVER if has_moved else _start(logs, place, row["source_partition"]) or 0)
    for place, (row, _) in zip(places[len(opened) :], placed, strict=True):
        log_start = _start(logs, place, row["partition"])
        if log_start is not None and log_start < row["first_start_offset"]:
            _skip(row, log_start, is_gapless=events[row["event_id"]].is_gapless)


def _may_be_gone(row: Row, newest: Logs) -> bool:
    """A position follows the start of the log, too: then no record of the destination was begun."""
    source, to = (newest.get(row[name], {}).get("log_start_offset") for name in ("source_partition", "partition"))
    is_broken = row["verdict"] == OrderVerdict.BROKEN and row["last_open"] is not None
    return is_broken and ((source or 0) > row["source_offset"] or bool(to))


def _start(logs: Mapping[LookPlace, Logs], place: LookPlace, partition: int) -> int | None:
    """Where a log began at a look."""
    return logs.get(place, {}).get(partition, {}).get("log_start_offset")


def _look(looks: TopicLooks | None, at: int | None) -> int:
    """The instant of the first look since then, or of the newest: logs never begin at a lower offset than before."""
    if looks is None:
        return NEVER_YET
    place = 0 if at is None else int(np.searchsorted(looks.at, at))
    return int(looks.at[min(place, len(looks.at) - 1)])


def _skip(row: Row, log_start: int, *, is_gapless: bool) -> None:
    row["skipped_records"] = row["first_start_offset"] - log_start if is_gapless else None
    if row["verdict"] != OrderVerdict.BROKEN:
        row |= {"verdict": OrderVerdict.SKIPPED.value, "reason": None, "evidence": "state_records"}
