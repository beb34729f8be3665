"""Damage to tables, and which expectations it makes fail: exactly its own."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from expectations.gate_scenes import plain_outcomes
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
from acktrail_expectations.frames.frame_columns import ObservedCluster
from acktrail_expectations.frames.table_frames import (
    export_ranges_frame,
    reconciliations_frame,
    share_partition_states_frame,
    state_partitions_frame,
)

Damage = Callable[[pa.Table], pa.Table]
ENGINE = evaluation._outcomes
CLUSTER = cluster()
LIFE = everyday()
RECORDS, STATES, RECONCILIATIONS, OBSERVED = LIFE.table(), states(LIFE), reconciliations(LIFE), logs()
RANGES = ranges(RECORDS)
EXPORTED: dict[str, Any] = {"ends": dict.fromkeys(range(3), 5), "partition_counts": {"state": 3}}
FIRST, WAITING = (row_where(STATES, group_id="orders", partition=partition) for partition in (0, 2))


def failing(suite: str, frame: pd.DataFrame) -> set[str]:
    """The rules of a suite that `frame` breaks."""
    results = evaluate(suite, checks_of_frame(suite, frame), frame, str)
    assert [result.error for result in results if result.error] == []
    return {result.expectation for result in results if result.success is False}


def checks_of_frame(suite: str, frame: pd.DataFrame) -> tuple[SuiteCheck, ...]:
    """The rules of a suite; bytes are compared where `frame` has the comparison."""
    return tuple(check for check in checks_of(suite) if {*check.columns} != {"matches_raw_bytes"} - {*frame.columns})


def failing_by_damage(suite: str, frames: Sequence[pd.DataFrame], apart: Sequence[str]) -> list[set[str]]:
    """The rules that each of `frames` breaks, out of one evaluation of all, by Great Expectations and by the plain
    meaning. `apart`: columns with numbers that are
    others in each frame, so that rows of two frames are never alike."""
    whole = pd.concat(
        [
            frame.assign(damage=number, **{column: frame[column] + 1_000 * number for column in apart})
            for number, frame in enumerate(frames)
        ],
        ignore_index=True,
    )
    found: list[set[str]] = [set() for _ in frames]
    checks = checks_of_frame(suite, whole)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(evaluation.RESULT_FORMAT, "partial_unexpected_count", len(whole))
        patched.setattr(evaluation, "_outcomes", ENGINE)
        results = evaluate(suite, checks, whole, lambda row: str(row["damage"]))
        patched.setattr(evaluation, "_outcomes", plain_outcomes)
        assert evaluate(suite, checks, whole, lambda row: str(row["damage"])) == results
    for result in results:
        for number in filter(None, (result.observed_value or "").split("; ")):
            found[int(number)].add(result.expectation)
    return found


def batches(*quads: tuple[int, int, int, int]) -> list[dict[str, int]]:
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    return [dict(zip(names, quad, strict=True)) for quad in quads]


def at(partition: int, offset: int, /, **values: Any) -> Damage:
    """Other values in the record at an address."""
    return lambda records: changed(records, row_where(records, state_partition=partition, offset=offset), **values)


def with_batches(*quads: tuple[int, int, int, int]) -> Damage:
    """Other batches in the record at 0/3, or in the first state, whose offsets 1 to 4 are acknowledged."""

    def harm(table: pa.Table) -> pa.Table:
        is_record = "offset" in table.schema.names
        index = row_where(table, state_partition=0, offset=3) if is_record else FIRST
        return changed(table, index, batches=batches(*quads))

    return harm


def row_at(index: int, **values: Any) -> Damage:
    return lambda table: changed(table, index, **values)


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
    partition = records["state_partition"]
    moved = pc.if_else(pc.equal(partition, 2), pa.scalar(7, partition.type), partition)
    return records.set_column(records.schema.get_field_index("state_partition"), "state_partition", moved)


def grown_range(first: int, last: int, **values: Any) -> Damage:
    """One more commit after the last one of state partition 0 (offsets up to 18)."""
    row = range_row(0, first, last) | values
    return lambda table: pa.concat_tables([table, pa.Table.from_pylist([row], schema=EXPORT_RANGES)])


def record_frame(records: pa.Table, observed: ObservedCluster = CLUSTER) -> pd.DataFrame:
    return record_frames(records, observed).add(records, since={})


def range_frame(table: pa.Table, records: pa.Table | None = None) -> pd.DataFrame:
    """`records`: those that are stored; None: it is not known which."""
    known = {} if records is not None else dict.fromkeys(range(3), 1_000)
    stored = stored_offsets(() if records is None else records.to_batches(), known)
    return export_ranges_frame(table, since={}, run_id=RUN, stored=stored)


def observed_frame(
    exported: dict[str, Any] = EXPORTED, observed: pa.Table = OBSERVED, minutes: int = 0
) -> pd.DataFrame:
    return state_partitions_frame(observed, **exported, now=NOW + dt.timedelta(minutes=minutes))


@dataclass(frozen=True)
class Damages:
    """A healthy table, what is done to it and the rules that each breaks, in a frame; `more`: other frames. `always`:
    rules that the healthy one breaks, too: those for information. `apart`: see `failing_by_damage`."""

    table: pa.Table
    rules: Sequence[tuple[Damage, str]]
    frame: Callable[[pa.Table], pd.DataFrame]
    more: Sequence[tuple[pd.DataFrame, str]] = ()
    apart: Sequence[str] = ("partition",)
    always: frozenset[str] = frozenset()

    @property
    def frames(self) -> list[tuple[pd.DataFrame, set[str]]]:
        """Each damaged frame with the rules that it breaks; the healthy one is the last."""
        damaged = [(self.frame(harm(self.table)), rules) for harm, rules in self.rules]
        every = [*damaged, *self.more, (self.frame(self.table), "")]
        return [(frame, {*rules.split()} | self.always) for frame, rules in every]


NOTHING = {"first_offset": None, "last_offset": None, "records_read": 0, "records_decoded": 0, "log_end_offset": 25}
COUNTS = "delivery_count_possible delivery_count_within_limit"

DAMAGE: Mapping[str, Damages] = {
    "state_records": Damages(
        RECORDS,
        [
            (twice, "record_once"),
            (lost(0, 4), "offsets_dense"),
            (lost(0, 11), "offsets_dense update_epoch_matches"),
            (lost(0, 14), "offsets_dense snapshot_epoch_step"),
            (lost(1, 5), "offsets_dense update_has_base"),
            (unreadable, "record_decoded"),
            (with_batches((0, 9, 2, 1), (12, 11, 2, 1)), "batch_first_le_last"),
            (with_batches((5, 9, 2, 1), (0, 4, 2, 1)), "batches_ascending"),
            (with_batches((0, 5, 0, 1), (5, 9, 2, 1)), "batches_non_overlapping"),
            (at(0, 5, batches=batches((9, 9, 0, 1))), "batches_not_below_start"),
            (with_batches((0, 9, 1, 1)), "delivery_state_allowed"),
            (with_batches((0, 9, 3, 1)), "delivery_state_allowed"),
            (with_batches((0, 9, 2, 0)), "acknowledged_count_ge_1"),
            (with_batches((0, 9, 0, 5)), "available_count_lt_limit"),
            (with_batches((0, 4, 2, 1), (5, 9, 2, 1)), "mergeable_neighbours"),
            (with_batches((0, 9, 2, 26)), COUNTS),
            (with_batches((0, 9, 2, -1)), "delivery_count_possible"),
            (with_batches((0, 9, 2, 6)), "delivery_count_within_limit"),
            (at(2, 0, batches=batches((0, 1, 0, 1))), "uninitialized_without_batches"),
            (at(0, 18, state_epoch=8), "state_epoch_monotone"),
            (at(0, 13, leader_epoch=1), "leader_epoch_monotone"),
            (at(0, 9, start_offset=30, delivery_complete_count=34), "start_offset_monotone"),
            (at(0, 3, delivery_complete_count=9), "delivery_complete_count_covers"),
            (at(0, 8, delivery_complete_count=0, batches=[]), "delivery_complete_count_monotone"),
            (at(0, 10, write_timestamp_ms=1), "create_le_write_timestamp"),
            (at(0, 10, create_timestamp_ms=2), "snapshot_class_known"),
            (at(2, 4, state_partition=1, offset=8), "one_state_partition_per_key key_on_its_state_partition"),
            (moved_away, "key_on_its_state_partition"),
        ],
        record_frame,
        apart=("state_partition", "first_state_partition", "home_state_partition"),
    ),
    "share_partition_states": Damages(
        STATES,
        [
            (lambda t: pa.concat_tables([t, t.slice(0, 1)]), "share_partition_once"),
            (row_at(FIRST, state_partition=2), "key_on_its_state_partition"),
            (with_batches((1, 4, 2, 1), (9, 8, 2, 1)), "batch_first_le_last"),
            (with_batches((3, 4, 2, 1), (1, 2, 2, 1)), "batches_ascending"),
            (with_batches((1, 4, 2, 1), (4, 4, 0, 1)), "batches_non_overlapping"),
            (with_batches((0, 0, 0, 1), (1, 4, 2, 1)), "batches_not_below_start"),
            (with_batches((1, 4, 2, 1), (6, 6, 1, 1)), "delivery_state_allowed"),
            (with_batches((1, 4, 2, 0)), "acknowledged_count_ge_1"),
            (with_batches((1, 4, 2, 1), (6, 6, 0, 5)), "available_count_lt_limit"),
            (with_batches((1, 2, 2, 1), (3, 4, 2, 1)), "mergeable_neighbours"),
            (with_batches((1, 4, 2, 26)), COUNTS),
            (with_batches((1, 4, 2, 6)), "delivery_count_within_limit"),
            (with_batches((1, 4, 2, 1), (100, 100, 0, 1)), "batches_below_log_end"),
            (row_at(WAITING, batches=batches((0, 0, 0, 1))), "uninitialized_without_batches"),
            (row_at(FIRST, available_records=2_001), "inflight_within_lock_limit"),
            (row_at(FIRST, archiving_records=2_001), "inflight_within_lock_limit"),
            (row_at(WAITING, start_offset=9, first_unfinished_offset=None, end_offset=8), "start_offset_le_end_offset"),
            (row_at(WAITING, start_offset=101, first_unfinished_offset=None), "start_offset_le_log_end"),
            (row_at(FIRST, end_offset=101), "end_offset_le_log_end"),
            (row_at(FIRST, first_unfinished_offset=0), "first_unfinished_ge_start_offset"),
            (row_at(FIRST, first_unfinished_offset=6), "first_unfinished_le_end_offset"),
            (row_at(FIRST, acknowledged_records=5), "finished_records_match_batches"),
            (row_at(FIRST, delivery_complete_count=3), "delivery_complete_count_covers"),
            *((row_at(FIRST, completeness=each), "state_reliable") for each in ("gap", "unreadable")),
            (row_at(FIRST, completeness="no_snapshot"), "state_has_snapshot"),
        ],
        lambda table: share_partition_states_frame(table, cluster=CLUSTER),
        always=frozenset({"terminal_prefix_absorbed"}),
    ),
    "reconciliations": Damages(
        RECONCILIATIONS,
        [
            *((row_at(0, verdict=each.value), each.value) for each in Verdict if each is not Verdict.MATCH),
            (row_at(0, verdict="elsewhere"), "verdict_known"),
            (row_at(0, verdict=None), "verdict_given"),
            (lambda t: pa.concat_tables([t, t.slice(0, 1)]), "share_partition_once"),
            (row_at(0, reason=None), "verdict_has_reason"),
            (row_at(FIRST, durable_start_offset=3), "match_has_same_start_offset"),
            (row_at(FIRST, durable_lag=3), "match_has_same_lag"),
            # A match of values that moved, or a lag at a log that grew, says only that they lie between.
            (row_at(FIRST, durable_start_offset=3, durable_lag=3, moved=True), ""),
            (row_at(FIRST, durable_lag=3, log_end_offset_before=90), ""),
        ],
        reconciliations_frame,
    ),
    "export_ranges": Damages(
        RANGES,
        [
            (grown_range(21, 22), "export_contiguous"),
            (grown_range(18, 22), "export_contiguous"),
            (lambda t: without(t, 0), "export_begins_at_log_start"),
            (grown_range(25, 29, gap_first=19, gap_last=24), "nothing_pruned_before_export"),
            (grown_range(19, 19, **NOTHING, gap_first=19, gap_last=24), "nothing_pruned_before_export"),
            (grown_range(26, 29, gap_first=19, gap_last=24), "nothing_pruned_before_export records_follow_gap"),
            (grown_range(19, 22, gap_first=19, gap_last=18), "nothing_pruned_before_export gap_first_le_last"),
            (grown_range(19, 17, records_read=-1, records_decoded=-1, log_end_offset=19), "range_first_le_last"),
            (grown_range(19, 22, records_decoded=3), "records_accounted_for"),
            (grown_range(19, 22, records_read=3, records_decoded=3), "range_dense"),
            (grown_range(19, 22, log_end_offset=22), "range_below_log_end"),
            (grown_range(19, 22, state_topic_id="another"), "one_state_topic"),
        ],
        range_frame,
        # A commit says more records than the table holds in its offsets.
        more=[
            (range_frame(RANGES, lost(1, 3)(RECORDS)), "records_stored"),
            (range_frame(RANGES, lost(1, 0)(RECORDS)), "records_stored"),
            (range_frame(RANGES, RECORDS.filter(pc.field("state_partition") != 1)), "records_stored"),
            (range_frame(RANGES, RECORDS), ""),
        ],
        apart=(),
    ),
    "state_partitions": Damages(
        OBSERVED,
        [],
        lambda _: observed_frame(),
        more=[
            (
                observed_frame(EXPORTED | {"partition_counts": {"state": 2}}),
                "state_topic_partition_count_constant",
            ),
            (observed_frame(EXPORTED | {"ends": {0: 5, 1: 4, 2: 5}}), "export_complete"),
            (observed_frame(EXPORTED | {"ends": {0: 5, 2: 5}}), "export_complete"),
            (observed_frame(minutes=61), "export_fresh"),
            (observed_frame(minutes=60), ""),
        ],
        apart=(),
    ),
}
