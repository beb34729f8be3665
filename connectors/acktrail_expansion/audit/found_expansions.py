"""Expansions with their fences: those that looks show, and those that only the tables have any more."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np

from acktrail.format.columns.schemas.table_schemas import INT64
from acktrail.tables.delta.store import Tables
from acktrail_expansion.audit.topic_looks import Growth, Logs, LookPlace, TopicLooks
from acktrail_expansion.law.order import NEVER_YET, NotProven, OrderVerdict, SourceFence
from acktrail_expansion.law.partition_ledger import (
    ExpansionStatus,
    FenceGap,
    KeyMapping,
    LogEnd,
    expansion_id,
    fence_of,
)

EXPANSIONS: Final = "partition_expansions"
FENCES: Final = "expansion_fences"
Row = dict[str, Any]
Change = tuple[str, int, int]
"""A topic id, its old count and its new one."""
Found = tuple[Row, list[Row]]
"""An expansion's row, instants in microseconds, and those of its fences by partition."""
_AUDIT: Final = "reset_audit"
_REQUESTS: Final = {"kind": "expand_topic", "event": ["before_call", "after_call"]}
_VOID: Final = {FenceGap.TRUNCATED, FenceGap.LEADERS_CHANGED}
_INSTANTS: Final = ("last_seen_old_at", "first_seen_new_at", "settles_at")
_BY_KEYS: Final = ("fence_exact", "keys_read_at", "keys_reason", "last_record_offset", "late_records")
"""The columns of a fence that come from keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicExpansion:
    """One expansion: rows of ``partition_expansions`` (instants in microseconds) and of ``expansion_fences``, by
    partition. `is_gapless`: every offset is a record's."""

    row: Row
    fences: Sequence[Row]
    is_gapless: bool

    @property
    def old_count(self) -> int:
        """Partitions before."""
        return int(self.row["old_count"])

    @property
    def new_count(self) -> int:
        """Partitions after."""
        return int(self.row["new_count"])

    def source(self, partition: int) -> SourceFence:
        """A partition with its fence, which ends with its last record where that is known."""
        fence = self.fences[partition]
        low, high, last = fence["fence_low"], fence["fence_high"], fence["last_record_offset"]
        if fence["fence_exact"] is not None:
            low = high = fence["fence_exact"] if last is None else last + 1
        known = -1 if low is None else low - 1 if self.is_gapless else -1 if last is None else last
        return SourceFence(
            partition=partition,
            low=low,
            high=high,
            last_record=known,
            is_gapless=self.is_gapless,
            before=fence["fence_low"] or 0,
        )

    def begins(self, partition: int) -> tuple[int | None, int | None]:
        """From which offset on records of a destination are perhaps, and for certain, from after the expansion."""
        if partition >= self.old_count:
            return 0, 0
        fence = self.source(partition)
        return fence.low, fence.high


def find_expansions(
    cluster_id: str,
    looks: Mapping[str, TopicLooks],
    read: Callable[[Collection[LookPlace]], Mapping[LookPlace, Logs]],
    settle_us: int,
    asked: Collection[Change],
) -> Iterator[Found]:
    """The expansions that looks show; `read` gives the logs of looks; `asked`: what acktrail made in one step, as one
    partition more is for certain."""
    growths = [(topic_id, each) for topic_id, own in looks.items() for each in own.growths(settle_us)]
    logs = read({(topic_id, int(looks[topic_id].at[number])) for topic_id, each in growths for number in each.wanted})
    for topic_id, each in growths:
        own, change = looks[topic_id], (topic_id, each.old_count, each.new_count)
        seen = {number: logs.get((topic_id, int(own.at[number])), {}) for number in each.wanted}
        named = {"cluster_id": cluster_id, "event_id": expansion_id(cluster_id, *change), "topic_id": topic_id}
        row = {
            **named,
            "topic": own.topic,
            "old_count": each.old_count,
            "new_count": each.new_count,
            "last_seen_old_at": int(own.at[each.last_old]),
            "first_seen_new_at": int(own.at[each.first_new]),
            "settles_at": each.settles_at,
            "status": (ExpansionStatus.SETTLED if each.has_settled[-1] else ExpansionStatus.SETTLING).value,
            "is_single": each.new_count == each.old_count + 1 or change in asked,
        }
        of_all = {**named, "topic": own.topic}
        yield row, [{**of_all, **_fence(each, seen, partition)} for partition in range(each.old_count)]


def _fence(growth: Growth, seen: Mapping[int, Logs], partition: int) -> Row:
    logs = {number: own.get(partition, {}) for number, own in seen.items()}
    ends = {number: end for number, log in logs.items() if (end := _log_end(log))}
    before = next((ends[number] for number in growth.before if number in ends), None)
    later = zip(growth.later, growth.has_settled, strict=True)
    known = [(ends[number], has_settled) for number, has_settled in later if number in ends]
    low, high, gap = fence_of(before, known, is_settled=growth.has_settled[-1])
    start = logs[growth.later[-1]].get("log_start_offset")
    fence = {"partition": partition, "fence_low": low, "fence_high": high, "log_start_offset": start, "reason": gap}
    return dict.fromkeys(_BY_KEYS) | fence


def _log_end(log: Mapping[str, Any]) -> LogEnd | None:
    end = log.get("log_end_offset")
    return None if end is None else LogEnd(end, log["leader_epoch"], log["ended_epoch"], log["epoch_end_offset"])


def with_stored(found: Iterable[Found], stored: Mapping[str, Found], looks: Mapping[str, TopicLooks]) -> list[Found]:
    """`found`, and the `stored` ones (by event id) that are older than every look at their topic that is left, by topic
    id and time. What keys showed is kept, and so are the fences of an expansion whose looks from before it are gone.
    Where a log lost records since, neither is."""
    rows = {row["event_id"]: (row, fences) for row, fences in found}
    for event_id, (was, known) in stored.items():
        if event_id in rows:
            row, fences = rows[event_id]
            row["is_single"] |= was["is_single"]
            for fence, before in zip(fences, known, strict=True):
                _keep(fence, before)
        elif was["topic_id"] not in looks or looks[was["topic_id"]].at[0] > was["last_seen_old_at"]:
            rows[event_id] = was, known
    return sorted(rows.values(), key=lambda own: (own[0]["topic_id"], own[0]["first_seen_new_at"]))


def _keep(fence: Row, before: Row) -> None:
    if fence["reason"] == FenceGap.NOT_SEEN_BEFORE:
        fence |= {name: before[name] for name in ("fence_low", "fence_high", "reason")}
    if not {fence["reason"], before["reason"]} & _VOID:
        fence |= {name: before[name] for name in _BY_KEYS}


def by_topic(
    rows: Iterable[Found], looks: Mapping[str, TopicLooks], run_id: str, mapping_of: Callable[[str], KeyMapping]
) -> dict[str, list[TopicExpansion]]:
    """Expansions with what the newest looks and the settings say, by topic id, numbered in each."""
    found = {}
    for topic_id, every in groupby(rows, key=lambda own: str(own[0]["topic_id"])):
        is_gapless = topic_id in looks and looks[topic_id].is_gapless
        found[topic_id] = [
            TopicExpansion(
                row={**row, "sequence": number, "run_id": run_id, "key_mapping": mapping_of(row["topic"]).value},
                fences=fences,
                is_gapless=is_gapless,
            )
            for number, (row, fences) in enumerate(every, start=1)
        ]
    return found


def stored_expansions(tables: Tables) -> dict[str, Found]:
    """The rows of each expansion that the run before wrote, by event id. One that lacks a fence is left out."""
    fences: dict[str, list[Row]] = defaultdict(list)
    for fence in tables.read(FENCES).sort_by("partition").to_pylist():
        fences[fence["event_id"]].append(fence)
    rows = tables.read(EXPANSIONS)
    for name in _INSTANTS:
        rows = rows.set_column(rows.column_names.index(name), name, rows[name].cast(INT64))
    pairs = {row["event_id"]: (row, fences[row["event_id"]]) for row in rows.to_pylist()}
    return {event_id: own for event_id, own in pairs.items() if len(own[1]) == own[0]["old_count"]}


def asked_expansions(tables: Tables) -> frozenset[Change]:
    """Those that a controller carried out when `acktrail change apply` asked for them: right before, each broker that
    answered listed the old count, and one request led to the new one. A request without an answer proves nothing."""
    if not tables.exists(_AUDIT):
        return frozenset()
    rows = tables.rows(_AUDIT, _REQUESTS, columns=["plan_id", "attempt", "event", "outcome", "detail"])
    done = {(row["plan_id"], row["attempt"]) for row in rows if row["outcome"] == "done"}
    asked = [row for row in rows if row["event"] == "before_call" and (row["plan_id"], row["attempt"]) in done]
    return frozenset(
        (each["topic_id"], each["from"], each["to"]) for each in (json.loads(row["detail"]) for row in asked)
    )


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
