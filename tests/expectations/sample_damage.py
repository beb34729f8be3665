"""Damage to tables, and which expectations it makes fail: exactly its own."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from expectations.sample_tables import (
    NOW,
    RUN,
    changed,
    cluster,
    logs,
    range_row,
    ranges,
    reconciliations,
    record_frames,
    row_where,
    states,
    without,
)
from state_topics.coordinator_log import everyday, from_raw

from acktrail.format.columns.schemas.table_schemas import EXPORT_RANGES, RAW_RECORDS
from acktrail.model.reconciliation import Verdict
from acktrail.replay.stored_offsets import stored_offsets
from acktrail_expectations import evaluation
from acktrail_expectations.evaluation import SuiteCheck, checks_of, evaluate
from acktrail_expectations.frames.table_frames import ExportedSoFar, export_ranges_frame, state_partitions_frame
from acktrail_expectations.observed_cluster import ObservedCluster

Damage = Callable[[pa.Table], pa.Table]
CLUSTER = cluster()
LIFE = everyday()
RECORDS = LIFE.table()
STATES = states(LIFE)
RECONCILIATIONS = reconciliations(LIFE)
RANGES = ranges(RECORDS)


def failing(suite: str, frame: pd.DataFrame) -> set[str]:
    """The rules of a suite that `frame` breaks."""
    results = evaluate(suite, checks_of_frame(suite, frame), frame, str)
    assert [result.error for result in results if result.error] == []
    assert all(result.observed_value for result in results if result.success is False)
    return {result.expectation for result in results if result.success is False}


def checks_of_frame(suite: str, frame: pd.DataFrame) -> tuple[SuiteCheck, ...]:
    """The rules of a suite; bytes are compared where `frame` has the comparison."""
    return tuple(check for check in checks_of(suite) if {*check.columns} != {"matches_raw_bytes"} - {*frame.columns})


def failing_by_damage(suite: str, frames: Mapping[str, pd.DataFrame], apart: Sequence[str] = ()) -> dict[str, set[str]]:
    """The rules that each of `frames` breaks, by its name, out of one evaluation of all. `apart`: columns with numbers
    that are others in each frame, so that rows of two frames are never alike."""
    whole = pd.concat(
        [
            frame.assign(damage=name, **{column: frame[column] + 1_000 * number for column in apart})
            for number, (name, frame) in enumerate(frames.items())
        ],
        ignore_index=True,
    )
    found: dict[str, set[str]] = {name: set() for name in frames}
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(evaluation.RESULT_FORMAT, "partial_unexpected_count", len(whole))
        for result in evaluate(suite, checks_of_frame(suite, whole), whole, lambda row: str(row["damage"])):
            assert result.error is None, result
            for name in filter(None, (result.observed_value or "").split("; ")):
                found[name].add(result.expectation)
    return found


def batches(*quads: tuple[int, int, int, int]) -> list[dict[str, int]]:
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    return [dict(zip(names, quad, strict=True)) for quad in quads]


def at(partition: int, offset: int, /, **values: Any) -> Damage:
    """Other values in the record at an address."""
    return lambda records: changed(records, row_where(records, state_partition=partition, offset=offset), **values)


def lost(partition: int, offset: int) -> Damage:
    return lambda records: without(records, row_where(records, state_partition=partition, offset=offset))


def twice(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table.slice(3, 1)])


def unreadable(records: pa.Table) -> pa.Table:
    """The last byte of a value lost."""
    raw = records.select(["state_partition", "offset", "timestamp_ms", "key", "value"])
    rows = raw.rename_columns(RAW_RECORDS.names).to_pylist()
    rows[row_where(records, state_partition=0, offset=13)]["value"] = rows[13]["value"][:-1]
    return from_raw(rows)


def moved_away(records: pa.Table) -> pa.Table:
    """Every record of one state partition on another one."""
    rows = records.to_pylist()
    for row in rows:
        row["state_partition"] = 7 if row["state_partition"] == 2 else row["state_partition"]
    return pa.Table.from_pylist(rows, schema=records.schema)


RECORD_DAMAGE: dict[str, tuple[Damage, set[str]]] = {
    "a record twice": (twice, {"record_once"}),
    "an update lost": (lost(0, 4), {"offsets_dense"}),
    "the snapshot below an update lost": (lost(0, 11), {"offsets_dense", "update_epoch_matches"}),
    "a snapshot between snapshots lost": (lost(0, 14), {"offsets_dense", "snapshot_epoch_step"}),
    "the snapshot after a tombstone lost": (lost(1, 5), {"offsets_dense", "update_has_base"}),
    "a value cut short": (unreadable, {"record_decoded"}),
    "a batch that ends before it begins": (
        at(0, 3, batches=batches((0, 9, 2, 1), (12, 11, 2, 1))),
        {"batch_first_le_last"},
    ),
    "batches in the wrong order": (at(0, 3, batches=batches((5, 9, 2, 1), (0, 4, 2, 1))), {"batches_ascending"}),
    "batches that share an offset": (
        at(0, 3, batches=batches((0, 5, 0, 1), (5, 9, 2, 1))),
        {"batches_non_overlapping"},
    ),
    "a batch below the start offset": (at(0, 5, batches=batches((9, 9, 0, 1))), {"batches_not_below_start"}),
    "a batch acquired": (at(0, 3, batches=batches((0, 9, 1, 1))), {"delivery_state_allowed"}),
    "acknowledged without a delivery": (at(0, 3, batches=batches((0, 9, 2, 0))), {"acknowledged_count_ge_1"}),
    "available after the last delivery": (at(0, 3, batches=batches((0, 9, 0, 5))), {"available_count_lt_limit"}),
    "two batches where one would do": (
        at(0, 3, batches=batches((0, 4, 2, 1), (5, 9, 2, 1))),
        {"mergeable_neighbours"},
    ),
    "a state of another release": (at(0, 3, batches=batches((0, 9, 3, 1))), {"delivery_state_allowed"}),
    "a count that no configuration allows": (
        at(0, 3, batches=batches((0, 9, 2, 26))),
        {"delivery_count_possible", "delivery_count_within_limit"},
    ),
    "a negative count": (at(0, 3, batches=batches((0, 9, 2, -1))), {"delivery_count_possible"}),
    "a count above the group's limit": (at(0, 3, batches=batches((0, 9, 2, 6))), {"delivery_count_within_limit"}),
    "batches without a start offset": (at(2, 0, batches=batches((0, 1, 0, 1))), {"uninitialized_without_batches"}),
    "a state epoch that falls": (at(0, 18, state_epoch=8), {"state_epoch_monotone"}),
    "a leader epoch that falls": (at(0, 13, leader_epoch=1), {"leader_epoch_monotone"}),
    "a start offset that falls": (at(0, 9, start_offset=30, delivery_complete_count=34), {"start_offset_monotone"}),
    "a complete count that is too low": (at(0, 3, delivery_complete_count=9), {"delivery_complete_count_covers"}),
    "a complete count that falls": (
        at(0, 8, delivery_complete_count=0, batches=[]),
        {"delivery_complete_count_monotone"},
    ),
    "written before it was created": (at(0, 10, write_timestamp_ms=1), {"create_le_write_timestamp"}),
    "a snapshot that no broker writes": (at(0, 10, create_timestamp_ms=2), {"snapshot_class_known"}),
    "a share partition on two state partitions": (
        at(2, 4, state_partition=1, offset=8),
        {"one_state_partition_per_key", "key_on_its_state_partition"},
    ),
    "a share partition on the wrong state partition": (moved_away, {"key_on_its_state_partition"}),
}


def record_frame(records: pa.Table, observed: ObservedCluster = CLUSTER) -> pd.DataFrame:
    return record_frames(records, observed).add(records, since={})


def state_at(index: int, **values: Any) -> Damage:
    return lambda table: changed(table, index, **values)


FIRST = row_where(STATES, group_id="orders", partition=0)
WAITING = row_where(STATES, group_id="orders", partition=2)

STATE_DAMAGE: dict[str, tuple[Damage, set[str]]] = {
    "a share partition twice": (lambda t: pa.concat_tables([t, t.slice(0, 1)]), {"share_partition_once"}),
    "on the wrong state partition": (state_at(FIRST, state_partition=2), {"key_on_its_state_partition"}),
    "a batch that ends before it begins": (
        state_at(FIRST, batches=batches((1, 4, 2, 1), (9, 8, 2, 1))),
        {"batch_first_le_last"},
    ),
    "batches in the wrong order": (
        state_at(FIRST, batches=batches((3, 4, 2, 1), (1, 2, 2, 1))),
        {"batches_ascending"},
    ),
    "batches that share an offset": (
        state_at(FIRST, batches=batches((1, 4, 2, 1), (4, 4, 0, 1))),
        {"batches_non_overlapping"},
    ),
    "a batch below the start offset": (
        state_at(FIRST, batches=batches((0, 0, 0, 1), (1, 4, 2, 1))),
        {"batches_not_below_start"},
    ),
    "a batch acquired": (
        state_at(FIRST, batches=batches((1, 4, 2, 1), (6, 6, 1, 1))),
        {"delivery_state_allowed"},
    ),
    "acknowledged without a delivery": (state_at(FIRST, batches=batches((1, 4, 2, 0))), {"acknowledged_count_ge_1"}),
    "available after the last delivery": (
        state_at(FIRST, batches=batches((1, 4, 2, 1), (6, 6, 0, 5))),
        {"available_count_lt_limit"},
    ),
    "two batches where one would do": (
        state_at(FIRST, batches=batches((1, 2, 2, 1), (3, 4, 2, 1))),
        {"mergeable_neighbours"},
    ),
    "more in flight than locks": (state_at(FIRST, available_records=2_001), {"inflight_within_lock_limit"}),
    "as many waiting for the dead-letter queue": (
        state_at(FIRST, archiving_records=2_001),
        {"inflight_within_lock_limit"},
    ),
    "a count that no configuration allows": (
        state_at(FIRST, batches=batches((1, 4, 2, 26))),
        {"delivery_count_possible", "delivery_count_within_limit"},
    ),
    "a count above the group's limit": (
        state_at(FIRST, batches=batches((1, 4, 2, 6))),
        {"delivery_count_within_limit"},
    ),
    "batches without a start offset": (
        state_at(WAITING, batches=batches((0, 0, 0, 1))),
        {"uninitialized_without_batches"},
    ),
    "a batch at the log end": (
        state_at(FIRST, batches=batches((1, 4, 2, 1), (100, 100, 0, 1))),
        {"batches_below_log_end"},
    ),
    "an end below the start": (
        state_at(WAITING, start_offset=9, first_unfinished_offset=None, end_offset=8),
        {"start_offset_le_end_offset"},
    ),
    "a start offset beyond the log end": (
        state_at(WAITING, start_offset=101, first_unfinished_offset=None, end_offset=None),
        {"start_offset_le_log_end"},
    ),
    "an end beyond the log end": (state_at(FIRST, end_offset=101), {"end_offset_le_log_end"}),
    "an effective start below the start": (
        state_at(FIRST, first_unfinished_offset=0),
        {"first_unfinished_ge_start_offset"},
    ),
    "an effective start beyond the end": (
        state_at(FIRST, first_unfinished_offset=6),
        {"first_unfinished_le_end_offset"},
    ),
    "finished records that the batches do not show": (
        state_at(FIRST, acknowledged_records=5),
        {"finished_records_match_batches"},
    ),
    "a complete count that is too low": (
        state_at(FIRST, delivery_complete_count=3),
        {"delivery_complete_count_covers"},
    ),
    "a gap below the state": (state_at(FIRST, completeness="gap"), {"state_reliable"}),
    "an unreadable record below the state": (state_at(FIRST, completeness="unreadable"), {"state_reliable"}),
    "no snapshot below the state": (state_at(FIRST, completeness="no_snapshot"), {"state_has_snapshot"}),
}

VERDICT_RULES = {
    **{verdict.value: verdict.value for verdict in Verdict if verdict is not Verdict.MATCH},
    "elsewhere": "verdict_known",
    None: "verdict_given",
}

RECONCILIATION_DAMAGE: dict[str, tuple[Damage, set[str]]] = {
    **{f"verdict {verdict}": (state_at(0, verdict=verdict), {rule}) for verdict, rule in VERDICT_RULES.items()},
    "a share partition twice": (lambda t: pa.concat_tables([t, t.slice(0, 1)]), {"share_partition_once"}),
    "no reason": (state_at(0, reason=None), {"verdict_has_reason"}),
    "a match of two start offsets": (state_at(FIRST, durable_start_offset=3), {"match_has_same_start_offset"}),
    "a match of two lags": (state_at(FIRST, durable_lag=3), {"match_has_same_lag"}),
}


def grown_range(first: int, last: int, **values: Any) -> Damage:
    """One more commit after the last one of state partition 0 (offsets up to 18)."""
    row = range_row(0, first, last) | values
    return lambda table: pa.concat_tables([table, pa.Table.from_pylist([row], schema=EXPORT_RANGES)])


NOTHING = {"first_offset": None, "last_offset": None, "records_read": 0, "records_decoded": 0, "log_end_offset": 25}

RANGE_DAMAGE: dict[str, tuple[Damage, set[str]]] = {
    "offsets between two commits left out": (grown_range(21, 22), {"export_contiguous"}),
    "offsets exported twice": (grown_range(18, 22), {"export_contiguous"}),
    "a commit lost": (lambda t: without(t, 0), {"export_begins_at_log_start"}),
    "pruned before the export": (grown_range(25, 29, gap_first=19, gap_last=24), {"nothing_pruned_before_export"}),
    "pruned, and nothing after it": (
        grown_range(19, 19, **NOTHING, gap_first=19, gap_last=24),
        {"nothing_pruned_before_export"},
    ),
    "a gap that the records do not follow": (
        grown_range(26, 29, gap_first=19, gap_last=24),
        {"nothing_pruned_before_export", "records_follow_gap"},
    ),
    "a gap that ends before it begins": (
        grown_range(19, 22, gap_first=19, gap_last=18),
        {"nothing_pruned_before_export", "gap_first_le_last"},
    ),
    "a range that ends before it begins": (
        grown_range(19, 17, records_read=-1, records_decoded=-1, log_end_offset=19),
        {"range_first_le_last"},
    ),
    "records that are neither decoded nor quarantined": (
        grown_range(19, 22, records_decoded=3),
        {"records_accounted_for"},
    ),
    "offsets that hold no record": (grown_range(19, 22, records_read=3, records_decoded=3), {"range_dense"}),
    "a range beyond the log end": (grown_range(19, 22, log_end_offset=22), {"range_below_log_end"}),
    "another incarnation of the state topic": (grown_range(19, 22, state_topic_id="another"), {"one_state_topic"}),
}


def range_frame(table: pa.Table, addresses: pa.Table | None = None) -> pd.DataFrame:
    """`addresses`: the records that are stored; None: it is not known which."""
    known = {} if addresses is not None else dict.fromkeys(range(3), 1_000)
    stored = stored_offsets(() if addresses is None else addresses.to_batches(), known)
    return export_ranges_frame(table, since={}, run_id=RUN, stored=stored)


OBSERVED = logs()

EXPORTED = ExportedSoFar(ends=dict.fromkeys(range(3), 5), partition_counts={"state": 3})
LATER = NOW + dt.timedelta(minutes=60)

STATE_PARTITION_DAMAGE: dict[str, tuple[pa.Table, ExportedSoFar, dt.datetime, set[str]]] = {
    "a partition added": (
        OBSERVED,
        replace(EXPORTED, partition_counts={"state": 2}),
        NOW,
        {"state_topic_partition_count_constant"},
    ),
    "an export that stopped early": (
        OBSERVED,
        replace(EXPORTED, ends={0: 5, 1: 4, 2: 5}),
        NOW,
        {"export_complete"},
    ),
    "a state partition that was never exported": (
        OBSERVED,
        replace(EXPORTED, ends={0: 5, 2: 5}),
        NOW,
        {"export_complete"},
    ),
    "an old observation": (OBSERVED, EXPORTED, LATER + dt.timedelta(minutes=1), {"export_fresh"}),
}


def failing_state_partitions(observed: pa.Table, exported: ExportedSoFar, now: dt.datetime) -> set[str]:
    frame = state_partitions_frame(observed, exported=exported, now=now)
    return failing("state_partitions", frame)
