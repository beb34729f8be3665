"""The frame of ``state_records``: each record beside what the records before it of its share partition allow.

Nothing here fails in a broker's normal life: cold snapshots, initializations and resets, tombstones, recreated topics,
empty updates with a new leader epoch after a restart, updates whose snapshot was pruned before the first export. Kafka
before 4.4 may let a start offset and a delivery complete count fall back; `start_offset_monotone` reports it as an
error.

A *chain* is the records of one share partition on one state partition with nothing lost in between: a recorded gap,
or a record without a readable key, ends every chain. A *life* is the part of a chain up to a tombstone. A
*reign* is the part of a life in which only acknowledgements move the start offset: an initialization (first or by
reset) begins one, and so does a record that could not be read, for it may have been one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.binary_column import BoolArray
from acktrail.tables.records.damage_report import COMPARED_COLUMNS, differing_columns
from acktrail.tables.records.record_files import bounds_of
from acktrail_expectations.frames.frame_columns import (
    Codes,
    ObservedCluster,
    batch_columns,
    combined_codes,
    delivery_count_limits,
    frame_of,
    key_texts,
    known_true,
    last_known,
    placement,
    previous,
    where,
)

RECORD_COLUMNS: Final = (
    "state_partition", "offset", "record_type", "group_id", "topic_id", "partition", "snapshot_epoch", "state_epoch",
    "leader_epoch", "start_offset", "delivery_complete_count", "create_timestamp_ms", "write_timestamp_ms", "batches",
    "decode_status",
)  # fmt: skip
"""The columns of ``STATE_RECORDS`` that the frame is made of."""

_NAMELESS: Final = ("null_key", "malformed_key")
"""Decode statuses of records that may belong to any share partition. One of an unknown key type is no state record."""

_COMPARED_AT_ONCE: Final = 16_384
"""Records that are decoded again together: memory for both forms of them comes on top of the rest."""


_UPDATES_BEFORE: Final = "updates_before"
_COMPLETED_BEFORE: Final = "completed_before"
_KEPT_NUMBERS: Final = (_UPDATES_BEFORE, _COMPLETED_BEFORE)
"""Columns of the rows that are kept between two pieces of a log: updates since the snapshot, with the row itself, and
the newest known number of completed offsets."""


class StateRecordFrames:
    """The frames of a log that comes in pieces: each is what it would be if all pieces were one.

    Between pieces one row a share partition is kept: its newest record, with the epochs and the start offset that are
    in force after it. `gaps`: `state_partition`, `gap_first`, `gap_last` of what is known to be lost. `misplaced`:
    ``misplaced_keys`` of all pieces. `compares_bytes`: records have ``COMPARED_COLUMNS`` too, and are compared with
    their raw bytes.
    """

    def __init__(
        self, *, gaps: pa.Table, cluster: ObservedCluster, misplaced: pa.Table, compares_bytes: bool = False
    ) -> None:
        self._gaps = gaps
        self._cluster = cluster
        self._misplaced = misplaced
        self._compares_bytes = compares_bytes
        self._rows_to_keep: pa.Table | None = None

    def add(self, records: pa.Table, *, since: Mapping[int, int]) -> pd.DataFrame:
        """The records at or above `since` (offset by state partition; absent: all), each with what bounds it.

        `records`: ``RECORD_COLUMNS`` of the next records of some state partitions, in any order; none of them lies
        below a record that was added before.

        Returns:
            ``RECORD_COLUMNS`` and, missing where there is nothing to compare with:
            `expected_offset` (the offset after the record before), `successor_epoch` (snapshots: the snapshot epoch
            that comes next), `base_epoch` and `base_type` (updates: snapshot epoch and type of the record before),
            `least_state_epoch`, `least_leader_epoch`, `least_start_offset` (the lowest legal values),
            `completed_offsets` (start offset plus delivery complete count) and the lowest legal one,
            `updates_since_snapshot`, `kept_create_timestamp_ms` (see `snapshot_bounds`),
            `first_state_partition` (the least one that has the key), `home_state_partition` (that its hash names),
            `is_uninitialized` (snapshots: no start offset), `is_archiving_allowed`, `delivery_count_limit`,
            `most_updates`, `batch_columns`; where bytes are compared, `matches_raw_bytes` (the decoded columns equal
            key and value decoded again).
        """
        table, place = self._ordered(records.select(list(RECORD_COLUMNS)))
        frame = frame_of(table)
        log = _Log.of(table, frame, self._gaps)
        bounds, in_force = _chain_bounds(frame, log)
        placed = placement(table, self._misplaced, has_homes=self._cluster.state_partition_count is not None)
        self._rows_to_keep = _rows_to_keep(table, log, in_force)
        is_snapshot = known_true((frame["record_type"] == "snapshot") & (frame["decode_status"] == "decoded"))
        whole = frame.assign(
            **bounds,
            **placed,
            is_uninitialized=frame["start_offset"].isna() & is_snapshot,
            is_archiving_allowed=self._cluster.allows_archiving,
            delivery_count_limit=delivery_count_limits(frame["group_id"], self._cluster),
            most_updates=self._cluster.most_updates,
        )
        whole = whole.assign(**batch_columns(whole))
        wanted = (place >= 0) & (table["offset"].to_numpy() >= bounds_of(table, since))
        new = whole[wanted].reset_index(drop=True)
        return new.assign(matches_raw_bytes=_matching(records, place[wanted])) if self._compares_bytes else new

    def _ordered(self, records: pa.Table) -> tuple[pa.Table, Codes]:
        """What was kept and `records` as they follow each other, and which row of `records` each is (below 0: none)."""
        for name in _KEPT_NUMBERS:
            records = records.append_column(name, pa.nulls(records.num_rows, pa.int64()))
        table = records if self._rows_to_keep is None else pa.concat_tables([self._rows_to_keep, records])
        order = pc.sort_indices(table, [("state_partition", "ascending"), ("offset", "ascending")])
        place = np.asarray(order, dtype=np.int64) - (table.num_rows - records.num_rows)
        return table.take(order), place


def _matching(records: pa.Table, rows: Codes) -> BoolArray:
    """Which of these rows of `records` equal their raw bytes decoded again."""
    stored = records.select(list(COMPARED_COLUMNS))
    matches = np.ones(len(rows), np.bool_)
    for begin in range(0, len(rows), _COMPARED_AT_ONCE):
        part = pa.array(rows[begin : begin + _COMPARED_AT_ONCE])
        matches[[begin + row for row in differing_columns(stored.take(part))]] = False
    return matches


def _rows_to_keep(table: pa.Table, log: _Log, in_force: Mapping[str, pd.Series]) -> pa.Table:
    """The last row of every chain that continues, and of every state partition, with what is in force after it."""
    is_last = ~pd.Series(log.chain).duplicated(keep="last").to_numpy()
    ends = ~pd.Series(log.state_partition).duplicated(keep="last").to_numpy()
    newest = np.zeros(int(log.state_partition.max(initial=0)) + 1, np.int64)
    newest[log.state_partition[ends]] = log.segment[ends]
    rows = np.flatnonzero((is_last & (log.segment == newest[log.state_partition])) | ends)
    kept = table.take(pa.array(rows))
    for name, series in in_force.items():
        values = pa.Array.from_pandas(series.iloc[rows]).cast(table.schema.field(name).type)
        kept = kept.set_column(table.schema.get_field_index(name), table.schema.field(name), values)
    place = table.schema.get_field_index("batches")
    return kept.set_column(place, table.schema.field(place), pa.nulls(len(rows), table.schema.field(place).type))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Log:
    """Where each row lies: its state partition, the row's chain and the segment of the log that the chain is of, and
    whether its address occurs a second time."""

    state_partition: Codes
    expected_offset: pd.Series
    segment: Codes
    chain: Codes
    is_repeated: BoolArray

    @classmethod
    def of(cls, table: pa.Table, frame: pd.DataFrame, gaps: pa.Table) -> _Log:
        state_partition = _codes(frame["state_partition"])
        before = previous(frame["offset"], state_partition)
        is_repeated = known_true(frame["offset"] == before)
        after_gap = _after_gap(frame, before, gaps)
        key = _codes(pd.Series(pc.dictionary_encode(key_texts(table)).combine_chunks().indices.to_pandas()))
        nameless = frame["decode_status"].isin(_NAMELESS).astype("Int64")
        segment = _running_count(after_gap | known_true(previous(nameless, state_partition) > 0), state_partition)
        return cls(
            state_partition=state_partition,
            expected_offset=where(before + 1, ~(after_gap | is_repeated)),
            segment=segment,
            chain=combined_codes(state_partition, key, segment),
            is_repeated=is_repeated,
        )


def _codes(series: pd.Series) -> Codes:
    """The distinct values numbered from 1; a missing one is 0."""
    return np.asarray(pd.factorize(series)[0], dtype=np.int64) + 1


def _running_count(marks: BoolArray, chain: Codes) -> Codes:
    """How many marks there are in the chain up to and with each row."""
    return np.asarray(pd.Series(marks.astype(np.int64)).groupby(chain).cumsum(), dtype=np.int64)


def _after_gap(frame: pd.DataFrame, before: pd.Series, gaps: pa.Table) -> BoolArray:
    """Rows between which and the row before offsets are known to be lost."""
    found = np.zeros(len(frame), np.bool_)
    for gap in gaps.to_pylist():
        here = frame["state_partition"] == gap["state_partition"]
        found |= known_true(here & (before < gap["gap_first"]) & (frame["offset"] > gap["gap_last"]))
    return found


def _chain_bounds(frame: pd.DataFrame, log: _Log) -> tuple[dict[str, pd.Series], dict[str, pd.Series]]:
    """What bounds each row, and what is in force after it."""
    kind = frame["record_type"].where(frame["decode_status"] == "decoded")
    before = previous(kind, log.chain)
    after_tombstone = known_true(before == "tombstone")
    life = combined_codes(log.chain, _running_count(after_tombstone, log.chain))
    least, in_force = _lower_bounds(frame, kind, life)
    of_snapshots, also_in_force = _snapshot_bounds(frame, kind, log.chain, life)
    epoch_before, is_update = previous(frame["snapshot_epoch"], log.chain), known_true(kind == "update")
    # A snapshot counts on from the record before, and from 0 after a tombstone; an update repeats its base.
    successor = (epoch_before + 1).mask(after_tombstone, 0)
    bounds = {
        "successor_epoch": where(successor, known_true(kind == "snapshot")),
        "base_epoch": where(epoch_before, is_update),
        "base_type": where(before, is_update),
        **least,
        **of_snapshots,
    }
    once = {name: where(series, ~log.is_repeated) for name, series in bounds.items()}
    return {"expected_offset": log.expected_offset, **once}, {**in_force, **also_in_force}


def _lower_bounds(
    frame: pd.DataFrame, kind: pd.Series, life: Codes
) -> tuple[dict[str, pd.Series], dict[str, pd.Series]]:
    """The lowest legal values of each record, and the values in force after it. An initialization sets the leader
    epoch to 0 and the start offset anywhere."""
    state_epoch = last_known(frame["state_epoch"], life)
    least_state_epoch = previous(state_epoch, life)
    begins = _initializes(frame, kind) | kind.isna().to_numpy(dtype=np.bool_)
    raised = known_true(frame["state_epoch"] > least_state_epoch)
    led, started = (combined_codes(life, _running_count(marks, life)) for marks in (begins, begins | raised))
    leader_epoch, start_offset = last_known(frame["leader_epoch"], led), last_known(frame["start_offset"], started)
    completed = (start_offset + frame["delivery_complete_count"]).fillna(frame[_COMPLETED_BEFORE])
    newest_completed = last_known(completed, started)
    least = {
        "least_state_epoch": least_state_epoch,
        "least_leader_epoch": previous(leader_epoch, led),
        "least_start_offset": previous(start_offset, started),
        "completed_offsets": completed,
        "least_completed_offsets": previous(newest_completed, started),
    }
    in_force = {"state_epoch": state_epoch, "leader_epoch": leader_epoch, "start_offset": start_offset}
    return least, {**in_force, _COMPLETED_BEFORE: newest_completed}


def _initializes(frame: pd.DataFrame, kind: pd.Series) -> BoolArray:
    """Snapshots as an initialization or a reset writes them: leader epoch 0, no batches, created as written."""
    empty = known_true(frame["batches"].list.len() == 0)
    written = known_true(frame["create_timestamp_ms"] == frame["write_timestamp_ms"])
    return known_true(kind == "snapshot") & known_true(frame["leader_epoch"] == 0) & empty & written


def _updates_since_snapshot(frame: pd.DataFrame, kind: pd.Series, chain: Codes) -> pd.Series:
    """How many updates there are from the newest snapshot (or tombstone) of the row's chain up to and with the row.

    Missing where the chain begins without one, and after a record that could not be read: it may have been one.
    `frame` has ``_UPDATES_BEFORE`` for the first row of a chain that continues an earlier piece.
    """
    begins = kind.isin(["snapshot", "tombstone"]).to_numpy(dtype=np.bool_)
    is_update = known_true(kind == "update").astype(np.int64)
    marks = pd.Series((begins | kind.isna().to_numpy(dtype=np.bool_)).astype(np.int64))
    stretch = combined_codes(chain, marks.groupby(chain).cumsum().to_numpy(dtype=np.int64))
    counted = pd.Series(is_update).groupby(stretch).cumsum().astype("Int64")
    base = (frame[_UPDATES_BEFORE] - is_update).mask(begins, 0)
    return counted + base.groupby(stretch).transform("first")


def _snapshot_bounds(
    frame: pd.DataFrame, kind: pd.Series, chain: Codes, life: Codes
) -> tuple[dict[str, pd.Series], dict[str, pd.Series]]:
    """What bounds each row, and what is in force after it.

    Returns:
        `updates_since_snapshot` (updates only); `kept_create_timestamp_ms` (snapshots that were not created when they
        were written: the create timestamp of the snapshot before, which a copy keeps).
    """
    updates = _updates_since_snapshot(frame, kind, chain)
    created = last_known(frame["create_timestamp_ms"], life)
    is_copy = known_true(frame["create_timestamp_ms"] != frame["write_timestamp_ms"])
    bounds = {
        "updates_since_snapshot": where(updates, known_true(kind == "update")),
        "kept_create_timestamp_ms": where(previous(created, life), is_copy & known_true(kind == "snapshot")),
    }
    return bounds, {_UPDATES_BEFORE: updates, "create_timestamp_ms": created}
