"""The suites of a reset: a plan and a result in order break no rule, each damage breaks its own."""

from __future__ import annotations

import datetime as dt
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from change.scenes import TOPIC, a_plan, a_request, a_snapshot, partition_facts

from acktrail.change import api
from acktrail.change.collection.facts import TargetOffset
from acktrail.change.planning.impact import Clamp, Impact
from acktrail.change.planning.notices import Notice, Severity
from acktrail.change.planning.plan_file import plan_json, with_hash
from acktrail.change.request.reset_request import StrategyKind, TopicScope
from acktrail.config import TablesConfig
from acktrail.errors import QualityGateFailed, UnknownName
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.store import Tables
from acktrail_expectations.reset_gate import validate_plan, validate_result
from acktrail_expectations.results import ValidationSummary, recorded

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
    "to_deliver": 7,
    "hidden_ahead": 1,
    "delivered_again": 6,
    "passed_again": 5,
    "acknowledgements_known": 4,
    "passed_acknowledged": 3,
    "archived_known": 2,
    "passed_archived": 2,
    "passed_unknown": 1,
    "skipped": 0,
    "refused": False,
}
"""Most of what is forgotten lies below the start offset; one offset from the target on is no record."""
REFUSED: dict[str, Any] = {
    "cluster_id": "c",
    "run_id": "r",
    "plan_id": "p",
    "group_id": "g",
    "topic": "u",
    "partition": 0,
    "wanted_offset": None,
    "target_offset": None,
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


def plan_text(*rows: dict[str, Any], allow_skip: bool = False) -> str:
    """A plan as it is stored: of the share partitions `rows`; those with `refused` have a refusal."""
    plan = a_plan(a_request(topics=(TopicScope(topic="orders"),), allow_skip=allow_skip))
    (planned,) = plan.partitions
    assert planned.impact is not None
    partitions, notices = [], []
    for row in rows:
        named = {each.name: row[each.name] for each in fields(planned) if each.name in row}
        impact = replace(planned.impact, **{each.name: row[each.name] for each in fields(Impact) if each.name in row})
        partitions.append(replace(planned, **named, impact=None if row["refused"] else impact))
        if row["refused"]:
            about = {name: row[name] for name in ("group_id", "topic", "partition")}
            notices.append(Notice(severity=Severity.REFUSAL, rule="some_rule", text="refused", **about))
    return plan_json(with_hash(replace(plan, partitions=tuple(partitions), notices=tuple(notices))))


def plan_of(
    folder: Path, *rows: dict[str, Any], allow_skip: bool = False, partitions: int | None = None
) -> TablesConfig:
    """Tables with a plan of the share partitions `rows`, whose row says `partitions` (default: their number)."""
    text = plan_text(*rows, allow_skip=allow_skip)
    count = len(rows) if partitions is None else partitions
    plan = {"cluster_id": "c", "run_id": "r", "plan_id": "p", "partitions": count, "plan": text}
    return stored(folder, "reset_plans", plan)


def result_of(folder: Path, *rows: dict[str, Any], planned: int = 1) -> TablesConfig:
    """Tables with the results `rows` of a plan of `planned` share partitions."""
    config = plan_of(folder, *parts(planned, PLANNED))
    return stored(folder, "reset_executions", *rows) if rows else config


def test_a_plan_in_order_passes_and_is_recorded_once(tmp_path: Path) -> None:
    """Refused share partitions break nothing; a second validation gives back what is recorded."""
    clamped = {**PLANNED, "partition": 1, "wanted_offset": -4, "clamp": Clamp.BELOW_LOG_START}
    config = plan_of(tmp_path, PLANNED, clamped, REFUSED)
    first = validate_plan(config, "p")
    assert first.failed == ()
    assert len(first.results) == 11
    assert validate_plan(config, "p").results == first.results
    assert Tables(config).read("quality_results").num_rows == 11


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"target_offset": -1, "wanted_offset": -1, "to_deliver": 10}, "target_not_negative"),
        ({"log_start_offset": 3}, "target_ge_log_start"),
        ({"log_end_offset": 1, "to_deliver": -2, "delivered_again": -7, "passed_again": -8}, "target_le_log_end"),
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


@pytest.mark.parametrize("kind", [StrategyKind.TO_SNAPSHOT, StrategyKind.TO_HISTORY, StrategyKind.TO_LATEST])
@pytest.mark.parametrize("allow_skip", [True, False])
def test_the_gate_and_the_plan_have_one_verdict_on_what_is_skipped(
    tmp_path: Path, kind: StrategyKind, allow_skip: bool
) -> None:
    """An undo, or a way back to an earlier time, may leave behind what the group was done with then, as on the command
    line; what the plan refuses has no target to send; what the request allows passes."""
    facts = partition_facts(given=TargetOffset(offset=90, topic_id=TOPIC.topic_id))
    plan = a_plan(a_request(kind, allow_skip=allow_skip), a_snapshot(facts))
    config = TablesConfig(uri=str(tmp_path))
    api.store_plan(config, plan)
    assert plan.totals.skipped == (50 if kind is not StrategyKind.TO_LATEST else 60 if allow_skip else None)
    assert bool(plan.refusals) is (kind is StrategyKind.TO_LATEST and not allow_skip)
    assert [result.expectation for result in validate_plan(config, plan.plan_id).failed] == []


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"to_deliver": 8}, "to_deliver_is_log_end_less_target"),
        ({"delivered_again": 7}, "delivered_again_adds_up"),
        ({"delivered_again": 8, "passed_again": 7}, "delivered_again_le_to_deliver"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_numbers_that_do_not_add_up_are_errors(tmp_path: Path, change: dict[str, Any], rule: str) -> None:
    """They do not stop a plan, for nothing is sent by them; they are reported."""
    summary = validate_plan(plan_of(tmp_path, {**PLANNED, **change}), "p")
    assert rule in {result.expectation for result in summary.failed}


@pytest.mark.parametrize("name", ["acknowledgements_known", "archived_known", "passed_again"])
def test_what_lies_below_the_start_offset_is_not_counted_twice(tmp_path: Path, name: str) -> None:
    """Forgotten records below the start offset are among those passed again: one more does not add up."""
    config = plan_of(tmp_path, {**PLANNED, name: PLANNED[name] + 1})
    assert "delivered_again_adds_up" in {result.expectation for result in validate_plan(config, "p").failed}


def test_a_plan_that_nobody_stored_is_unknown(tmp_path: Path) -> None:
    """Nothing vouches for it."""
    with pytest.raises(UnknownName):
        validate_plan(plan_of(tmp_path, PLANNED), "q")


def test_the_newest_verification_of_the_newest_attempt_counts(tmp_path: Path) -> None:
    """An earlier attempt, and what was unknown at first, are history."""
    config = result_of(
        tmp_path,
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
    config = result_of(tmp_path, {**DONE, **change})
    with pytest.raises(QualityGateFailed) as caught:
        validate_result(config, "p")
    assert rule in {name for _, name, _ in caught.value.failures}


def test_a_result_without_evidence_is_a_warning(tmp_path: Path) -> None:
    """Unless it is known by the broker's description alone, which is a status of its own."""
    summary = validate_result(result_of(tmp_path, {**DONE, "evidence_offset": None}), "p")
    assert {result.expectation for result in summary.failed} == {"shown_by_a_state_record"}
    other = result_of(tmp_path / "o", {**DONE, "evidence_offset": None, "status": "OK_BY_DESCRIPTION"})
    assert validate_result(other, "p").failed == ()


def parts(count: int, row: dict[str, Any]) -> list[dict[str, Any]]:
    """`row` for each of `count` share partitions."""
    return [{**row, "partition": partition} for partition in range(count)]


def results_of(config: TablesConfig, run_id: str) -> ValidationSummary:
    found = recorded(Tables(config), run_id)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("rows", "partitions"), [(0, 4), (3, 4), (4, 3), (0, 0)], ids=["none", "one missing", "one too many", "empty plan"]
)
def test_a_plan_whose_rows_are_not_as_many_as_planned_is_stopped(tmp_path: Path, rows: int, partitions: int) -> None:
    """Both numbers are in the error and in the results, also where other rules fail; a plan of nothing passes
    neither."""
    config = plan_of(tmp_path, *parts(rows, PLANNED), partitions=partitions)

    for _ in range(2):
        with pytest.raises(QualityGateFailed, match="row_count_as_planned") as caught:
            validate_plan(config, "p")
        assert f"{rows}, in the row of the plan: {partitions}. What" in caught.value.hint

    (failed,) = results_of(config, "reset-plan-p").critical_failures
    assert failed.observed_value is not None
    assert failed.observed_value in caught.value.hint
    assert Tables(config).read("quality_results").num_rows == 11


def test_a_plan_of_unknown_size_is_stopped(tmp_path: Path) -> None:
    """Nothing says whether its share partitions are all of it."""
    row = {"cluster_id": "c", "run_id": "r", "plan_id": "p", "plan": plan_text(PLANNED)}
    config = stored(tmp_path, "reset_plans", row)

    with pytest.raises(QualityGateFailed) as caught:
        validate_plan(config, "p")

    assert "in the row of the plan: unknown." in caught.value.hint


@pytest.mark.parametrize(("rows", "planned"), [(3, 4), (4, 3), (1, 0)], ids=["one missing", "one too many", "no plan"])
def test_a_result_that_is_not_about_the_whole_plan_is_critical(tmp_path: Path, rows: int, planned: int) -> None:
    """A share partition without a result is not known to stand at its target."""
    config = result_of(tmp_path, *parts(rows, DONE), planned=planned)

    with pytest.raises(QualityGateFailed, match="row_count_as_planned") as caught:
        validate_result(config, "p")

    assert f"a result: {rows}, share partitions of the plan: {planned}. What" in caught.value.hint


def test_what_an_earlier_attempt_did_counts(tmp_path: Path) -> None:
    """A second attempt leaves out what is done: each share partition has its newest result, from either."""
    first, second = parts(2, {**DONE, "attempt": 1, "verified_at": AT - dt.timedelta(seconds=9)})
    config = result_of(tmp_path, first, {**second, "status": "FAILED"}, planned=2)
    with pytest.raises(QualityGateFailed, match="every_share_partition_done"):
        validate_result(config, "p")

    stored(tmp_path, "reset_executions", {**DONE, "partition": 1})

    assert validate_result(config, "p").failed == ()
