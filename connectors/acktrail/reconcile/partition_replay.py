"""State partitions to states: the newest state of each share partition, as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.model_values import RECORD_COLUMNS
from acktrail.columnar.replaying.decoded_records import replay_decoded
from acktrail.columnar.replaying.state_columns import REPLAYED_STATES
from acktrail.columnar.schemas.table_fields import INSTANT
from acktrail.columnar.schemas.table_schemas import SHARE_PARTITION_STATES, STATE_RECORDS
from acktrail.model.reconciliation_input import Completeness
from acktrail.reconcile.coverage import Coverage
from acktrail.reconcile.derived_columns import derived_columns
from acktrail.reconcile.newest_offsets import HEAD_COLUMNS, Heads, survivors
from acktrail.reconcile.observed_run import Observation
from acktrail.reconcile.saved.saved_replay import SavedReplay, rows_to_save, states_in, timestamps_in
from acktrail.reconcile.share_partition_keys import state_partitions_of

__all__ = ["REPLAYED", "Read", "Replay", "replayed_states"]

Read = Callable[[Sequence[str], pc.Expression], Iterable[pa.RecordBatch]]
"""Reads columns of ``state_records`` where an expression holds, piece by piece and in any order."""

REPLAYED: Final = pa.schema(
    [
        *SHARE_PARTITION_STATES,
        pa.field("is_misplaced", pa.bool_()),
        pa.field("initialized_at", pa.int64()),
        pa.field("archived_at", pa.int64()),
        pa.field("unreadable_at", pa.int64()),
        pa.field("broken_rules", pa.list_(pa.string())),
    ]
)
"""A replayed share partition, with the offsets of the records that show something about it."""

_REPLAY_COLUMNS: Final = ("state_partition", "timestamp_ms", *RECORD_COLUMNS)


class Replay:
    """The state partitions of `coverages`, replayed from what `memory` has of them to where their coverage ends.

    Two passes over the records that are not in `memory`: the first finds the newest snapshot or tombstone of each share
    partition, the second reads only what follows it and folds that (``decoded_records``). Working memory holds
    those records, not the history. Going on from the memory of an earlier replay gives what a replay of all gives.
    """

    def __init__(
        self, read: Read, observation: Observation, coverages: Sequence[Coverage], saved: SavedReplay | None = None
    ) -> None:
        self._read = read
        self._observation = observation
        self._saved = saved or SavedReplay()
        self._exported = {coverage.state_partition: coverage for coverage in coverages if coverage.end_offset}
        self._heads = Heads()
        self._saved.into(self._heads)
        for batch in read(HEAD_COLUMNS, self._new()) if self._exported else ():
            self._heads.add(_table(batch))
        self._states: dict[int, pa.Table] = {}
        self._timestamps: dict[int, dict[int, int | None]] = {}
        self._fold()

    def states(self) -> pa.Table:
        """Rows of ``REPLAYED`` (see ``replayed_states``)."""
        return replayed_states(self.rows(), self._observation, self._exported)

    def rows(self) -> pa.Table:
        """Rows of ``SAVED_COLUMNS``: what the replay leaves of every share partition."""
        states = pa.concat_tables([REPLAYED_STATES.empty_table(), *self._states.values()])
        times = {(number, at): time for number, own in self._timestamps.items() for at, time in own.items()}
        return rows_to_save(self._heads, states, times)

    def _fold(self) -> None:
        heads = self._heads.all()
        needed = self._needed(heads)
        records = _by_state_partition(needed)
        before = _by_state_partition(self._saved.rows.sort_by("state_partition"))
        for state_partition, own in _by_state_partition(heads.sort_by("state_partition")).items():
            new = records.get(state_partition, needed.slice(0, 0))
            known = before.get(state_partition, self._saved.rows.slice(0, 0))
            self._states[state_partition] = replay_decoded(new, states_in(known))
            times = _timestamps(new, own["last_record_offset"])
            self._timestamps[state_partition] = {**timestamps_in(known), **times}

    def _new(self) -> pc.Expression:
        """The records that are not in the memory."""
        return _any(_from(coverage, self._begin(number)) for number, coverage in self._exported.items())

    def _begin(self, state_partition: int) -> int:
        return self._saved.positions.get(state_partition, 0)

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


def replayed_states(saved: pa.Table, observation: Observation, coverages: Mapping[int, Coverage]) -> pa.Table:
    """Rows of ``REPLAYED``: one for every share partition of `saved` that has a state, or may have one.

    `saved`: rows of ``SAVED_COLUMNS``, which replay leaves. Those whose newest record is a tombstone have no state.
    """
    rows = saved.filter(_may_have_state(saved))
    completeness, reasons = _completeness(rows, coverages)
    count = rows.num_rows
    columns: dict[str, Any] = {
        **{name: rows[name] for name in rows.column_names if name in REPLAYED.names},
        **derived_columns(rows),
        "cluster_id": pa.repeat(pa.scalar(observation.cluster_id, pa.string()), count),
        "run_id": pa.repeat(observation.run_id, count),
        "observed_at": pa.repeat(pa.scalar(observation.observed_at, INSTANT), count),
        "topic": pa.nulls(count, pa.string()),
        "archived_seen": _offset_counts(rows["archived_ranges"].combine_chunks()),
        "completeness": completeness,
        "completeness_reason": reasons,
        "is_misplaced": _is_misplaced(rows, observation.state_partition_count),
        **{f"{name}_at": rows[f"{name}_offset"] for name in ("initialized", "archived", "unreadable")},
    }
    return pa.table([columns[name] for name in REPLAYED.names], schema=REPLAYED)


def _may_have_state(saved: pa.Table) -> pa.ChunkedArray:
    """All but those whose newest record is a tombstone: nothing is left of them, and no doubt either."""
    tombstone = saved["tombstone_offset"]
    later = (pc.greater(saved[name], tombstone) for name in ("last_record_offset", "unreadable_offset"))
    return pc.or_(
        pc.is_null(tombstone), reduce(pc.or_, (pc.fill_null(is_later, fill_value=False) for is_later in later))
    )


def _is_misplaced(rows: pa.Table, state_partitions: int | None) -> pa.Array:
    if state_partitions is None:
        return pa.repeat(pa.scalar(value=False), rows.num_rows)
    return pa.array(state_partitions_of(rows, state_partitions) != rows["state_partition"].to_numpy())


def _offset_counts(ranges: pa.ListArray) -> pa.Array:
    """How many offsets each row's disjoint ranges have; null where more than a column can hold."""
    values, parents = pc.list_flatten(ranges), pc.list_parent_indices(ranges).to_numpy()
    first, last = (values.field(name).to_numpy() for name in ("first_offset", "last_offset"))
    about = np.bincount(parents, last.astype(np.float64) - first + 1, len(ranges))
    total = np.append(0, np.cumsum(last - first + 1))  # wraps past 2**63; differences of two values stay right
    ends = np.cumsum(ranges.value_lengths().fill_null(0).to_numpy())
    counts = total[ends] - total[np.append(0, ends[:-1])[: len(ends)]]
    return pa.array(counts, mask=about >= 2.0**63)


def _completeness(rows: pa.Table, coverages: Mapping[int, Coverage]) -> tuple[pa.Array, pa.Array]:
    """Completeness and its reason: texts are written only for rows that are in doubt."""
    homes = rows["state_partition"].to_numpy()
    bases, unreadable = (pc.fill_null(rows[name], -1).to_numpy() for name in ("base_offset", "unreadable_offset"))
    last_gaps = {n: max((gap.last_offset for gap in c.gaps), default=-1) for n, c in coverages.items()}
    numbers, places = np.unique(homes, return_inverse=True)
    in_doubt = (unreadable > bases) | (np.array([last_gaps[n] for n in numbers.tolist()], np.int64)[places] > bases)
    has_epoch = rows["state_epoch"].is_valid().to_numpy()
    only_updates = ~has_epoch & rows["snapshot_epoch"].is_valid().to_numpy() & ~in_doubt
    found = np.where(only_updates, Completeness.NO_SNAPSHOT.value, Completeness.COMPLETE.value).astype(object)
    reasons = np.where(only_updates, "only updates were seen", "").astype(object)
    for row in np.flatnonzero(in_doubt).tolist():
        found[row], reasons[row] = _doubt(int(bases[row]), int(unreadable[row]), coverages[int(homes[row])])
    return pa.array(found, pa.string()), pa.array(reasons, pa.string(), mask=reasons == "")


def _doubt(base: int, unreadable: int, coverage: Coverage) -> tuple[str, str]:
    if unreadable > base:
        return Completeness.UNREADABLE.value, (
            f"the record at offset {unreadable} of state partition {coverage.state_partition} could not be decoded"
        )
    gap = coverage.gap_after(base)
    assert gap is not None
    return Completeness.GAP.value, (
        f"offsets {gap.first_offset} to {gap.last_offset} of state partition {coverage.state_partition} "
        "were not exported, and no snapshot came after them"
    )
