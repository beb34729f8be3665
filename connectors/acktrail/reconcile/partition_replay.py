"""State partitions to states: the newest state of each share partition, as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.model_values import RECORD_COLUMNS, share_partition_of
from acktrail.columnar.replaying.decoded_records import replay_decoded
from acktrail.columnar.replaying.state_columns import REPLAYED_STATES, states_of
from acktrail.columnar.schemas.table_schemas import STATE_RECORDS
from acktrail.model.observation import Completeness
from acktrail.model.replay import SharePartitionState
from acktrail.model.share_partition import SharePartition, state_partition_of
from acktrail.reconcile.coverage import Coverage
from acktrail.reconcile.newest_offsets import HEAD_COLUMNS, Heads, survivors
from acktrail.reconcile.observed_run import Observation
from acktrail.reconcile.saved.saved_replay import Memory, memory_rows, states_in, timestamps_in
from acktrail.reconcile.state_rules import broken_rules
from acktrail.reconcile.state_values import NO_STATE, int64, state_columns

__all__ = ["Read", "Replay", "replay_rows"]

Read = Callable[[Sequence[str], pc.Expression], Iterable[pa.RecordBatch]]
"""Reads columns of ``state_records`` where an expression holds, piece by piece and in any order."""

_Row = dict[str, Any]
_REPLAY_COLUMNS: Final = ("state_partition", "timestamp_ms", *RECORD_COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What replay knows of one share partition on one state partition."""

    head: Mapping[str, Any]
    key: SharePartition
    state: SharePartitionState | None
    archived_seen: int
    timestamp_ms: int | None


def replay_rows(read: Read, observation: Observation, coverages: Sequence[Coverage]) -> Iterator[_Row]:
    """The rows of a ``Replay`` of everything."""
    return Replay(read, observation, coverages).rows()


class Replay:
    """The state partitions of `coverages`, replayed from what `memory` has of them to where their coverage ends.

    Two passes over the records that are not in `memory`: the first finds the newest snapshot or tombstone of each share
    partition, the second reads only what follows it and folds that (``decoded_records``). Working memory holds
    those records, not the history. Going on from the memory of an earlier replay gives what a replay of all gives.
    """

    def __init__(
        self, read: Read, observation: Observation, coverages: Sequence[Coverage], memory: Memory | None = None
    ) -> None:
        self._read = read
        self._observation = observation
        self._memory = memory or Memory()
        self._exported = {coverage.state_partition: coverage for coverage in coverages if coverage.end_offset}
        self._heads = Heads()
        self._memory.into(self._heads)
        for batch in read(HEAD_COLUMNS, self._new()) if self._exported else ():
            self._heads.add(_table(batch))
        self._states: dict[int, pa.Table] = {}
        self._timestamps: dict[int, dict[int, int | None]] = {}
        self._fold()

    def rows(self) -> Iterator[_Row]:
        """One row (columns of ``REPLAYED``) for every share partition that has a state, or may have one; those whose
        newest record is a tombstone have none."""
        for state_partition, own in _by_state_partition(self._heads.live().sort_by("state_partition")).items():
            states = {state.key: state for state in states_of(self._states[state_partition])}
            for head in own.to_pylist():
                found = _found(head, self._heads, states, self._timestamps[state_partition])
                yield _row(found, self._observation, self._exported[state_partition])

    def remembered(self) -> pa.Table:
        """Rows of ``MEMORY_COLUMNS``: what the next replay goes on from."""
        states = pa.concat_tables([REPLAYED_STATES.empty_table(), *self._states.values()])
        times = {(number, at): time for number, own in self._timestamps.items() for at, time in own.items()}
        return memory_rows(self._heads, states, times)

    def _fold(self) -> None:
        heads = self._heads.all()
        needed = self._needed(heads)
        records = _by_state_partition(needed)
        before = _by_state_partition(self._memory.rows.sort_by("state_partition"))
        for state_partition, own in _by_state_partition(heads.sort_by("state_partition")).items():
            new = records.get(state_partition, needed.slice(0, 0))
            known = before.get(state_partition, self._memory.rows.slice(0, 0))
            self._states[state_partition] = replay_decoded(new, states_in(known))
            times = _timestamps(new, own["last_record_offset"])
            self._timestamps[state_partition] = {**timestamps_in(known), **times}

    def _new(self) -> pc.Expression:
        """The records that are not in the memory."""
        return _any(_from(coverage, self._begin(number)) for number, coverage in self._exported.items())

    def _begin(self, state_partition: int) -> int:
        return self._memory.positions.get(state_partition, 0)

    def _needed(self, heads: pa.Table) -> pa.Table:
        """The new records that replay needs, in log order by state partition."""
        bases = heads.select(["state_partition"]).append_column("base", pc.fill_null(heads["base_offset"], 0))
        first = bases.group_by("state_partition", use_threads=False).aggregate([("base", "min")]).to_pylist()
        begins = {row["state_partition"]: max(row["base_min"], self._begin(row["state_partition"])) for row in first}
        new = {n: begin for n, begin in begins.items() if begin < (self._exported[n].end_offset or 0)}
        pieces = [STATE_RECORDS.empty_table().select(list(_REPLAY_COLUMNS))]
        if new:
            where = _any(_from(self._exported[number], begin) for number, begin in new.items())
            pieces.extend(survivors(_table(batch), heads) for batch in self._read(_REPLAY_COLUMNS, where))
        return pa.concat_tables(pieces).sort_by([("state_partition", "ascending"), ("offset", "ascending")])


def _table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def _from(coverage: Coverage, first: int) -> pc.Expression:
    """Records of a state partition from offset `first` to where its coverage ends."""
    offset = pc.field("offset")
    return (
        (pc.field("state_partition") == coverage.state_partition) & (offset >= first) & (offset < coverage.end_offset)
    )


def _any(conditions: Iterable[pc.Expression]) -> pc.Expression:
    return reduce(or_, conditions)


def _by_state_partition(ascending: pa.Table) -> dict[int, pa.Table]:
    """The rows of each state partition, by which `ascending` is sorted."""
    counts = ascending["state_partition"].value_counts()
    ends = np.cumsum(counts.field("counts").to_numpy()).tolist()
    spans = zip(counts.field("values").to_pylist(), [0, *ends], ends, strict=False)
    return {state_partition: ascending.slice(begin, end - begin) for state_partition, begin, end in spans}


def _timestamps(records: pa.Table, offsets: pa.ChunkedArray) -> dict[int, int | None]:
    """The timestamps of the records at `offsets`."""
    asked = records.select(["offset", "timestamp_ms"]).filter(pc.is_in(records["offset"], value_set=offsets))
    return dict(zip(*(column.to_pylist() for column in asked.columns), strict=True))


def _found(
    head: _Row, heads: Heads, states: Mapping[SharePartition, SharePartitionState], timestamps: Mapping[int, int | None]
) -> _Found:
    key = share_partition_of(head)
    return _Found(
        head=head,
        key=key,
        state=states.get(key),
        archived_seen=heads.archived_seen((head["state_partition"], key.group_id, key.topic_id, key.partition)),
        timestamp_ms=timestamps.get(head["last_record_offset"]),
    )


def _row(found: _Found, observation: Observation, coverage: Coverage) -> _Row:
    count = observation.state_partition_count
    completeness, reason = _completeness(found, coverage)
    return {
        "cluster_id": observation.cluster_id,
        "run_id": observation.run_id,
        "observed_at": observation.observed_at,
        "group_id": found.key.group_id,
        "topic_id": found.key.topic_id,
        "partition": found.key.partition,
        "topic": None,
        "state_partition": coverage.state_partition,
        "archived_seen": int64(found.archived_seen),
        "last_record_offset": found.head["last_record_offset"],
        "last_record_timestamp_ms": found.timestamp_ms,
        "completeness": completeness.value,
        "completeness_reason": reason,
        "is_misplaced": count is not None and state_partition_of(found.key, count) != coverage.state_partition,
        **{name: found.head[name] for name in ("initialized_at", "archived_at", "unreadable_at")},
        **(NO_STATE if found.state is None else state_columns(found.state)),
        "broken_rules": () if found.state is None else broken_rules(found.state),
    }


def _completeness(found: _Found, coverage: Coverage) -> tuple[Completeness, str | None]:
    base = -1 if found.head["base_offset"] is None else found.head["base_offset"]
    unreadable, gap = found.head["unreadable_at"], coverage.gap_after(base)
    if unreadable is not None and unreadable > base:
        return Completeness.UNREADABLE, (
            f"the record at offset {unreadable} of state partition {coverage.state_partition} could not be decoded"
        )
    if gap is not None:
        return Completeness.GAP, (
            f"offsets {gap.first_offset} to {gap.last_offset} of state partition {coverage.state_partition} "
            "were not exported, and no snapshot came after them"
        )
    if found.state is not None and found.state.state_epoch is None:
        return Completeness.NO_SNAPSHOT, "only updates were seen"
    return Completeness.COMPLETE, None
