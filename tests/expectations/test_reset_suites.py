"""The suites of a reset: a plan and a result in order break no rule, each damage breaks its own."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from change.scenes import TOPIC, a_plan, a_request, a_snapshot, partition_facts

from acktrail.change import api
from acktrail.change.plan.change_plan import plan_json, with_hash
from acktrail.change.plan.impact import Clamp, Impact
from acktrail.change.plan.notices import Notice, Severity
from acktrail.change.plan.snapshot_facts import TargetOffset
from acktrail.change.request.reset_request import StrategyKind, TopicScope
from acktrail.config import TablesConfig
from acktrail.errors import QualityGateFailed, UnknownName
from acktrail.model.rules.catalogue import rule_catalogue
from acktrail.tables.delta.store import Tables
from acktrail_expectations import evaluation
from acktrail_expectations.reset_gate import validate_plan, validate_result

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("plain_engine")]

GREAT_EXPECTATIONS = evaluation._outcomes
AT = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
DATA = json.loads(Path(__file__).with_name("reset_damage.json").read_text("utf-8"))
OF_PLAN = {"cluster_id": "c", "run_id": "r", "plan_id": "p"}
PLANNED, REFUSED = (OF_PLAN | DATA[name] for name in ("reset_plan", "refused"))
DONE: dict[str, Any] = OF_PLAN | DATA["reset_result"] | {"verified_at": AT}
DAMAGE: list[dict[str, Any]] = DATA["damage"]
"""Other values in a plan or a result, and the rule that they break; `rows`: as many rows have them, each with its own;
`planned`: so many share partitions the plan has; `says`: with these numbers. What was acknowledged below the start
offset counts among what is passed."""


def stored(folder: Path, name: str, *rows: dict[str, Any]) -> TablesConfig:
    config = TablesConfig(uri=str(folder / "tables"))
    Tables(config).append(name, rows)
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


def plan_of(folder: Path, *rows: dict[str, Any], allow_skip: bool = False, **changes: Any) -> TablesConfig:
    """Tables with a plan of the share partitions `rows`; `changes`: other values in its row."""
    text = plan_text(*rows, allow_skip=allow_skip)
    return stored(folder, "reset_plans", {**OF_PLAN, "partitions": len(rows), "plan": text, **changes})


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


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage["breaks"])
def test_each_damage_breaks_its_rule(tmp_path: Path, damage: dict[str, Any]) -> None:
    """A critical rule does not let a plan through, or stops the run, each time; the others are reported. A plan of
    nothing passes neither."""
    of, rule = damage["of"], damage["breaks"]
    change = {name: value for name, value in damage.items() if name not in ("of", "breaks", "rows", "planned", "says")}
    rows = [{**(PLANNED if of == "reset_plan" else DONE), **change, **own} for own in damage.get("rows", [{}])]
    planned = damage.get("planned", len(rows))
    if of == "reset_plan":
        check = partial(validate_plan, plan_of(tmp_path, *rows, partitions=planned), "p")
    else:
        check = partial(validate_result, result_of(tmp_path, *rows, planned=planned), "p")
    for _ in range(2):
        if rule_catalogue().by_id[rule].stops_gate:
            with pytest.raises(QualityGateFailed, match=rule) as caught:
                check()
            assert damage.get("says", "") in caught.value.hint
        else:
            assert rule in {result.expectation for result in check().failed}


@pytest.mark.parametrize("suite", ["reset_plan", "reset_result"])
def test_every_rule_of_a_reset_has_a_row_that_breaks_it(suite: str) -> None:
    """A new rule needs one, too."""
    rules = {rule.id for rule in rule_catalogue().rules if suite in rule.suites}
    assert {damage["breaks"] for damage in DAMAGE if damage["of"] == suite} == rules


def test_great_expectations_itself_stops_a_bad_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own engine, on offsets that no float holds beside one that is missing: what is wrong is found, and only
    that."""
    monkeypatch.setattr(evaluation, "_outcomes", GREAT_EXPECTATIONS)
    far = 2**63 - 1
    moved = {"log_end_offset": far, "wanted_offset": far - 8, "target_offset": far - 8}
    assert validate_plan(plan_of(tmp_path, {**PLANNED, **moved}, REFUSED), "p").failed == ()
    off_by_one = {**PLANNED, **moved, "wanted_offset": far - 9}
    with pytest.raises(QualityGateFailed) as caught:
        validate_plan(plan_of(tmp_path / "bad", off_by_one, REFUSED), "p")
    assert caught.value.failures == (("reset_plan", "target_is_wanted_unless_clamped", 1),)


def test_what_is_allowed_passes(tmp_path: Path) -> None:
    """A skip that the request allows; a result that is known by the broker's description alone. A plan that nobody
    stored has nothing to vouch for it."""
    config = plan_of(tmp_path, {**PLANNED, "skipped": 5}, allow_skip=True)
    assert validate_plan(config, "p").failed == ()
    described = result_of(tmp_path / "o", {**DONE, "evidence_offset": None, "status": "OK_BY_DESCRIPTION"})
    assert validate_result(described, "p").failed == ()
    with pytest.raises(UnknownName):
        validate_plan(config, "q")


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


def parts(count: int, row: dict[str, Any]) -> list[dict[str, Any]]:
    """`row` for each of `count` share partitions."""
    return [{**row, "partition": partition} for partition in range(count)]


def test_what_an_earlier_attempt_did_counts(tmp_path: Path) -> None:
    """A second attempt leaves out what is done: each share partition has its newest result, from either. What was
    unknown at first is history."""
    first, second = parts(2, {**DONE, "attempt": 1, "verified_at": AT - dt.timedelta(seconds=9)})
    config = result_of(tmp_path, first, {**second, "status": "FAILED"}, planned=2)
    with pytest.raises(QualityGateFailed, match="every_share_partition_done"):
        validate_result(config, "p")

    later = {**DONE, "partition": 1}
    unknown = {**later, "status": "UNKNOWN", "verified_at": AT - dt.timedelta(seconds=5)}
    stored(tmp_path, "reset_executions", unknown, later)

    assert validate_result(config, "p").failed == ()
