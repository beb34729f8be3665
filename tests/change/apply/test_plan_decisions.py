"""Plans that were approved, rejected, expired, edited, done or done in part: what each step may still do with them, and
what an undo takes back. On two releases."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from change.world import ONE_RELEASE, TOPIC, Command, Scene, reset_plan
from drivers.command_line import run

from acktrail.change.apply.approval import approval_needed
from acktrail.change.audit.audit_chain import Event
from acktrail.change.audit.journal import account, read_audit
from acktrail.change.plan.change_plan import plan_json, with_hash
from acktrail.change.plan.reset_plan import ResetPlan
from acktrail.change.plan_status import list_plans
from acktrail.config import TablesConfig
from acktrail.dataclass_json import from_json_value
from acktrail.errors import ChangeInProgress, ChangeRefused, PlanStale
from acktrail.tables.cluster_check import create_for
from acktrail.tables.delta.store import Tables

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def test_a_rejected_plan_is_closed_for_every_entry_point(scene: Scene, ask: Command) -> None:
    """By the command line: apply (dry and real), approve, undo and the module's functions all refuse; who, when and why
    is said and noted; nothing was sent."""
    group = scene.group()
    plan = scene.earliest(group)
    assert ask("change", "reject", plan["plan_id"], "--reason", "not this week").code == 0
    for words in (("apply",), ("apply", "--execute"), ("approve",), ("undo", "--execute")):
        complaint = ask("change", words[0], plan["plan_id"], *words[1:]).complaint(2)
        assert ("[plan_rejected]" in complaint) is (words[0] != "undo"), complaint
        assert words[0] == "undo" or "not this week" in complaint
    with pytest.raises(ChangeRefused, match="plan_rejected"):
        scene.execute(plan)
    with pytest.raises(ChangeRefused, match="plan_rejected"):
        scene.would_send(plan)
    assert ask("change", "reject", plan["plan_id"]).code == 0
    rows = read_audit(scene.tables, {"plan_id": plan["plan_id"]})
    decided = [json.loads(row.detail) for row in rows if row.event == Event.REJECTED]
    assert decided == [{"note": "not this week"}]
    assert scene.standing(plan["plan_id"]) == "REJECTED"
    assert "rejected by" in ask("change", "show", plan["plan_id"]).stdout
    assert scene.starts(group) == [5, 5]


@ONE_RELEASE
def test_an_approval_that_nobody_gave_in_time_closes_the_plan(scene: Scene, ask: Command) -> None:
    """As the form's time-out notes it; and a plan that is too old is closed for approval and execution alike."""
    plan = scene.earliest(scene.group())
    scene.note_decision(plan, approved=False, actor="nobody", note="nobody answered", expired=True)
    assert scene.standing(plan["plan_id"]) == "EXPIRED"
    assert "[plan_expired]" in ask("change", "apply", plan["plan_id"], "--execute", "--max-age", "99").complaint(2)
    old = scene.earliest(scene.group())
    with pytest.raises(PlanStale, match="too_old"):
        scene.would_send(old, max_age_ms=0)
    assert "[too_old]" in ask("change", "apply", old["plan_id"], "--max-age", "0").complaint(2)


@ONE_RELEASE
def test_a_second_person_approves(scene: Scene, ask: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the setting nothing is sent without an approval, nor with the requester's own; with somebody else's it is.
    A misspelled setting is an error, not none."""
    group = scene.group()
    plan = scene.earliest(group, requested_by="ann")
    monkeypatch.setenv("ACKTRAIL_RESET_APPROVAL", "second-person")
    assert "[approval_missing]" in ask("change", "apply", plan["plan_id"], "--execute").complaint(2)
    assert "[own_approval]" in ask("change", "approve", plan["plan_id"]).complaint(2)
    with pytest.raises(ChangeRefused, match="own_approval"):
        scene.note_decision(plan, approved=True, actor="Ann")
    assert "ann" in approval_needed(reset_plan(plan))
    assert scene.starts(group) == [5, 5]
    assert scene.note_decision(plan, approved=True, actor="eve") == "APPROVED"
    assert ask("change", "apply", plan["plan_id"], "--execute", "--watch", "0").code == 0
    assert scene.starts(group) == [0, 0]
    monkeypatch.setenv("ACKTRAIL_RESET_APPROVAL", "second_person")
    assert "ACKTRAIL_RESET_APPROVAL" in ask("change", "apply", plan["plan_id"], "--execute").complaint(3)


def test_deletions_have_the_same_life(scene: Scene, ask: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion that needs an approval is stored and not sent; rejected it stays so; approved it is carried out by its
    id, and a second time nothing is sent."""
    group, spared = scene.group(), scene.group()
    monkeypatch.setenv("ACKTRAIL_RESET_APPROVAL", "required")
    rejected, wanted = (scene.plan_deletion([name], [TOPIC]) for name in (spared, group))
    for plan in (rejected, wanted):
        with pytest.raises(ChangeRefused, match="approval_missing"):
            scene.execute_change(plan)
    assert ask("change", "reject", rejected["plan_id"]).code == 0
    monkeypatch.delenv("ACKTRAIL_RESET_APPROVAL")
    with pytest.raises(ChangeRefused, match="plan_rejected"):
        scene.execute_change(rejected)
    assert "[plan_rejected]" in ask("change", "apply", rejected["plan_id"], "--execute").complaint(2)
    assert scene.starts(spared) == [5, 5]

    monkeypatch.setenv("ACKTRAIL_RESET_APPROVAL", "required")
    assert ask("change", "approve", wanted["plan_id"]).code == 0
    assert ask("change", "apply", wanted["plan_id"]).code == 0
    assert scene.starts(group) == [5, 5]
    assert ask("change", "apply", wanted["plan_id"], "--execute").code == 0
    assert scene.starts(group) == []
    scene.put(group, {0: 5, 1: 5})
    done = scene.execute_change(wanted)
    assert (done.execution.results, done.groups) == ((), {group: "DONE"})
    assert scene.starts(group) == [5, 5]


def test_a_plan_that_was_done_is_not_sent_again(scene: Scene, ask: Command) -> None:
    """Everything at its target: nothing is sent. Somebody put it back as the plan had found it: refused all the same,
    really and as a dry run, although nothing moved in the plan's eyes."""
    group = scene.group()
    plan = scene.reset(groups=[group], topics=[TOPIC], strategies={"to-earliest": None})
    assert ask("change", "apply", plan["plan_id"], "--execute").stdout == "everything is done already\n"
    scene.put(group, {0: 5, 1: 5})
    for words in ((), ("--execute",)):
        assert "[plan_carried_out]" in ask("change", "apply", plan["plan_id"], *words).complaint(2)
    assert scene.starts(group) == [5, 5]
    assert scene.events(plan["plan_id"]).count(Event.BEFORE_CALL) == 1


def files(root: Path) -> set[Path]:
    return {file for file in root.rglob("*") if file.is_file()}


@ONE_RELEASE
@pytest.mark.parametrize("bound", ["state_records", "reset_audit"])
def test_every_command_that_writes_binds_root_and_cluster(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str], bound: str
) -> None:
    """Whatever one table the other cluster has there: exit code 3, nothing is written, nothing is sent."""
    group, root = scene.group(), tmp_path / "tables"
    plan = tmp_path / "plan.json"
    brokers = ("--bootstrap-server", scene.kafka.bootstrap_servers)
    asked = ("--group", group, "--topic", TOPIC)
    made = run(capsys, "change", "plan", "reset", *asked, "--to-earliest", "--out", str(plan), *brokers)
    assert made.code == 0, made
    create_for(Tables(TablesConfig(uri=str(root))), bound, "another-cluster")
    before = files(root)
    setting = "share.auto.offset.reset=earliest"
    for words in (
        ("change", "plan", "reset", *asked, "--to-earliest", *brokers),
        ("change", "apply", str(plan), "--execute", *brokers),
        ("change", "verify", str(plan), *brokers),
        ("change", "approve", str(plan), *brokers),
        ("change", "reject", str(plan)),
        ("groups", "delete", group, "--execute", *brokers),
        ("groups", "config", "set", "--group", group, setting, "--execute", *brokers),
        ("groups", "delete-offsets", *asked, "--execute", *brokers),
        ("run", "export", *brokers),
    ):
        done = run(capsys, *words, "--tables", str(root))
        assert done.code == 3, (words, done)
        assert "belong to cluster another-cluster" in done.stderr, (words, done)
        assert files(root) == before, words
    assert scene.starts(group) == [5, 5]


def test_a_partial_apply_says_what_it_left_out(scene: Scene, ask: Command) -> None:
    """A partition that is not there, and a whole group: exit code 7, a row for every share partition of the plan in the
    table, in JSON and in the text, PARTLY in the list; a second time nothing is sent and the same is said."""
    group = scene.group()
    plan = scene.earliest(group, groups=[group, f"{group}-missing"], topics=[f"{TOPIC}:0,7"])
    done = ask("change", "apply", plan["plan_id"], "--execute", "--partial", "--watch", "0", "--json")
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

    again = ask("change", "apply", plan["plan_id"], "--execute", "--partial", "--watch", "0")
    assert again.code == 7
    assert f"{group}-missing" in again.stdout
    assert again.stdout.count("LEFT_OUT") == 3
    assert scene.events(plan["plan_id"]).count(Event.BEFORE_CALL) == 1
    assert ask("change", "verify", plan["plan_id"], "--watch", "0").code == 7


# Undo


def test_an_undo_takes_back_what_was_done_and_nothing_else(scene: Scene, ask: Command) -> None:
    """After a partial apply the other share partition is refused by name; the undo takes the rest; a second one is
    refused and names the first; the plan itself is closed."""
    group = scene.group()
    both = scene.earliest(group)
    scene.put(group, {1: 9})
    assert ask("change", "apply", both["plan_id"], "--execute", "--partial", "--watch", "0").code == 7
    assert scene.starts(group) == [0, 9]
    assert "[not_in_plan]" in ask("change", "undo", both["plan_id"], "--topic", f"{TOPIC}:5").complaint(2)
    refused = ask("change", "undo", both["plan_id"])
    assert refused.code == 2
    assert f"{group} {TOPIC}:1: the plan did not change it (LEFT_OUT)" in refused.stdout
    assert ask("change", "undo", both["plan_id"], "--execute").code == 2
    assert scene.starts(group) == [0, 9]
    undone = ask("change", "undo", both["plan_id"], "--execute", "--partial", "--watch", "0", "--json")
    assert undone.code == 7, undone.stderr
    assert scene.starts(group) == [5, 9]
    assert scene.standing(both["plan_id"]) == "UNDONE"
    first = json.loads(undone.stdout)["plan_id"]
    second = ask("change", "undo", both["plan_id"], "--execute", "--partial").complaint(2)
    assert "[plan_undone]" in second
    assert first in second
    assert "[plan_undone]" in ask("change", "apply", both["plan_id"], "--execute").complaint(2)
    assert scene.starts(group) == [5, 9]


@pytest.mark.full
@ONE_RELEASE
def test_two_undos_planned_at_once_take_back_once(scene: Scene, ask: Command) -> None:
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


def test_a_group_that_was_made_again_is_another_one(scene: Scene, ask: Command) -> None:
    """Deleted and put where it was between plan and apply: nothing looks different but the tombstones in the state
    topic. The plan is stale."""
    group = scene.group()
    plan = scene.earliest(group)
    scene.execute_change(scene.plan_deletion([group]))
    scene.put(group, {0: 5, 1: 5})
    assert "state_recreated" in ask("change", "apply", plan["plan_id"], "--execute").complaint(2)
    assert scene.starts(group) == [5, 5]


@ONE_RELEASE
def test_commands_say_what_they_take(scene: Scene, ask: Command, tmp_path: Path) -> None:
    """A file that names its groups needs no --group; undo has --without-state as plan has it; a plan's name that no
    file can have is an unknown plan, in one line; a plan that makes new tables says where."""
    groups, file = sorted([scene.group(), scene.group()]), tmp_path / "offsets.csv"
    file.write_text("".join(f"{group},{TOPIC},{part},2\n" for group in groups for part in (0, 1)))
    elsewhere = ("--tables", str(tmp_path / "typo"))
    done = ask("change", "plan", "reset", "--from-file", str(file), "--json", *elsewhere, tables=False)
    assert json.loads(done.stdout)["request"]["groups"] == groups
    assert done.stderr.startswith(f"new tables were made at {elsewhere[1]}: "), done
    file.write_text(f"{TOPIC},0,2\n")
    assert "give --group" in ask("change", "plan", "reset", "--from-file", str(file)).complaint(2)
    plan = scene.earliest(groups[0])
    scene.execute(plan)
    scene.verify(plan)
    undo = ask("change", "undo", plan["plan_id"], "--without-state", "--json")
    assert json.loads(undo.stdout)["request"]["without_state"] is True
    ask("change", "reject", "x" * 300).complaint(2)


@ONE_RELEASE
def test_a_refused_file_is_not_stored_and_an_edited_maker_is_not_believed(
    scene: Scene, ask: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that may not be applied leaves nothing behind. One that names another maker than who brings it says so,
    and who brings it is not the second person."""
    group, file = scene.group(), tmp_path / "plan.json"
    plan = from_json_value(ResetPlan, scene.plan(groups=[group], topics=[TOPIC], strategies={"to-offset": "9"}))
    file.write_text(plan_json(plan))
    assert ask("change", "apply", str(file), "--execute").code == 2
    assert scene.events(plan.plan_id) == []
    assert plan.plan_id not in {line["plan_id"] for line in list_plans(scene.tables)}
    made = scene.plan(groups=[group], topics=[TOPIC], strategies={"to-earliest": None})
    plan = with_hash(replace(from_json_value(ResetPlan, made), created_by="the-boss"))
    file.write_text(plan_json(plan))
    monkeypatch.setenv("ACKTRAIL_RESET_APPROVAL", "second-person")
    assert "[own_approval]" in ask("change", "approve", str(file)).complaint(2)
    (line,) = (line for line in list_plans(scene.tables) if line["plan_id"] == plan.plan_id)
    assert line["created_by"] == f"{account()}, from a file that names the-boss"


@ONE_RELEASE
@pytest.mark.parametrize("is_whole", [False, True], ids=["target", "everything"])
def test_an_edited_target_is_neither_approved_nor_applied(
    scene: Scene, ask: Command, tmp_path: Path, is_whole: bool
) -> None:
    """To offset 5 edited to 9: the target alone, or with the strategy and no word of the 4 records that are skipped."""
    group, file = scene.group(), tmp_path / "plan.json"
    plan = from_json_value(ResetPlan, scene.plan(groups=[group], topics=[TOPIC], strategies={"to-offset": "5"}))
    rows = tuple(replace(row, wanted_offset=9, target_offset=9) for row in plan.partitions)
    strategy = replace(plan.request.strategy, number=9 if is_whole else 5)
    made = replace(plan, request=replace(plan.request, strategy=strategy), partitions=rows)
    file.write_text(plan_json(with_hash(made)))
    for words in (("approve", str(file)), ("apply", str(file)), ("apply", str(file), "--execute")):
        said = ask("change", *words).complaint(2)
        assert ("would_skip" if is_whole else "judged_otherwise") in said or "judged_otherwise" in said
    assert scene.starts(group) == [5, 5]
    assert json.loads(file.read_text())["totals"]["skipped"] == 0
