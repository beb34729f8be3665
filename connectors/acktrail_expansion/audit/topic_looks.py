"""Looks at topics out of ``partition_observations``: counts of all of them, and logs of those that are asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.binary_column import BoolArray, Int64Array
from acktrail.format.columns.schemas.table_schemas import INSTANT, INT64, STRING
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail_expansion.law.order import NEVER

OBSERVATIONS: Final = "partition_observations"
LookPlace = tuple[str, int]
"""A topic id and an instant in microseconds: one look at one topic."""
Logs = Mapping[int, Mapping[str, Any]]
"""What one look saw of each log, by partition."""
_NAMES: Final = ("topic_id", "topic", "run_id", "consistency")
_LOOK: Final = (*_NAMES, "cluster_id", "observed_at", "listed_at", "partition_count", "is_gapless")
_LOG: Final = ("log_start_offset", "log_end_offset", "leader_epoch", "ended_epoch", "epoch_end_offset")
_BEFORE: Final = 3
"""Looks from before an expansion that are searched for each log's end."""
_CUT_OFF: Final = 999
"""Microseconds that the statistics of a Delta table do not have."""


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


def read_topics(tables: Tables, snapshot: TableSnapshot) -> tuple[set[str], dict[str, TopicLooks]]:
    """The clusters that looks are of, and the looks by topic id: rows of partition 0 stand for all of a topic."""
    paths = sorted(file.path for file in snapshot.files())
    where = (pc.field("partition") == 0) & pc.field("topic_id").is_valid() & (pc.field("partition_count") > 0)
    batches = tables.file_batches(OBSERVATIONS, paths, columns=_LOOK, where=where, dictionaries=_NAMES)
    rows = [batch for batch in batches if batch.num_rows]
    if not rows:
        return set(), {}
    whole = pa.Table.from_batches(rows)
    return {name for name in pc.unique(whole["cluster_id"]).to_pylist() if name}, dict(_by_topic(whole))


def _by_topic(rows: pa.Table) -> Iterator[tuple[str, TopicLooks]]:
    """Of several looks at a topic in one instant the first counts."""

    def says(name: str, value: object) -> BoolArray:
        found: BoolArray = pc.equal(rows[name], value).fill_null(fill_value=False).to_numpy()
        return found

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
    where = pc.field("partition").is_valid() & pc.field("observed_at").isin(pa.array(at, INSTANT))
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
