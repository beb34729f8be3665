"""A plan executed in part, and undo: what is left out, what is taken back. On real brokers of two releases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from change.plan_scene import ONE_RELEASE, RECORDS, TOPIC, Command, Scene

from acktrail.change.audit.audit_chain import Event
from acktrail.errors import ChangeInProgress, ChangeRefused, PlanStale
from acktrail.tables.delta.store import Tables

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def test_a_partial_apply_says_what_it_left_out(scene: Scene, reset: Command) -> None:
    """A partition that is not there, and a whole group: exit code 7, a row for every share partition of the plan in the
    table, in JSON and in the text, PARTLY in the list; a second time nothing is sent and the same is said."""
    group = scene.group()
    plan = scene.earliest(group, groups=[group, f"{group}-missing"], topics=[f"{TOPIC}:0,7"])
    done = reset("apply", plan["plan_id"], "--execute", "--partial", "--watch", "0", "--json")
    assert done.code == 7, done.stderr
    found = json.loads(done.stdout)
    outcomes = {(row["group_id"], row["partition"]): (row["status"], row["error"]) for row in found["partitions"]}
    assert outcomes.keys() == {(name, index) for name in (group, f"{group}-missing") for index in (0, 7)}
    assert outcomes[group, 0][0].startswith("OK")
    assert outcomes[group, 7] == ("LEFT_OUT", "unknown_partition: there is no partition 7: the topic has 2")
    assert {status for status, _ in outcomes.values()} - {"LEFT_OUT"} == {outcomes[group, 0][0]}
    rows = Tables(scene.tables).read("reset_executions").to_pylist()
    assert len([row for row in rows if row["plan_id"] == plan["plan_id"]]) == 4
    assert scene.standing(plan["plan_id"]) == "PARTLY"

    again = reset("apply", plan["plan_id"], "--execute", "--partial", "--watch", "0")
    assert again.code == 7
    assert f"{group}-missing" in again.stdout
    assert again.stdout.count("LEFT_OUT") == 3
    assert scene.events(plan["plan_id"]).count(Event.BEFORE_CALL) == 1
    assert reset("verify", plan["plan_id"], "--watch", "0").code == 7


# Undo


def test_a_plan_that_changed_nothing_is_not_undone(scene: Scene, reset: Command) -> None:
    """PLANNED, REFUSED, REJECTED: the group, which finished everything meanwhile, is not rewound."""
    group = scene.group()
    planned, refused, rejected = scene.earliest(group), scene.earliest(group), scene.earliest(group)
    scene.note_decision(rejected, approved=False, actor="ann")
    scene.put(group, {0: RECORDS, 1: RECORDS})
    with pytest.raises(PlanStale):
        scene.execute(refused)
    for plan, standing in ((planned, "PLANNED"), (refused, "REFUSED"), (rejected, "REJECTED")):
        assert scene.standing(plan["plan_id"]) == standing
        assert "[nothing_to_undo]" in reset("undo", plan["plan_id"], "--execute").complaint(2)
    assert scene.starts(group) == [RECORDS, RECORDS]


def test_an_undo_takes_back_what_was_done_and_nothing_else(scene: Scene, reset: Command) -> None:
    """After a partial apply the other share partition is refused by name; the undo takes the rest; a second one is
    refused and names the first; the plan itself is closed."""
    group = scene.group()
    both = scene.earliest(group)
    scene.put(group, {1: 9})
    assert reset("apply", both["plan_id"], "--execute", "--partial", "--watch", "0").code == 7
    assert scene.starts(group) == [0, 9]
    assert "[not_in_plan]" in reset("undo", both["plan_id"], "--topic", f"{TOPIC}:5").complaint(2)
    refused = reset("undo", both["plan_id"])
    assert refused.code == 2
    assert f"{group} {TOPIC}:1: the plan did not change it (LEFT_OUT)" in refused.stdout
    assert reset("undo", both["plan_id"], "--execute").code == 2
    assert scene.starts(group) == [0, 9]
    undone = reset("undo", both["plan_id"], "--execute", "--partial", "--watch", "0", "--json")
    assert undone.code == 7, undone.stderr
    assert scene.starts(group) == [5, 9]
    assert scene.standing(both["plan_id"]) == "UNDONE"
    first = json.loads(undone.stdout)["plan_id"]
    second = reset("undo", both["plan_id"], "--execute", "--partial").complaint(2)
    assert "[plan_undone]" in second
    assert first in second
    assert "[plan_undone]" in reset("apply", both["plan_id"], "--execute").complaint(2)
    assert scene.starts(group) == [5, 9]


@pytest.mark.full
@ONE_RELEASE
def test_two_undos_planned_at_once_take_back_once(scene: Scene, reset: Command) -> None:
    """Both were made while the plan was done, to where it was and is: the second is refused although nothing moved."""
    group = scene.group()
    plan = scene.reset(groups=[group], topics=[TOPIC], strategies={"to-current": None})
    first, second = (scene.undo(plan) for _ in range(2))
    scene.execute(first)
    with pytest.raises(ChangeInProgress, match=first["plan_id"]):
        scene.undo(plan)
    scene.verify(first)
    with pytest.raises(ChangeRefused, match="already_undone"):
        scene.execute(second)
    with pytest.raises(ChangeRefused, match="already_undone"):
        scene.would_send(second)
    assert Event.BEFORE_CALL not in scene.events(second["plan_id"])
    redo = scene.undo(first)
    scene.execute(redo)
    scene.verify(redo)
    assert scene.standing(plan["plan_id"]) == "DONE"


def test_a_group_that_was_made_again_is_another_one(scene: Scene, reset: Command) -> None:
    """Deleted and put where it was between plan and apply: nothing looks different but the tombstones in the state
    topic. The plan is stale."""
    group = scene.group()
    plan = scene.earliest(group)
    scene.execute_change(scene.plan_deletion([group]))
    scene.put(group, {0: 5, 1: 5})
    assert "state_recreated" in reset("apply", plan["plan_id"], "--execute").complaint(2)
    assert scene.starts(group) == [5, 5]


@ONE_RELEASE
def test_commands_say_what_they_take(scene: Scene, reset: Command, tmp_path: Path) -> None:
    """A file that names its groups needs no --group; undo has --without-state as plan has it; a plan's name that no
    file can have is an unknown plan, in one line."""
    groups, file = sorted([scene.group(), scene.group()]), tmp_path / "offsets.csv"
    file.write_text("".join(f"{group},{TOPIC},{part},2\n" for group in groups for part in (0, 1)))
    done = reset("plan", "--from-file", str(file), "--json")
    assert json.loads(done.stdout)["request"]["groups"] == groups
    file.write_text(f"{TOPIC},0,2\n")
    assert "give --group" in reset("plan", "--from-file", str(file)).complaint(2)
    plan = scene.earliest(groups[0])
    scene.execute(plan)
    scene.verify(plan)
    undo = reset("undo", plan["plan_id"], "--without-state", "--json")
    assert json.loads(undo.stdout)["request"]["without_state"] is True
    reset("reject", "x" * 300).complaint(2)
