"""The suites of a reset: a plan and a result in order break no rule, each damage breaks its own."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from acktrail.columnar.schemas import TABLES
from acktrail.config import TablesConfig
from acktrail.errors import QualityGateFailed, UnknownName
from acktrail.tables.store import Tables
from acktrail_expectations.change_gate import validate_plan, validate_result

pytestmark = pytest.mark.filterwarnings("default")

AT = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
PLANNED: dict[str, Any] = {
    "cluster_id": "c",
    "run_id": "r",
    "plan_id": "p",
    "group_id": "g",
    "topic": "t",
    "topic_id": "T",
    "partition": 0,
    "log_start_offset": 0,
    "log_end_offset": 10,
    "start_offset": 8,
    "wanted_offset": 2,
    "target_offset": 2,
    "clamp": None,
    "to_deliver": 8,
    "delivered_again": 7,
    "passed_again": 6,
    "acknowledgements_forgotten": 1,
    "archived_forgotten": 0,
    "skipped": 0,
    "refused": False,
}
COUNTED: dict[str, Any] = {
    **PLANNED,
    "acknowledgements_forgotten": 4,
    "acknowledgements_known": 4,
    "passed_acknowledged": 3,
    "archived_forgotten": None,
    "archived_known": 2,
    "passed_archived": 2,
    "passed_unknown": 1,
}
"""As plans of version 2 have it: most of what is forgotten lies below the start offset."""
REFUSED: dict[str, Any] = {
    "cluster_id": "c",
    "run_id": "r",
    "plan_id": "p",
    "group_id": "g",
    "topic": "u",
    "partition": 0,
    "refused": True,
}
DONE: dict[str, Any] = {
    "cluster_id": "c",
    "run_id": "r",
    "plan_id": "p",
    "attempt": 2,
    "group_id": "g",
    "topic": "t",
    "topic_id": "T",
    "partition": 0,
    "target_offset": 2,
    "status": "OK",
    "start_offset_after": 2,
    "described_start_offset": 2,
    "state_epoch_before": 3,
    "state_epoch_after": 4,
    "evidence_offset": 17,
    "verified_at": AT,
}


def stored(folder: Path, name: str, *rows: dict[str, Any]) -> TablesConfig:
    config = TablesConfig(uri=str(folder / "tables"))
    Tables(config).append(name, pa.Table.from_pylist(list(rows), schema=TABLES[name]))
    return config


def plan_of(folder: Path, *rows: dict[str, Any], allow_skip: bool = False) -> TablesConfig:
    text = json.dumps({"request": {"allow_skip": allow_skip}})
    config = stored(folder, "reset_plans", {"cluster_id": "c", "run_id": "r", "plan_id": "p", "plan": text})
    Tables(config).append(
        "reset_plan_partitions", pa.Table.from_pylist(list(rows), schema=TABLES["reset_plan_partitions"])
    )
    return config


def test_a_plan_in_order_passes_and_is_recorded_once(tmp_path: Path) -> None:
    """Refused share partitions break nothing; a second validation gives back what is recorded."""
    clamped, counted = {**PLANNED, "partition": 1, "wanted_offset": -4, "clamp": "below"}, {**COUNTED, "partition": 2}
    config = plan_of(tmp_path, PLANNED, clamped, counted, REFUSED)
    first = validate_plan(config, "p")
    assert first.failed == ()
    assert len(first.results) == 10
    assert validate_plan(config, "p").results == first.results
    assert Tables(config).read("quality_results").num_rows == 10


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"target_offset": -1, "wanted_offset": -1, "to_deliver": 11}, "target_not_negative"),
        ({"log_start_offset": 3}, "target_ge_log_start"),
        ({"log_end_offset": 1, "to_deliver": -1, "delivered_again": -6, "passed_again": -7}, "target_le_log_end"),
        ({"wanted_offset": 3}, "target_is_wanted_unless_clamped"),
        ({"skipped": 1}, "skips_only_where_allowed"),
        ({"target_offset": None}, "target_or_refusal"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_damage_of_a_plan_stops_it(tmp_path: Path, change: dict[str, Any], rule: str) -> None:
    """The rule is named, and the gate does not let the plan through."""
    config = plan_of(tmp_path, {**PLANNED, **change})
    with pytest.raises(QualityGateFailed) as caught:
        validate_plan(config, "p")
    assert rule in {name for _, name, _ in caught.value.failures}


def test_a_share_partition_twice_stops_a_plan(tmp_path: Path) -> None:
    """Two targets for one share partition are none."""
    with pytest.raises(QualityGateFailed, match="share_partition_once"):
        validate_plan(plan_of(tmp_path, PLANNED, PLANNED), "p")


def test_an_allowed_skip_passes(tmp_path: Path) -> None:
    """The request decides."""
    assert validate_plan(plan_of(tmp_path, {**PLANNED, "skipped": 5}, allow_skip=True), "p").failed == ()


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"to_deliver": 9}, "to_deliver_is_log_end_less_target"),
        ({"delivered_again": 6}, "delivered_again_adds_up"),
        ({"delivered_again": 9, "passed_again": 8}, "delivered_again_le_to_deliver"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_numbers_that_do_not_add_up_are_errors(tmp_path: Path, change: dict[str, Any], rule: str) -> None:
    """They do not stop a plan, for nothing is sent by them; they are told."""
    summary = validate_plan(plan_of(tmp_path, {**PLANNED, **change}), "p")
    assert rule in {result.expectation for result in summary.failed}


@pytest.mark.parametrize("name", ["acknowledgements_known", "archived_known", "passed_again"])
def test_what_lies_below_the_start_offset_is_not_counted_twice(tmp_path: Path, name: str) -> None:
    """Forgotten records below the start offset are among those passed again: one more does not add up."""
    config = plan_of(tmp_path, {**COUNTED, name: COUNTED[name] + 1})
    assert "delivered_again_adds_up" in {result.expectation for result in validate_plan(config, "p").failed}


def test_a_plan_that_nobody_stored_is_unknown(tmp_path: Path) -> None:
    """Nothing vouches for it."""
    with pytest.raises(UnknownName):
        validate_plan(plan_of(tmp_path, PLANNED), "q")


def test_the_newest_verification_of_the_newest_attempt_counts(tmp_path: Path) -> None:
    """An earlier attempt, and what was unknown at first, are history."""
    config = stored(
        tmp_path,
        "reset_executions",
        {**DONE, "attempt": 1, "status": "FAILED"},
        {**DONE, "status": "UNKNOWN", "verified_at": AT - dt.timedelta(seconds=9)},
        DONE,
    )
    assert validate_result(config, "p").failed == ()


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"status": "UNKNOWN"}, "every_outcome_settled"),
        ({"status": "NOT_PERSISTED"}, "every_share_partition_done"),
        ({"start_offset_after": 3}, "start_offset_is_target"),
        ({"described_start_offset": 3}, "described_start_offset_is_target"),
        ({"state_epoch_after": 2}, "state_epoch_not_back"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_damage_of_a_result_is_critical(tmp_path: Path, change: dict[str, Any], rule: str) -> None:
    """A result that is not what was planned stops the run."""
    config = stored(tmp_path, "reset_executions", {**DONE, **change})
    with pytest.raises(QualityGateFailed) as caught:
        validate_result(config, "p")
    assert rule in {name for _, name, _ in caught.value.failures}


def test_a_result_without_evidence_is_a_warning(tmp_path: Path) -> None:
    """Unless it is known by the broker's description alone, which is a status of its own."""
    summary = validate_result(stored(tmp_path, "reset_executions", {**DONE, "evidence_offset": None}), "p")
    assert {result.expectation for result in summary.failed} == {"shown_by_a_state_record"}
    other = stored(tmp_path / "o", "reset_executions", {**DONE, "evidence_offset": None, "status": "OK_BY_DESCRIPTION"})
    assert validate_result(other, "p").failed == ()
