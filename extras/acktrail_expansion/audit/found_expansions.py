"""Expansions with their fences: those that looks show, and those that only the tables have any more.

Looks come out of ``partition_observations``: counts of all topics, and logs of those that are asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.dataclass_json import stored_object
from acktrail.format.columns.binary_column import BoolArray, Int64Array
from acktrail.format.columns.schemas.table_schemas import INSTANT, INT64, STRING
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot, one_of
from acktrail_expansion import EXPANSIONS, FENCES, OBSERVATIONS
from acktrail_expansion.ordering.order import (
    NEVER,
    ExpansionStatus,
    FenceGap,
    KeyMapping,
    LogEnd,
    SourceFence,
    expansion_id,
    fence_of,
)

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


LookPlace = tuple[str, int]
"""A topic id and an instant in microseconds: one look at one topic."""
Logs = Mapping[int, Mapping[str, Any]]
"""What one look saw of each log, by partition."""
_NAMES: Final = ("topic_id", "topic", "run_id", "consistency")
_LOOK: Final = (*_NAMES, "observed_at", "listed_at", "partition_count", "is_gapless")
_LOG: Final = ("log_start_offset", "log_end_offset", "leader_epoch", "ended_epoch", "epoch_end_offset")
_BEFORE: Final = 3
"""Looks from before an expansion that are searched for each log's end."""
_CUT_OFF: Final = 999
"""Microseconds that the statistics of a Delta table do not have."""


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
    details = (stored_object(row["detail"], _AUDIT, "detail") for row in asked)
    return frozenset((each["topic_id"], each["from"], each["to"]) for each in details)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """An expansion as looks show it: it lies between `last_old` and `first_new`. `before`: looks with the old count
    that every broker knew, the newest first; `later`: those with the new one or more, up to the first with every log
    since `settles_at`, then the newest of all, and of each whether it came after that."""

    old_count: int
    new_count: int
    last_old: int
    first_new: int
    before: list[int]
    later: list[int]
    has_settled: list[bool]
    settles_at: int | None

    @property
    def wanted(self) -> list[int]:
        """The looks whose logs show its fences."""
        return [*self.before, *self.later]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLooks:
    """The looks at one topic, oldest first; arrays of shape (n,), instants in microseconds. `listed`: when every broker
    had listed it; `is_sound`: every broker knew the count; `is_whole`: and every log was asked. `is_gapless`: in all
    looks every offset was a record's, as far as they know."""

    topic: str
    newest_run: str
    at: Int64Array
    listed: Int64Array
    count: Int64Array
    is_sound: BoolArray
    is_whole: BoolArray
    is_gapless: bool

    def growths(self, settle_us: int) -> Iterator[Growth]:
        """Each count above all before it. One that fell and is reached again, as a broker with old metadata or a clock
        that was set back makes it look, is no growth. Producers use the old count for `settle_us` after the first look
        in which every broker knew the new one, or more: up to there a broker may have given them the old one."""
        most = np.maximum.accumulate(self.count)
        for new in (1 + np.flatnonzero(most[1:] > most[:-1])).tolist():
            old = np.flatnonzero(self.count[:new] == most[new - 1])
            later = new + np.flatnonzero(self.count[new:] >= most[new])
            known = later[self.is_sound[later]]
            settles_at = int(self.listed[known[0]]) + settle_us if len(known) else None
            has_settled = self.at[later] >= (NEVER if settles_at is None else settles_at)
            end = np.flatnonzero(self.is_whole[later] & has_settled)
            chosen = [*range(end[0] + 1 if len(end) else len(later)), -1]
            yield Growth(
                old_count=int(most[new - 1]),
                new_count=int(most[new]),
                last_old=int(old[-1]),
                first_new=new,
                before=old[self.is_sound[old]][: -_BEFORE - 1 : -1].tolist(),
                later=later[chosen].tolist(),
                has_settled=has_settled[chosen].tolist(),
                settles_at=settles_at,
            )


def read_topics(tables: Tables, snapshot: TableSnapshot) -> dict[str, TopicLooks]:
    """The looks by topic id: rows of partition 0 stand for all of a topic."""
    paths = sorted(file.path for file in snapshot.files())
    where = (pc.field("partition") == 0) & pc.field("topic_id").is_valid() & (pc.field("partition_count") > 0)
    batches = tables.file_batches(OBSERVATIONS, paths, columns=_LOOK, where=where, dictionaries=_NAMES)
    rows = [batch for batch in batches if batch.num_rows]
    return dict(_by_topic(pa.Table.from_batches(rows))) if rows else {}


def _by_topic(rows: pa.Table) -> Iterator[tuple[str, TopicLooks]]:
    """Of several looks at a topic in one instant the first counts."""

    def says(name: str, value: object) -> BoolArray:
        return pc.equal(rows[name], value).fill_null(fill_value=False).to_numpy()

    at = rows["observed_at"].cast(INT64).to_numpy()
    listed = np.maximum(at, pc.coalesce(rows["listed_at"], rows["observed_at"]).cast(INT64).to_numpy())
    count = rows["partition_count"].to_numpy().astype(np.int64)
    is_sound, is_whole = ~says("consistency", value="straddles"), says("consistency", value="consistent")
    gapless, has_gaps = says("is_gapless", value=True), says("is_gapless", value=False)
    for (topic_id,), every in by_names(rows, ("topic_id",)):
        own = every[np.unique(at[every], return_index=True)[1]]
        newest = {name: rows[name][int(own[-1])].as_py() for name in ("topic", "run_id")}
        yield (
            topic_id,
            TopicLooks(
                topic=newest["topic"],
                newest_run=newest["run_id"],
                at=at[own],
                listed=listed[own],
                count=count[own],
                is_sound=is_sound[own],
                is_whole=is_whole[own],
                is_gapless=bool(gapless[own[-1]] and not has_gaps[own].any()),
            ),
        )


def by_names(rows: pa.Table, names: Sequence[str]) -> Iterator[tuple[tuple[str, ...], Int64Array]]:
    """The places of the rows that have the same texts in the columns `names`, dictionaries without nulls."""
    columns = [rows.select([name]).unify_dictionaries().combine_chunks()[name].chunk(0) for name in names]
    code = np.zeros(len(rows), np.int64)
    for column in columns:
        code = code * len(column.dictionary) + column.indices.to_numpy()
    order = np.argsort(code, kind="stable")
    for own in np.split(order, 1 + np.flatnonzero(np.diff(code[order]))):
        yield tuple(column[int(own[0])].as_py() for column in columns), own


def read_logs(tables: Tables, snapshot: TableSnapshot, wanted: Collection[LookPlace]) -> dict[LookPlace, Logs]:
    """What looks saw of the logs. Files without one of the instants are not read."""
    topics, instants = ([each[side] for each in wanted] for side in (0, 1))
    places = pa.table({"topic_id": pa.array(topics, STRING), "observed_at": pa.array(instants, INSTANT)})
    spans, at = file_spans(snapshot).items(), np.unique(np.array(instants, np.int64))
    paths = [path for path, (first, last) in spans if np.diff(np.searchsorted(at, [first, last + 1]))[0]]
    where = pc.field("partition").is_valid() & one_of("observed_at", pa.array(at, INSTANT))
    columns = ["topic_id", "observed_at", "partition", *_LOG]
    found: dict[LookPlace, dict[int, dict[str, Any]]] = {}
    for batch in tables.file_batches(OBSERVATIONS, sorted(paths), columns=columns, where=where):
        own = pa.Table.from_batches([batch]).join(places, keys=columns[:2], join_type="left semi")
        for row in own.to_pylist():
            found.setdefault((row["topic_id"], _us(row["observed_at"])), {})[row["partition"]] = row
    return dict(found)


def file_spans(snapshot: TableSnapshot) -> dict[str, tuple[int, int]]:
    """The first and the last instant of each file of looks, by its path, in microseconds."""
    found = {}
    for path, own in snapshot.statistics(("min.observed_at", "max.observed_at")).items():
        first, last = own["min.observed_at"], own["max.observed_at"]
        found[path] = (0 if first is None else _us(first), 2**62 if last is None else _us(last) + _CUT_OFF)
    return found


def _us(instant: Any) -> int:
    return int(pa.scalar(instant, INSTANT).value)
