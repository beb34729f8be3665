"""What must not happen does not: refusals, stale plans, killed processes, undo. On a real broker."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from change.world import ONE_RELEASE, RECORDS, TOPIC, Command, Scene, reset_plan

from acktrail.change import api
from acktrail.change.apply.reset_execution import ResetAttempt, raise_unless_ok
from acktrail.change.audit.audit_chain import Event
from acktrail.change.audit.journal import read_audit
from acktrail.change.cluster import Cluster
from acktrail.change.plan.change_plan import PartitionPlan, with_hash
from acktrail.errors import AcktrailError, ChangeInProgress, ChangeRefused, PlanStale
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.changes import ChangeResult, Outcome
from acktrail.kafka.client.coordinators import SendResult
from acktrail.kafka.groups.change_requests import ChangeTarget, PartResponse, results_per_target
from acktrail.view.audit_integrity import checked_audit

pytestmark = [pytest.mark.broker, pytest.mark.slow, ONE_RELEASE]


@pytest.fixture
def group(scene: Scene) -> str:
    """A hostile name."""
    return scene.group('-it\'s "ü"\n../:x')


def test_the_command_says_what_forbids_a_plan(scene: Scene, group: str, ask: Command) -> None:
    """R004-21, R004-26, R004-30: each rule is in the plan, the first one in the one line on stderr, with exit code
    2."""
    scene.earliest(group)  # the first plan makes the tables, and a command would say so on stderr
    named = ("--group", group, "--group", "no-such-group", "--group-glob", "no-such-*")
    topics = [f"--topic={topic}" for topic in (f"{TOPIC}:0,2", f"{TOPIC}x", "__consumer_offsets")]
    done = ask("change", "plan", "reset", *named, *topics, "--to-latest", "--json")

    assert (done.code, len(done.stderr.splitlines())) == (2, 1), done.stderr
    plan = json.loads(done.stdout)
    refused = [notice["rule"] for notice in plan["notices"] if notice["severity"] == "refusal"]
    assert f"[{refused[0]}]" in done.stderr
    assert set(refused) >= {
        *("unknown_group", "no_such_group", "unknown_topic", "unknown_partition", "internal_topic", "would_skip"),
    }
    with pytest.raises(ChangeRefused):
        scene.execute(plan)
    assert scene.starts(group) == [5, 5]


def test_plan_that_was_not_stored_is_not_sent(scene: Scene, group: str) -> None:
    """Executing it is refused, as is another plan under the id of a stored one; nothing is stored or sent."""
    plan = reset_plan(scene.plan(groups=[group], topics=[TOPIC], strategies={"to-earliest": None}))
    other = with_hash(replace(plan, created_by="somebody else"))
    with Cluster(scene.kafka) as cluster:
        with pytest.raises(PlanStale, match="not_stored"):
            api.execute(cluster, api.open_journal(scene.tables, plan), plan)
        assert read_audit(scene.tables, {"plan_id": plan.plan_id}) == []
        api.store_plan(scene.tables, plan)
        with pytest.raises(PlanStale, match="the audit has another hash"):
            api.execute(cluster, api.open_journal(scene.tables, other), other)
    assert [row.event for row in read_audit(scene.tables, {"plan_id": plan.plan_id})] == [Event.PLANNED]
    assert scene.starts(group) == [5, 5]


def commands(group: str, plan: Path) -> dict[str, tuple[str, ...]]:
    """Every command that changes a group, as a dry run and for real."""
    changes: dict[str, tuple[str, ...]] = {
        "apply": ("change", "apply", str(plan)),
        "delete group": ("groups", "delete", group),
        "delete offsets": ("groups", "delete-offsets", "--group", group, "--topic", TOPIC),
    }
    planned = {"plan": ("change", "plan", "reset", "--group", group, "--topic", TOPIC, "--to-earliest")}
    return {**planned, **changes, **{f"{name} --execute": (*change, "--execute") for name, change in changes.items()}}


def test_members_forbid_a_reset_at_every_step(scene: Scene, group: str, ask: Command, tmp_path: Path) -> None:
    """R004-22, R004-26: while the group has a member every command ends with 4 and names it, and nothing is sent. When
    it is gone the group is empty again: --wait-empty lets a command begin then."""
    plan, file = scene.earliest(group), tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    with scene.member(group, TOPIC):
        before = scene.starts(group)
        ends = {name: ask(*command) for name, command in commands(group, file).items()}
        ends["wait"] = ask("groups", "delete", group, "--wait-empty", "0.5")
        assert before == scene.starts(group)
    assert {name: done.code for name, done in ends.items()} == dict.fromkeys(ends, 4)
    assert all("a-member" in done.stderr for done in ends.values())
    assert scene.standing(plan["plan_id"]) == "REFUSED"
    assert scene.verify(plan) == []
    assert ask("groups", "delete", group, "--wait-empty", "60").code == 0


def test_a_dry_run_of_apply_shows_what_would_be_sent(scene: Scene, group: str, ask: Command, tmp_path: Path) -> None:
    """Every start offset of the request, as text and as JSON; nothing is sent."""
    plan = str(tmp_path / "plan.json")
    words = ("--group", group, "--topic", f"{TOPIC}:0", "--to-latest", "--allow-skip", "--out", plan)
    planned = ask("change", "plan", "reset", *words)
    assert planned.code == 0, planned.stderr

    text = ask("change", "apply", plan)
    shown = json.loads(ask("change", "apply", plan, "--json").stdout)

    assert text.code == 0
    assert text.stdout.splitlines()[0].split() == ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "NEW-START-OFFSET"]
    assert shown["parts"] == [
        {"group": group, "topic": TOPIC, "partition": 0, "start_offset": 5, "new_start_offset": RECORDS}
    ]
    assert (shown["would_send"], shown["sent"]) == (1, 0)


@pytest.mark.parametrize(("words", "after"), [("another client reset group", [5, 5]), ("the group is gone", [])])
def test_what_another_client_does_right_before_the_request_stays(
    scene: Scene, group: str, monkeypatch: pytest.MonkeyPatch, words: str, after: list[int]
) -> None:
    """After the comparison, noted in no table: a reset, even to where it was, or a deletion. The last look before the
    request finds it, nothing is sent, and the group is free."""
    plan, ends = scene.earliest(group), ResetAttempt._state_ends

    def overtaken(attempt: ResetAttempt, rows: Sequence[PartitionPlan]) -> Mapping[int, int]:
        if after:
            scene.put(group, {1: 5})
        else:
            attempt.cluster.admin.delete_group(group)
        return ends(attempt, rows)

    monkeypatch.setattr(ResetAttempt, "_state_ends", overtaken)
    with pytest.raises(PlanStale, match=words):
        scene.execute(plan)
    monkeypatch.undo()
    assert (scene.starts(group), scene.standing(plan["plan_id"])) == (after, "REFUSED")
    scene.reset(groups=[group], topics=[TOPIC], strategies={"to-earliest": None}, allow_create=not after)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("moment", "status", "at_rest", "after"),
    [("before", "UNKNOWN", "UNKNOWN", [5, 5]), ("after", "OK_EPOCH_NOT_BUMPED", "DONE", [0, 0])],
)
def test_a_killed_process_leaves_an_unknown_that_verify_settles(
    scene: Scene, group: str, moment: str, status: str, at_rest: str, after: list[int]
) -> None:
    """R004-25: SIGKILL between the audit row and the request, and right after the request: UNKNOWN in the list, nobody
    else may change the group until verification looked. What shows is done; what does not may still arrive."""
    plan = scene.earliest(group)
    assert scene.interrupted(moment, signal.SIGKILL, plan["plan_id"])[0] == -signal.SIGKILL
    assert scene.standing(plan["plan_id"]) == "UNKNOWN"
    with pytest.raises(ChangeInProgress) as held:
        scene.execute(scene.earliest(group, strategies={"to-current": None}))
    assert f"acktrail change verify {plan['plan_id']}" in held.value.hint
    verified = scene.verify(plan, wait_s=1)
    assert {row["status"] for row in verified} == {status}
    assert scene.standing(plan["plan_id"]) == at_rest
    assert scene.starts(group) == after
    scene.reset(groups=[group], topics=[TOPIC], strategies={"to-earliest": None})


def answered(error_code: int, scope: str) -> Any:
    """A broker that answers so and does nothing, in place of the request."""

    def alter(_: ShareGroupAdmin, group_id: str, offsets: Any) -> tuple[ChangeResult, ...]:
        targets = [ChangeTarget(topic=new.topic, partition=new.partition) for new in offsets]
        sent = SendResult(error_code=error_code if scope == "top" else 0, message="its words")
        answer = PartResponse(error_code=error_code, message="its words")
        parts = dict.fromkeys(targets, answer) if scope == "part" else {}
        return results_per_target(group_id, targets, sent, lambda _: parts, "READ")

    return alter


@pytest.mark.parametrize(
    ("code", "scope", "exit_code"),
    [
        (30, "top", 3),
        (16, "top", 4),
        (42, "top", 2),
        (56, "part", 5),
        (0, "absent", 4),
        (0, "part", 5),
    ],
)
def test_every_answer_is_verified_and_noted(
    scene: Scene, group: str, monkeypatch: pytest.MonkeyPatch, code: int, scope: str, exit_code: int
) -> None:
    """R004-14, R004-16 to R004-25, R004-32: nothing was done behind each of these answers, and that is what is found:
    also behind a 'done' that was none, and behind those that leave it open. The audit has both words."""
    plan = scene.earliest(group)
    monkeypatch.setattr(ShareGroupAdmin, "alter_offsets", answered(code, scope))
    scene.execute(plan)
    monkeypatch.undo()
    verified = scene.verify(plan, wait_s=0.3)

    assert not any(row["status"].startswith("OK") for row in verified)
    assert scene.starts(group) == [5, 5]
    with pytest.raises(AcktrailError) as caught:
        raise_unless_ok(plan["plan_id"], verified, None)
    assert caught.value.exit_code == exit_code, caught.value
    rows = read_audit(scene.tables, {"plan_id": plan["plan_id"]})
    assert [row.event for row in rows] == [
        *("planned", "lease_taken", "before_call", "after_call", "verified", "lease_released"),
    ]
    assert all("its words" in row.detail for row in rows if row.event == "after_call" and code)


def test_what_failed_is_sent_again_and_what_is_done_is_not(
    scene: Scene, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reset done in part: the same plan again sends the rest alone; a third time nothing."""
    plan = scene.earliest(group)
    send = ShareGroupAdmin.alter_offsets
    asked: list[list[int]] = []

    def half(admin: ShareGroupAdmin, group_id: str, offsets: Any) -> tuple[ChangeResult, ...]:
        wanted = list(offsets)
        asked.append([new.partition for new in wanted])
        refused = [
            ChangeResult(
                group_id=group_id, topic=new.topic, partition=new.partition, outcome=Outcome.REFUSED, error_code=29
            )
            for new in wanted[1:]
        ]
        return (*send(admin, group_id, wanted[:1]), *refused)

    monkeypatch.setattr(ShareGroupAdmin, "alter_offsets", half)
    scene.execute(plan)
    assert [row["status"][:2] for row in scene.verify(plan)] == ["OK", "FA"]
    assert scene.standing(plan["plan_id"]) == "PARTLY"
    scene.execute(plan)
    assert [row["status"][:2] for row in scene.verify(plan)] == ["OK"]
    assert scene.execute(plan)["results"] == []
    assert asked == [[0, 1], [1]]
    assert scene.starts(group) == [0, 0]


def test_a_group_that_goes_to_work_did_not_overwrite_its_reset(scene: Scene, group: str) -> None:
    """Verified late, when consumers have acknowledged already: the reset was done, what came after is theirs."""
    plan = scene.earliest(group)
    scene.execute(plan)
    scene.deliveries(group, TOPIC, 2 * RECORDS)
    assert {row["status"] for row in scene.verify(plan)} == {"OK"}
    assert scene.standing(plan["plan_id"]) == "DONE"


def test_the_audit_is_whole_after_all_of_this(scene: Scene, group: str) -> None:
    """Every attempt of this module, also the killed and refused ones, lies in one unbroken chain."""
    assert checked_audit(scene.tables).rows > 20
