"""State partitions to states: the newest state of each share partition, as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.binary_column import Int64Array
from acktrail.format.columns.record_columns import RECORD_COLUMNS
from acktrail.format.columns.schemas.table_schemas import SHARE_PARTITION_STATES, STATE_RECORDS, TABLES, saved_columns
from acktrail.format.columns.share_partition_keys import state_partitions_of
from acktrail.history.no_record_offsets import offsets_outside
from acktrail.history.observed_run import Coverage, Observation
from acktrail.model.reconciliation import Completeness
from acktrail.replay.column_replay import REPLAYED_COLUMNS, REPLAYED_STATES, StateColumns, replay_decoded
from acktrail.replay.derived_columns import derived_columns
from acktrail.replay.newest_offsets import NewestOffsets, offset_counts
from acktrail.tables.records.record_files import extremes, record_tables, records_between, rows_between

SAVED_COLUMNS: Final = saved_columns(TABLES["replay_memory"])
"""What the records of a share partition leave of it."""
Read = Callable[[Sequence[str], pc.Expression], Iterable[pa.RecordBatch]]
"""Reads columns of ``state_records``, piece by piece and in any order: where an expression holds, maybe others too."""
REPLAYED: Final = pa.schema(
    [
        *SHARE_PARTITION_STATES,
        pa.field("is_misplaced", pa.bool_()),
        pa.field("initialized_at", pa.int64()),
        pa.field("archived_at", pa.int64()),
        pa.field("archived_unclear", pa.bool_()),
        pa.field("unreadable_at", pa.int64()),
        pa.field("broken_rules", pa.list_(pa.string())),
    ]
)
"""A replayed share partition, with the offsets of the records that show something about it. `archived_unclear`: of
some archived offsets it is not known whether they are records, and no two beside each other were ever archived."""
_ROWS_AT_ONCE: Final = 1 << 17
_ROWS_HELD: Final = 1 << 19
_NEVER: Final = np.iinfo(np.int64).max
_INPUTS: Final = ("state_partition", "timestamp_ms", *RECORD_COLUMNS)
_CONTENT: Final = pa.schema([STATE_RECORDS.field(name) for name in REPLAYED_COLUMNS])


class Replay:
    """The state partitions of `coverages`, replayed from what was `saved` of them to where their coverage ends.

    `saved`: rows of ``SAVED_COLUMNS``, after the records before `positions` (by state partition).

    The records that came after that are read once where those of each share partition come in the order of its log;
    else a second time. Working memory holds ``_ROWS_HELD`` of them at a time, or, at the second time, those that follow
    the newest snapshot or tombstone of their share partition. A replay that resumes from an earlier one gives what a
    replay of all records gives.
    """

    def __init__(
        self,
        read: Read,
        observation: Observation,
        coverages: Sequence[Coverage],
        saved: pa.Table,
        positions: Mapping[int, int],
    ) -> None:
        self._read, self._observation, self._positions = read, observation, positions
        self._exported = {coverage.state_partition: coverage for coverage in coverages if coverage.end_offset}
        self._offsets = NewestOffsets()
        self._offsets.resume(saved)
        before = saved.filter(pc.field("snapshot_epoch").is_valid()).select(REPLAYED_STATES.names)
        held = _HeldRecords(StateColumns.of_arrow(before, self._offsets.index), self._offsets)
        for piece in self._new_records({}):
            held.add(piece, self._offsets.add(piece))
        if not held.apply():
            held = _HeldRecords(StateColumns.of_arrow(before, self._offsets.index), self._offsets, holds_all=True)
            for piece in self._new_records(self._lowest_bases()):
                held.add(piece, self._offsets.add(piece))
            held.apply()
        self._states = held.states

    def states(self) -> pa.Table:
        """Rows of ``REPLAYED`` (see ``replayed_states``)."""
        return replayed_states(self.rows(), self._observation, self._exported)

    def rows(self) -> pa.Table:
        """Rows of ``SAVED_COLUMNS``: what the replay leaves of every share partition."""
        rows = np.full(len(self._offsets.index), -1)
        rows[np.sort(self._states.partition_index)] = np.arange(len(self._states.partition_index))
        states = self._states.to_arrow(self._offsets.index).take(pa.array(rows, mask=rows < 0))
        columns = {**dict(zip(states.column_names, states.columns, strict=True)), **self._offsets.columns()}
        return pa.table([columns[name] for name in SAVED_COLUMNS.names], schema=SAVED_COLUMNS)

    def _lowest_bases(self) -> dict[int, int]:
        """The lowest of the newest bases on each state partition: no record before it is needed."""
        homes = self._offsets.index.addresses_of(np.arange(len(self._offsets.index)))["state_partition"].to_numpy()
        bases = pa.table({"state_partition": homes, "base": self._offsets.newest("base_offset")})
        return extremes(bases, "base", "min")

    def _new_records(self, lowest: Mapping[int, int]) -> Iterator[pa.Table]:
        """The records that came after the saved ones, and not before the `lowest` offset of their state partition."""
        begins = {n: max(lowest.get(n, 0), self._positions.get(n, 0)) for n in self._exported}
        ends = {n: c.end_offset or 0 for n, c in self._exported.items()}
        ends = {n: end for n, end in ends.items() if begins[n] < end}
        # Larger pieces: each is looked up among all share partitions.
        for piece in record_tables(self._read(_INPUTS, records_between(begins, ends)) if ends else (), _ROWS_AT_ONCE):
            yield rows_between(piece, begins, ends)


class _HeldRecords:
    """Records that were read and not applied to `states` yet. With `holds_all` they come in any order, after all
    `newest` bases are known, and those before these are dropped. Else they are applied whenever ``_ROWS_HELD`` of them
    are held; it is found out if one comes after later ones of its share partition were."""

    def __init__(self, states: StateColumns, newest: NewestOffsets, *, holds_all: bool = False) -> None:
        self.states, self._newest, self._holds_all = states, newest, holds_all
        self._records = [_CONTENT.empty_table()]
        self._numbers = [np.empty(0, np.int64)]
        self._is_in_order = True

    def add(self, records: pa.Table, numbers: Int64Array) -> None:
        """Take in records (``_INPUTS``) of the share partitions `numbers` (-1: none)."""
        content = records.select(_CONTENT.names)
        if self._holds_all:
            needed = np.append(self._newest.first_replayed, _NEVER)[numbers] <= records["offset"].to_numpy()
            content, numbers = content.filter(pa.array(needed)), numbers[needed]
        self._records.append(content)
        self._numbers.append(numbers)
        if not self._holds_all and sum(map(len, self._numbers)) >= _ROWS_HELD:
            self.apply()

    def apply(self) -> bool:
        """Apply the buffered records. Return False if they were out of order; `states` is then invalid."""
        records, numbers = pa.concat_tables(self._records), np.concatenate(self._numbers)
        del self._records[1:], self._numbers[1:]
        reached = np.full(len(self._newest.index) + 1, _NEVER)
        reached[:-1] = 0
        reached[self.states.partition_index] = self.states.next_offsets
        bases = np.append(self._newest.newest("base_offset"), _NEVER)
        offsets = records["offset"].to_numpy()
        self._is_in_order &= not ((offsets < reached[numbers]) & (offsets >= bases[numbers])).any()
        if self._is_in_order:
            self.states = replay_decoded(records, numbers, self.states, self._newest.first_replayed)
        return self._is_in_order


def replayed_states(
    saved: pa.Table, observation: Observation, coverages: Mapping[int, Coverage], looked: pa.Table | None = None
) -> pa.Table:
    """Rows of ``REPLAYED``: one for every share partition of `saved` (rows of ``SAVED_COLUMNS``) that has a state, or
    may have one. `looked`: spans of offsets that were looked up in the log; see ``looked_offsets``
    (None: nothing is known)."""
    rows = saved.filter(_may_have_state(saved))
    completeness, reasons = _completeness(rows, coverages)
    count, homes, own = rows.num_rows, rows["state_partition"].to_numpy(), observation.state_partition_count
    if own is not None:
        homes = state_partitions_of(rows, own)
    archived = rows["archived_ranges"].combine_chunks()
    known = rows.slice(0, 0) if looked is None else looked
    none = known if looked is None else known.filter(pc.invert(known["is_record"]))
    is_alone = pc.equal(pc.list_value_length(archived), offset_counts(archived))
    columns: dict[str, Any] = {
        **{name: rows[name] for name in rows.column_names if name in REPLAYED.names},
        **derived_columns(rows),
        **observation.columns(count),
        "topic": pa.nulls(count, pa.string()),
        "archived_seen": offsets_outside(archived, rows, none),
        "archived_unclear": pc.and_(is_alone, pc.greater(offsets_outside(archived, rows, known), 0)),
        "completeness": completeness,
        "completeness_reason": reasons,
        "is_misplaced": pa.array(homes != rows["state_partition"].to_numpy()),
        **{f"{name}_at": rows[f"{name}_offset"] for name in ("initialized", "archived", "unreadable")},
    }
    return pa.table([columns[name] for name in REPLAYED.names], schema=REPLAYED)


def _may_have_state(saved: pa.Table) -> pa.ChunkedArray:
    """All but those whose newest record is a tombstone: nothing is left of them, and no doubt either."""
    tombstone, found = saved["tombstone_offset"], pc.is_null(saved["tombstone_offset"])
    for name in ("last_record_offset", "unreadable_offset"):
        found = pc.or_(found, pc.fill_null(pc.greater(saved[name], tombstone), fill_value=False))
    return found


def _completeness(rows: pa.Table, coverages: Mapping[int, Coverage]) -> tuple[pa.Array, pa.Array]:
    """Completeness and its reason: texts are written only for rows that are in doubt."""
    homes = rows["state_partition"].to_numpy()
    bases, unreadable = (pc.fill_null(rows[name], -1).to_numpy() for name in ("base_offset", "unreadable_offset"))
    last_doubts = {n: _last_doubt(c) for n, c in coverages.items()}
    numbers, places = np.unique(homes, return_inverse=True)
    in_doubt = (unreadable > bases) | (np.array([last_doubts[n] for n in numbers.tolist()], np.int64)[places] > bases)
    has_epoch = rows["state_epoch"].is_valid().to_numpy()
    only_updates = ~has_epoch & rows["snapshot_epoch"].is_valid().to_numpy() & ~in_doubt
    found = np.where(only_updates, Completeness.NO_SNAPSHOT.value, Completeness.COMPLETE.value).astype(object)
    reasons = np.where(only_updates, "only updates were seen", "").astype(object)
    for row in np.flatnonzero(in_doubt).tolist():
        found[row], reasons[row] = _doubt(int(bases[row]), int(unreadable[row]), coverages[int(homes[row])])
    return pa.array(found, pa.string()), pa.array(reasons, pa.string(), mask=reasons == "")


def _last_doubt(coverage: Coverage) -> int:
    """The newest offset that may have been about any share partition: of a gap, or of a record that names none."""
    unattributed = -1 if coverage.unattributed_offset is None else coverage.unattributed_offset
    return max((unattributed, *(gap.last_offset for gap in coverage.gaps)))


def _doubt(base: int, unreadable: int, coverage: Coverage) -> tuple[str, str]:
    if unreadable > base:
        return Completeness.UNREADABLE.value, (
            f"the record at offset {unreadable} of state partition {coverage.state_partition} could not be decoded"
        )
    if coverage.unattributed_offset is not None and coverage.unattributed_offset > base:
        return Completeness.UNREADABLE.value, coverage.unattributed_text
    gap = max(gap for gap in coverage.gaps if gap.last_offset > base)
    return Completeness.GAP.value, (
        f"offsets {gap.first_offset} to {gap.last_offset} of state partition {coverage.state_partition} "
        "were not exported, and no snapshot came after them"
    )
