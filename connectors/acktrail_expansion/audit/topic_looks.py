"""Looks at topics out of ``partition_observations``: counts of all of them, and logs of those that are asked for."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.columnar.schemas.schema_types import INSTANT, INT64
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.times import utc_text
from acktrail_expansion.law.partition_ledger import LogEpochs, TopicObservation
from acktrail_expansion.words import counted

OBSERVATIONS: Final = "partition_observations"
LookPlace = tuple[str, int]
"""A topic id and an instant in microseconds: one look at one topic."""
Logs = Mapping[int, Mapping[str, Any]]
"""What one look saw of each log, by partition."""
_NAMES: Final = ("topic_id", "topic", "run_id", "consistency")
_LOOK: Final = (*_NAMES, "cluster_id", "observed_at", "listed_at", "partition_count", "is_gapless")
_LOG: Final = ("log_start_offset", "log_end_offset", "leader_epoch", "ended_epoch", "epoch_end_offset")
_STRADDLES: Final = "straddles"
_CONSISTENT: Final = "consistent"
_BEFORE: Final = 3
"""Looks from before an expansion that are searched for each log's end."""
_CUT_OFF: Final = 999
"""Microseconds that the statistics of a Delta table do not have."""


@dataclass(frozen=True, slots=True)
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

    @property
    def fall(self) -> str:
        """The newest look with fewer partitions than the one before, and how many there are; empty: none."""
        falls = 1 + np.flatnonzero(self.count[1:] < self.count[:-1])
        if not len(falls):
            return ""
        newest = int(falls[-1])
        at = utc_text(dt.datetime.fromtimestamp(int(self.at[newest]) / 1_000_000, dt.UTC))
        counts = f"from {self.count[newest - 1]:,} to {counted(int(self.count[newest]), 'partition')}"
        return f"{counts} in the look of {at}; looks where it falls: {len(falls):,}"

    def wanted(self, settle_us: int) -> set[int]:
        """The looks that show expansions and their fences, and the newest; none where there is no expansion."""
        most = np.maximum.accumulate(self.count)
        grown = [1 + int(each) for each in np.flatnonzero(self.count[1:] > most[:-1])]
        found = {0, len(self.at) - 1} if grown else set()
        for new in grown:
            old = np.flatnonzero(self.count[:new] == most[new - 1])
            sound = old[self.is_sound[old]]
            found |= {*old[-1:].tolist(), *sound[-_BEFORE:].tolist(), *range(new, self.settled(new, settle_us) + 1)}
        return found

    def settled(self, new: int, settle_us: int) -> int:
        """The first look with every log from `settle_us` after every broker knew what look `new` shows, or the last."""
        known = np.flatnonzero(self.is_sound[new:])
        settles_at = self.listed[new + known[0]] + settle_us if len(known) else np.iinfo(np.int64).max
        return self.first_whole(int(settles_at)) or len(self.at) - 1

    def first_whole(self, since: int) -> int | None:
        """The first look from an instant on with the end of every log."""
        found = np.flatnonzero(self.is_whole & (self.at >= since))
        return int(found[0]) if len(found) else None


def read_topics(tables: Tables, snapshot: TableSnapshot) -> tuple[set[str], dict[str, TopicLooks]]:
    """The clusters that looks are of, and the looks by topic id: rows of partition 0 stand for all of a topic."""
    paths = sorted(file.path for file in snapshot.files())
    where, names = pc.field("partition") == 0, (*_NAMES, "cluster_id")
    batches = [*tables.file_batches(OBSERVATIONS, paths, columns=_LOOK, where=where, dictionaries=names)]
    if not any(batch.num_rows for batch in batches):
        return set(), {}
    rows = pa.Table.from_batches(batches).unify_dictionaries()
    return {name for name in pc.unique(rows["cluster_id"]).to_pylist() if name}, dict(_by_topic(rows))


def read_logs(tables: Tables, snapshot: TableSnapshot, wanted: Collection[LookPlace]) -> dict[LookPlace, Logs]:
    """What looks saw of the logs. Files without one of the instants are not read."""
    instants = np.unique([at for _, at in wanted]) if wanted else np.empty(0, np.int64)
    spans = file_spans(snapshot).items()
    paths = [path for path, (first, last) in spans if np.diff(np.searchsorted(instants, [first, last + 1]))[0]]
    where = pc.field("partition").is_valid() & pc.field("observed_at").isin(pa.array(instants, INSTANT))
    topics = {name: number for number, name in enumerate(sorted({topic_id for topic_id, _ in wanted}))}
    keys = [topics[topic_id] * len(instants) + int(np.searchsorted(instants, at)) for topic_id, at in wanted]
    found: dict[LookPlace, dict[int, dict[str, Any]]] = {}
    columns = ["topic_id", "observed_at", "partition", *_LOG]
    for batch in tables.file_batches(
        OBSERVATIONS, sorted(paths), columns=columns, where=where, dictionaries=_NAMES[:1]
    ):
        names, codes = _numbered(pa.chunked_array([batch["topic_id"]]))
        topic = np.array([*(topics.get(name, -1) for name in names), -1])[codes]
        place = np.searchsorted(instants, batch["observed_at"].cast(INT64).to_numpy())
        is_own = (topic >= 0) & np.isin(topic * len(instants) + place, keys)
        for row in batch.filter(pa.array(is_own)).to_pylist():
            found.setdefault((row["topic_id"], _us(row["observed_at"])), {})[row["partition"]] = row
    return dict(found)


def observation(looks: TopicLooks, number: int, logs: Logs) -> TopicObservation:
    """One look, for the ledger."""
    own = [logs.get(each, {}) for each in range(int(looks.count[number]))]
    return TopicObservation(
        observed_at_ms=int(looks.at[number]) // 1_000,
        listed_at_ms=-(-int(looks.listed[number]) // 1_000),
        is_consistent=bool(looks.is_sound[number]),
        log_ends=tuple(each.get("log_end_offset") for each in own),
        log_starts=tuple(each.get("log_start_offset") for each in own),
        epochs=tuple(
            LogEpochs(
                leader=each.get("leader_epoch"), ended=each.get("ended_epoch"), ended_at=each.get("epoch_end_offset")
            )
            for each in own
        ),
    )


def _by_topic(rows: pa.Table) -> Iterator[tuple[str, TopicLooks]]:
    """Of several looks at a topic in one instant the first counts."""
    names, codes = zip(*(_numbered(rows[name]) for name in _NAMES), strict=True)
    topic, at = codes[0], rows["observed_at"].cast(INT64).to_numpy()
    listed = np.maximum(at, pc.coalesce(rows["listed_at"], rows["observed_at"]).cast(INT64).to_numpy())
    count = rows["partition_count"].fill_null(0).to_numpy().astype(np.int64)
    order = np.lexsort((at, topic))
    order = order[(topic[order] >= 0) & (count[order] > 0)]
    again = (topic[order[1:]] == topic[order[:-1]]) & (at[order[1:]] == at[order[:-1]])
    order = order[np.concatenate([np.ones(min(1, len(order)), np.bool_), ~again])]
    straddles, consistent = (names[3].index(each) if each in names[3] else -2 for each in (_STRADDLES, _CONSISTENT))
    said = rows["is_gapless"]
    gapless, has_gaps = (pc.equal(said, each).fill_null(fill_value=False).to_numpy() for each in (True, False))
    edges = [0, *(1 + np.flatnonzero(topic[order[1:]] != topic[order[:-1]])).tolist(), len(order)]
    for begin, end in pairwise(edges):
        own = order[begin:end]
        if len(own):
            topic_id, name, run_id = (names[n][codes[n][own[-1]]] for n in range(3))
            is_sound, is_whole = codes[3][own] != straddles, codes[3][own] == consistent
            is_gapless = bool(gapless[own[-1]] and not has_gaps[own].any())
            found = TopicLooks(
                name, run_id, at[own], listed[own], count[own], is_sound, is_whole, is_gapless=is_gapless
            )
            yield topic_id, found


def _numbered(column: pa.ChunkedArray) -> tuple[list[str], Int64Array]:
    own = column.unify_dictionaries().combine_chunks()
    return own.dictionary.to_pylist(), own.indices.fill_null(-1).to_numpy().astype(np.int64)


def file_spans(snapshot: TableSnapshot) -> dict[str, tuple[int, int]]:
    """The first and the last instant of each file of looks, by its path, in microseconds."""
    found = {}
    for path, own in snapshot.statistics(("min.observed_at", "max.observed_at")).items():
        first, last = own["min.observed_at"], own["max.observed_at"]
        found[path] = (0 if first is None else _us(first), 2**62 if last is None else _us(last) + _CUT_OFF)
    return found


def _us(instant: Any) -> int:
    return int(pa.scalar(instant, INSTANT).value)
