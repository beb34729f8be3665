"""Plans that were approved, rejected, expired or done: what each step may still do with them. On two releases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from change.plan_scene import ONE_RELEASE, TOPIC, Command, Scene
from change.world import reset_plan
from drivers.command_line import run

from acktrail.change import api
from acktrail.change.audit.audit_chain import Event
from acktrail.change.audit.journal import read_audit
from acktrail.config import TablesConfig
from acktrail.errors import ChangeRefused, PlanStale
from acktrail.tables.cluster_check import create_for
from acktrail.tables.delta.store import Tables

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def test_a_rejected_plan_is_closed_for_every_entry_point(scene: Scene, reset: Command) -> None:
    """By the command line: apply (dry and real), approve, undo and the module's functions all refuse; who, when and why
    is said and noted; nothing was sent."""
    group = scene.group()
    plan = scene.earliest(group)
    assert reset("reject", plan["plan_id"], "--reason", "not this week").code == 0
    for words in (("apply",), ("apply", "--execute"), ("approve",), ("undo", "--execute")):
        complaint = reset(words[0], plan["plan_id"], *words[1:]).complaint(2)
        assert ("[plan_rejected]" in complaint) is (words[0] != "undo"), complaint
        assert words[0] == "undo" or "not this week" in complaint
    with pytest.raises(ChangeRefused, match="plan_rejected"):
        scene.execute(plan)
    with pytest.raises(ChangeRefused, match="plan_rejected"):
        scene.would_send(plan)
    assert reset("reject", plan["plan_id"]).code == 0
    rows = read_audit(scene.tables, {"plan_id": plan["plan_id"]})
    decided = [json.loads(row.detail) for row in rows if row.event == Event.REJECTED]
    assert decided == [{"note": "not this week"}]
    assert scene.standing(plan["plan_id"]) == "REJECTED"
    assert "rejected by" in reset("show", plan["plan_id"]).stdout
    assert scene.starts(group) == [5, 5]


@ONE_RELEASE
def test_an_approval_that_nobody_gave_in_time_closes_the_plan(scene: Scene, reset: Command) -> None:
    """As the form's time-out notes it; and a plan that is too old is closed for approval and execution alike."""
    plan = scene.earliest(scene.group())
    scene.note_decision(plan, approved=False, actor="nobody", note="nobody answered", expired=True)
    assert scene.standing(plan["plan_id"]) == "EXPIRED"
    assert "[plan_expired]" in reset("apply", plan["plan_id"], "--execute", "--max-age", "99").complaint(2)
    old = scene.earliest(scene.group())
    with pytest.raises(PlanStale, match="too_old"):
        scene.would_send(old, max_age_ms=0)
    assert "[too_old]" in reset("apply", old["plan_id"], "--max-age", "0").complaint(2)


@ONE_RELEASE
def test_a_second_person_approves(scene: Scene, reset: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the setting nothing is sent without an approval, nor with the requester's own; with somebody else's it is.
    A misspelled setting is an error, not none."""
    group = scene.group()
    plan = scene.earliest(group, requested_by="ann")
    monkeypatch.setenv("ACKTRAIL_RESET_APPROVAL", "second-person")
    assert "[approval_missing]" in reset("apply", plan["plan_id"], "--execute").complaint(2)
    assert "[own_approval]" in reset("approve", plan["plan_id"]).complaint(2)
    with pytest.raises(ChangeRefused, match="own_approval"):
        scene.note_decision(plan, approved=True, actor="Ann")
    assert "ann" in api.approval_needed(reset_plan(plan))
    assert scene.starts(group) == [5, 5]
    assert scene.note_decision(plan, approved=True, actor="eve") == "APPROVED"
    assert reset("apply", plan["plan_id"], "--execute", "--watch", "0").code == 0
    assert scene.starts(group) == [0, 0]
    monkeypatch.setenv("ACKTRAIL_RESET_APPROVAL", "second_person")
    assert "ACKTRAIL_RESET_APPROVAL" in reset("apply", plan["plan_id"], "--execute").complaint(3)


def test_deletions_have_the_same_life(scene: Scene, reset: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion that needs an approval is stored and not sent; rejected it stays so; approved it is carried out by its
    id, and a second time nothing is sent."""
    group, spared = scene.group(), scene.group()
    monkeypatch.setenv("ACKTRAIL_RESET_APPROVAL", "required")
    rejected, wanted = (scene.plan_deletion([name], [TOPIC]) for name in (spared, group))
    for plan in (rejected, wanted):
        with pytest.raises(ChangeRefused, match="approval_missing"):
            scene.execute_change(plan)
    assert reset("reject", rejected["plan_id"]).code == 0
    monkeypatch.delenv("ACKTRAIL_RESET_APPROVAL")
    with pytest.raises(ChangeRefused, match="plan_rejected"):
        scene.execute_change(rejected)
    assert "[plan_rejected]" in reset("apply", rejected["plan_id"], "--execute").complaint(2)
    assert scene.starts(spared) == [5, 5]

    monkeypatch.setenv("ACKTRAIL_RESET_APPROVAL", "required")
    assert reset("approve", wanted["plan_id"]).code == 0
    assert reset("apply", wanted["plan_id"]).code == 0
    assert scene.starts(group) == [5, 5]
    assert reset("apply", wanted["plan_id"], "--execute").code == 0
    assert scene.starts(group) == []
    scene.put(group, {0: 5, 1: 5})
    done = scene.execute_change(wanted)
    assert (done.execution.results, done.groups) == ((), {group: "DONE"})
    assert scene.starts(group) == [5, 5]


def test_a_plan_that_was_done_is_not_sent_again(scene: Scene, reset: Command) -> None:
    """Everything at its target: nothing is sent. Somebody put it back as the plan had found it: refused all the same,
    really and as a dry run, although nothing moved in the plan's eyes."""
    group = scene.group()
    plan = scene.reset(groups=[group], topics=[TOPIC], strategies={"to-earliest": None})
    assert reset("apply", plan["plan_id"], "--execute").stdout == "everything is done already\n"
    scene.put(group, {0: 5, 1: 5})
    for words in ((), ("--execute",)):
        assert "[plan_carried_out]" in reset("apply", plan["plan_id"], *words).complaint(2)
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
