"""A share group is safe where state records rule earlier work out, not where its start offset stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from samples.audited_ledger import audit, filled
from samples.expansion_world import BEGIN, CLUSTER, MINUTE, ExpansionRows, look
from samples.plain_audit import ms_of

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import TablesConfig
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.expansion.ordering import OrderingReason
from acktrail.tables.delta.store import Tables

SHARE = ("g", "share")


def drained() -> ExpansionRows:
    """From one to two partitions; the start offset of partition 1 moves after the group has finished partition 0."""
    rows = ExpansionRows()
    for minute, ends, positions in (
        (0, [10], {0: 5}),
        (1, [12, 0], {0: 6, 1: 0}),
        (10, [20, 4], {0: 20, 1: 0}),
        (11, [21, 8], {0: 21, 1: 0}),
        (12, [21, 9], {0: 21, 1: 9}),
    ):
        look(rows, minute, ends, dict(positions), group=SHARE)
    return rows


def record(minute: float, offset: int, **values: Any) -> dict[str, Any]:
    own = {
        "cluster_id": CLUSTER, "state_partition": 3, "offset": offset, "timestamp_ms": ms_of(BEGIN + minute * MINUTE),
        "group_id": "g", "topic_id": "t", "partition": 1, "record_type": "update", "snapshot_epoch": 0,
        "decode_status": "decoded", **values,
    }  # fmt: skip
    return {name: own.get(name) for name in TABLES["state_records"].names}


def batch(first: int, last: int) -> dict[str, int]:
    return {"first_offset": first, "last_offset": last, "delivery_state": 2, "delivery_count": 1}


INITIAL = record(1, 4, record_type="snapshot", start_offset=0, batches=[])
EARLY = record(5, 6, batches=[batch(2, 3)])
IDLE = record(2, 5, record_type="snapshot", snapshot_epoch=3, leader_epoch=2, start_offset=0, batches=[])
WHOLE = record(11.5, 9, record_type="snapshot", snapshot_epoch=3, leader_epoch=2, start_offset=9, batches=[])
MOVED = record(11.5, 9, start_offset=9, batches=[])


def verdict(config: TablesConfig) -> tuple[str, str | None]:
    audit(config, KeyMapping.NONE)
    [row] = Tables(config).read("ordering_audits").to_pylist()
    return row["verdict"], row["reason"]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([], ("indeterminate", OrderingReason.WORK_NOT_RECORDED.value)),
        ([INITIAL, MOVED], ("safe", None)),
        ([INITIAL, EARLY, MOVED], ("indeterminate", OrderingReason.WORK_RECORDED.value)),
        ([INITIAL], ("indeterminate", OrderingReason.WORK_NOT_RECORDED.value)),
        ([MOVED], ("indeterminate", OrderingReason.WORK_NOT_RECORDED.value)),
        ([WHOLE], ("indeterminate", OrderingReason.WORK_NOT_RECORDED.value)),
        ([IDLE, MOVED], ("safe", None)),
        ([record(6, 7, decode_status="malformed", group_id=None), INITIAL, MOVED],
         ("indeterminate", OrderingReason.WORK_NOT_RECORDED.value)),
        ([record(6, 7, decode_status="malformed", group_id=None, state_partition=4), INITIAL, MOVED], ("safe", None)),
        ([INITIAL, record(6, 7, group_id="h", batches=[batch(2, 3)]), MOVED], ("safe", None)),
        ([INITIAL, {**EARLY, "timestamp_ms": None}, MOVED], ("indeterminate", OrderingReason.WORK_RECORDED.value)),
        ([INITIAL, {**MOVED, "timestamp_ms": ms_of(BEGIN + 10 * MINUTE) + 4_000}],
         ("indeterminate", OrderingReason.WORK_RECORDED.value)),
    ],
)  # fmt: skip
def test_work_behind_a_start_offset_that_stands(
    tmp_path: Path, records: list[dict[str, Any]], expected: tuple[str, str | None]
) -> None:
    """R003-01: records of the new partition that were finished out of order before the source was leave its start
    offset at 0. Safe is proven only where the exported state records show that there were none."""
    config = filled(tmp_path, drained())
    if records:
        Tables(config).append("state_records", records)

    assert verdict(config) == expected


def test_a_gap_of_the_export_hides_work(tmp_path: Path) -> None:
    """Where records from before the first work are in no table, an earlier one can be among them."""
    config = filled(tmp_path, drained())
    Tables(config).append("state_records", [INITIAL, MOVED])
    gap = {"cluster_id": CLUSTER, "state_partition": 3, "gap_first": 6, "gap_last": 8, "exported_at": BEGIN + MINUTE}
    Tables(config).append("export_ranges", [{n: gap.get(n) for n in TABLES["export_ranges"].names}])

    assert verdict(config) == ("indeterminate", OrderingReason.WORK_NOT_RECORDED.value)


@pytest.mark.parametrize("is_recorded", [False, True])
def test_resets_that_are_known_cut_the_series(tmp_path: Path, is_recorded: bool) -> None:
    """R003-01: a destination that acktrail, or anything that left a state record, reset forward between two looks has
    not begun; without either it looks like progress."""
    rows = ExpansionRows()
    for minute, ends, positions in (
        (0, [10], {0: 5}),
        (1, [12, 0], {0: 6, 1: 0}),
        (10, [20, 9], {0: 6, 1: 0}),
        (11, [20, 9], {0: 6, 1: 9}),
        (12, [20, 9], {0: 6, 1: 9}),
    ):
        look(rows, minute, ends, dict(positions), group=SHARE)
    config = filled(tmp_path, rows)
    assert verdict(config) == ("indeterminate", OrderingReason.NONE_SHOWN_OPEN.value), "it looks like a violation"
    if is_recorded:
        made = {"create_timestamp_ms": 7, "write_timestamp_ms": 7, "leader_epoch": 0, "snapshot_epoch": 1}
        reset = record(10.5, 8, record_type="snapshot", start_offset=9, batches=[], **made)
        Tables(config).append("state_records", [INITIAL, reset])
    else:
        row = {
            "cluster_id": CLUSTER, "group_id": "g", "topic_id": "t", "partition": 1, "status": "OK",
            "verified_at": BEGIN + 10.5 * MINUTE,
        }  # fmt: skip
        Tables(config).append("reset_executions", [{n: row.get(n) for n in TABLES["reset_executions"].names}])

    assert verdict(config)[1] != OrderingReason.NONE_SHOWN_OPEN.value
