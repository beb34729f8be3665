"""Damage to tables, and which expectations it makes fail: exactly its own."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from expectations.sample_tables import (
    NOW,
    RUN,
    changed,
    cluster,
    logs,
    plain_outcomes,
    range_row,
    ranges,
    reconciliations,
    record_frames,
    row_where,
    rows_of,
    states,
    without,
)
from state_topics.coordinator_log import TOPIC, Coordinator, batch, everyday, from_raw, share_partition

from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
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
PRUNED = cluster(offsets=logs(ends={(TOPIC, 0): (2, 100)}))
"""Retention went ahead of a group: that is legal, and said."""
LIFE = everyday()
RECORDS, STATES, RECONCILIATIONS, OBSERVED = LIFE.table(), states(LIFE), reconciliations(LIFE), logs()
RANGES = ranges(RECORDS)
EXPORTED: dict[str, Any] = {"ends": dict.fromkeys(range(3), 5), "partition_counts": {"state": 3}}
_DAMAGE = json.loads(Path(__file__).with_name("damage.json").read_text(encoding="utf-8"))
_DEEDS = frozenset({"do", "again", "without", "lost", "range", "at", "row", "breaks"})
_OF_A_BATCH = ("first_offset", "last_offset", "delivery_state", "delivery_count")
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


def harmed(table: pa.Table, how: Mapping[str, Any]) -> pa.Table:
    """A table after one damage of ``damage.json``: `do` names a function of this module; a row is there `again`, or is
    gone (`without`); the record at an address is `lost`; one more commit after the last one of state partition 0
    (offsets up to 18) has a `range`; a `row` (the first state, or one that waits), or the record `at` an address, has
    other values."""
    values = {name: value for name, value in how.items() if name not in _DEEDS}
    if "batches" in how:
        values["batches"] = [dict(zip(_OF_A_BATCH, quad, strict=True)) for quad in how["batches"]]
    match how:
        case {"do": name}:
            return {"unreadable": unreadable, "moved_away": moved_away}[name](table)
        case {"again": index}:
            return pa.concat_tables([table, table.slice(index, 1)])
        case {"without": index}:
            return without(table, index)
        case {"lost": (partition, offset)}:
            return without(table, row_where(table, state_partition=partition, offset=offset))
        case {"range": (first, last)}:
            row = range_row(0, first, last) | values
            return pa.concat_tables([table, rows_of("export_ranges", RUN, [row])])
        case {"at": (partition, offset)}:
            return changed(table, row_where(table, state_partition=partition, offset=offset), **values)
    return changed(table, {"first": FIRST, "waiting": WAITING}[how["row"]], **values)


def damages_of(name: str) -> list[tuple[Damage, str]]:
    """What ``damage.json`` does to a table, each with the rules that it breaks: none where a match of values that
    moved, or a lag at a log that grew, says only that they lie between."""
    return [(partial(harmed, how=how), how["breaks"]) for how in _DAMAGE.get(name, ())]


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


def record_frame(records: pa.Table, observed: ObservedCluster = CLUSTER, **more: bool) -> pd.DataFrame:
    return record_frames(records, observed, **more).add(records, since={})


def many_updates(count: int) -> pa.Table:
    """A snapshot, and `count` updates after it."""
    life = Coordinator(limit=1_000)
    life.initialize(share_partition())
    for offset in range(count):
        life.write(share_partition(), offset, batch(offset, offset))
    return life.table()


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


OF_VERDICTS = [
    (partial(harmed, how={"row": "first", "verdict": each.value}), each.value)
    for each in Verdict
    if each is not Verdict.MATCH
]
ALTERED = harmed(RECORDS, {"at": (0, 10), "write_timestamp_ms": 2**40})
"""A decoded number that its bytes do not have."""
PARTITIONS: Sequence[tuple[pd.DataFrame, str]] = (
    (observed_frame(EXPORTED | {"partition_counts": {"state": 2}}), "state_topic_partition_count_constant"),
    (observed_frame(EXPORTED | {"ends": {0: 5, 1: 4, 2: 5}}), "export_complete"),
    (observed_frame(EXPORTED | {"ends": {0: 5, 2: 5}}), "export_complete"),
    (observed_frame(minutes=61), "export_fresh"),
    (observed_frame(minutes=60), ""),
)
STORED: Sequence[tuple[pd.DataFrame, str]] = (
    (range_frame(RANGES, harmed(RECORDS, {"lost": (1, 3)})), "records_stored"),
    (range_frame(RANGES, harmed(RECORDS, {"lost": (1, 0)})), "records_stored"),
    (range_frame(RANGES, RECORDS.filter(pc.field("state_partition") != 1)), "records_stored"),
    (range_frame(RANGES, RECORDS), ""),
)
"""A commit says more records than the table holds in its offsets."""

DAMAGE: Mapping[str, Damages] = {
    "state_records": Damages(
        RECORDS,
        damages_of("state_records"),
        record_frame,
        more=[
            (record_frame(many_updates(502)), "snapshot_cadence"),
            (record_frame(ALTERED, compares_bytes=True), "record_matches_raw_bytes"),
        ],
        apart=("state_partition", "first_state_partition", "home_state_partition"),
    ),
    "share_partition_states": Damages(
        STATES,
        damages_of("share_partition_states"),
        lambda table: share_partition_states_frame(table, cluster=CLUSTER),
        more=[(share_partition_states_frame(STATES, cluster=PRUNED), "start_offset_ge_log_start")],
        always=frozenset({"terminal_prefix_absorbed"}),
    ),
    "reconciliations": Damages(RECONCILIATIONS, [*OF_VERDICTS, *damages_of("reconciliations")], reconciliations_frame),
    "export_ranges": Damages(RANGES, damages_of("export_ranges"), range_frame, more=STORED, apart=()),
    "state_partitions": Damages(OBSERVED, [], lambda _: observed_frame(), more=PARTITIONS, apart=()),
}
