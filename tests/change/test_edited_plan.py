"""The numbers of a plan are claims: anybody can edit a file and hash it again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from change.plan_scene import ONE_RELEASE, TOPIC, Command, Scene
from change.scenes import a_plan, a_request, a_snapshot, logs
from hypothesis import given, settings
from hypothesis import strategies as st

from acktrail.change.collection.facts import Snapshot, TargetOffset, TargetOffsets
from acktrail.change.planning.change_plan import plan_json, with_hash
from acktrail.change.planning.reset_plan import (
    OWN_OFFSETS,
    ResetPlan,
    as_planned,
    changes_since_plan,
    differences,
    own_offsets,
)
from acktrail.change.request.reset_request import Strategy, StrategyKind
from acktrail.errors import AcktrailError
from acktrail.plain_data import from_json_value, to_json_value

KINDS = (
    StrategyKind.TO_EARLIEST,
    StrategyKind.TO_LATEST,
    StrategyKind.TO_OFFSET,
    StrategyKind.SHIFT_BY,
    StrategyKind.TO_CURRENT,
    StrategyKind.TO_DATETIME,
    StrategyKind.FROM_FILE,
    StrategyKind.TO_HISTORY,
)


def numbers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all numbers, and of what is null, in plain data."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from numbers(part, (*path, name))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from numbers(part, (*path, index))
    elif value is None or type(value) is int:
        yield path


def edited(plan: ResetPlan, path: tuple[Any, ...], number: int) -> ResetPlan | None:
    """The plan with another number in one place, and its hash; None: it is no plan any more."""
    data = to_json_value(plan)
    place = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = number
    try:
        return with_hash(from_json_value(ResetPlan, data))
    except AcktrailError:
        return None


def sends(plan: ResetPlan) -> tuple[Any, ...]:
    """What a plan asks for, and what forbids it or has to be known."""
    targets = {row.key: row.target_offset for row in plan.executable(partial=True)}
    return targets, {(one.rule, one.group_id, one.topic, one.partition) for one in plan.refusals}


def is_refused(plan: ResetPlan, now: Snapshot, given: TargetOffsets) -> bool:
    rows = plan.executable(partial=True)
    known = {facts.key for facts in now.partitions}
    if any(row.key not in known for row in plan.partitions) or plan.group_ids != ("g",):
        return True  # the snapshot of such a plan is another one
    if changes_since_plan(plan, rows, now):
        return True
    own = own_offsets(plan) if plan.request.strategy.kind in OWN_OFFSETS else given
    return not rows or bool(differences(plan, rows, as_planned(plan, now, own)))


@settings(max_examples=150)
@given(logs(), st.sampled_from(KINDS), st.integers(0, 60), st.data())
def test_an_edited_number_is_refused_or_changes_nothing(facts: Any, kind: StrategyKind, number: int, data: Any) -> None:
    """Whatever number is edited: the plan is refused, or it asks for what the plan of its request, made now, asks for,
    with the same refusals."""
    values = {
        StrategyKind.TO_OFFSET: {"number": number},
        StrategyKind.SHIFT_BY: {"number": number - 30},
        StrategyKind.TO_DATETIME: {"moment_ms": number},
        StrategyKind.TO_HISTORY: {"moment_ms": number},
        StrategyKind.FROM_FILE: {"source": "offsets.csv"},
    }
    request = a_request(strategy=Strategy(kind=kind, **values.get(kind, {})))
    named = TargetOffset(offset=number) if kind in {StrategyKind.FROM_FILE, StrategyKind.TO_HISTORY} else TargetOffset()
    at = number if (facts.log_start_offset or 0) <= number < (facts.log_end_offset or 0) else None
    now = a_snapshot(replace(facts, given=named, offset_at=at))
    given: TargetOffsets = {"g": {("orders", 0): named}}
    plan = a_plan(request, now)
    assert not plan.executable(partial=True) or not is_refused(plan, now, given), "as it was made it stands"
    path = data.draw(st.sampled_from(sorted(numbers(to_json_value(plan)), key=str)))
    changed = edited(plan, path, data.draw(st.integers(0, 70)))
    if changed is None or is_refused(changed, now, given):
        return
    own = own_offsets(changed) if kind in OWN_OFFSETS else given
    fresh = a_plan(changed.request, as_planned(changed, now, own))
    assert sends(changed) == sends(fresh), path


@pytest.mark.broker
@ONE_RELEASE
@pytest.mark.parametrize("is_whole", [False, True], ids=["target", "everything"])
def test_an_edited_target_is_neither_approved_nor_applied(
    scene: Scene, reset: Command, tmp_path: Path, is_whole: bool
) -> None:
    """To offset 5 edited to 9: the target alone, or with the strategy and no word of the 4 records that are skipped."""
    group, file = scene.group(), tmp_path / "plan.json"
    plan = from_json_value(ResetPlan, scene.plan(groups=[group], topics=[TOPIC], strategies={"to-offset": "5"}))
    rows = tuple(replace(row, wanted_offset=9, target_offset=9) for row in plan.partitions)
    strategy = replace(plan.request.strategy, number=9 if is_whole else 5)
    made = replace(plan, request=replace(plan.request, strategy=strategy), partitions=rows)
    file.write_text(plan_json(with_hash(made)))
    for words in (("approve", str(file)), ("apply", str(file)), ("apply", str(file), "--execute")):
        said = reset(*words).complaint(2)
        assert ("would_skip" if is_whole else "judged_otherwise") in said or "judged_otherwise" in said
    assert scene.starts(group) == [5, 5]
    assert json.loads(file.read_text())["totals"]["skipped"] == 0
