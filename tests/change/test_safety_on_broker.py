"""What must not happen does not: refusals, stale plans, killed processes, undo. On a real broker."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from change.world import World
from confluent_kafka import AcknowledgeType
from drivers.command_line import Done, run
from servers.workload import start_at

from acktrail.change.audit.integrity import checked_audit
from acktrail.change.execution.execute_reset import raise_unless_ok
from acktrail.change.lifecycle.plan_status import list_plans
from acktrail.errors import AcktrailError, ChangeInProgress, ChangeRefused, OutcomeUnknown, PlanStale
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.changes import ChangeResult, NewStartOffset, Outcome
from acktrail.kafka.client.coordinators import SendResult
from acktrail.kafka.groups.change_requests import ChangeTarget, PartResponse, results_per_target

pytestmark = [pytest.mark.broker, pytest.mark.slow]

RECORDS = 12
NAME = f"safety-{uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def topic(world: World) -> str:
    world.make_topic(NAME, 2, RECORDS)
    return NAME


@pytest.fixture
def group(world: World, topic: str) -> str:
    """A group whose start offset is 5 in both partitions, without a consumer ever."""
    name = f'g-{uuid4().hex[:8]}-it\'s "ü"\n../:x'
    start_at(world.kafka, name, {(topic, 0): 5, (topic, 1): 5})
    return name


def earliest(world: World, group: str, topic: str = NAME, **changes: Any) -> dict[str, Any]:
    return world.plan(**{"groups": [group], "topics": [topic], "strategies": {"to-earliest": None}, **changes})


def starts(world: World, group: str) -> list[int | None]:
    with ShareGroupAdmin(world.kafka) as admin:
        return [offset.start_offset for offset in admin.describe_offsets(group)]


def standing(world: World, plan: dict[str, Any]) -> str:
    return next(line["standing"] for line in list_plans(world.tables) if line["plan_id"] == plan["plan_id"])


def ask(capsys: pytest.CaptureFixture[str], world: World, *words: str) -> Done:
    where = ("--bootstrap-server", world.kafka.bootstrap_servers, "--tables", world.tables.uri)
    return run(capsys, *words, *where)


def test_the_command_says_what_forbids_a_plan(world: World, group: str, capsys: pytest.CaptureFixture[str]) -> None:
    """R004-21, R004-26, R004-30: each rule is in the plan, the first one in the one line on stderr, with exit code
    2."""
    named = ("--group", group, "--group", "no-such-group", "--group-glob", "no-such-*")
    topics = [f"--topic={topic}" for topic in (f"{NAME}:0,2", f"{NAME}x", "__consumer_offsets")]
    done = ask(capsys, world, "change", "plan", "reset", *named, *topics, "--to-latest", "--json")

    assert (done.code, len(done.stderr.splitlines())) == (2, 1), done.stderr
    plan = json.loads(done.stdout)
    refused = [notice["rule"] for notice in plan["notices"] if notice["severity"] == "refusal"]
    assert f"[{refused[0]}]" in done.stderr
    assert set(refused) >= {
        *("unknown_group", "no_such_group", "unknown_topic", "unknown_partition", "internal_topic", "would_skip"),
    }
    with pytest.raises(ChangeRefused):
        world.execute(plan)
    assert starts(world, group) == [5, 5]


def commands(group: str, plan: Path) -> dict[str, tuple[str, ...]]:
    """Every command that changes a group, as a dry run and for real."""
    changes: dict[str, tuple[str, ...]] = {
        "apply": ("change", "apply", str(plan)),
        "delete group": ("groups", "delete", group),
        "delete offsets": ("groups", "delete-offsets", "--group", group, "--topic", NAME),
    }
    planned = {"plan": ("change", "plan", "reset", "--group", group, "--topic", NAME, "--to-earliest")}
    return {**planned, **changes, **{f"{name} --execute": (*change, "--execute") for name, change in changes.items()}}


def test_members_forbid_a_reset_at_every_step(
    world: World, group: str, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R004-22, R004-26: while the group has a member every command ends with 4 and names it, and nothing is sent. When
    it is gone the group is empty again: --wait-empty lets a command begin then."""
    plan, file = earliest(world, group), tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    with world.member(group, topic):
        before = starts(world, group)
        ends = {name: ask(capsys, world, *command) for name, command in commands(group, file).items()}
        ends["wait"] = ask(capsys, world, "groups", "delete", group, "--wait-empty", "0.5")
        assert before == starts(world, group)
    assert {name: done.code for name, done in ends.items()} == dict.fromkeys(ends, 4)
    assert all("a-member" in done.stderr for done in ends.values())
    assert standing(world, plan) == "REFUSED"
    assert world.verify(plan) == []
    assert ask(capsys, world, "groups", "delete", group, "--wait-empty", "60").code == 0


def test_a_dry_run_of_apply_shows_what_would_be_sent(
    world: World, group: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every start offset of the request, as text and as JSON; nothing is sent."""
    plan = str(tmp_path / "plan.json")
    words = ("--group", group, "--topic", f"{NAME}:0", "--to-latest", "--allow-skip", "--out", plan)
    planned = ask(capsys, world, "change", "plan", "reset", *words)
    assert planned.code == 0, planned.stderr

    text = ask(capsys, world, "change", "apply", plan)
    shown = json.loads(ask(capsys, world, "change", "apply", plan, "--json").stdout)

    assert text.code == 0
    assert text.stdout.splitlines()[0].split() == ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "NEW-START-OFFSET"]
    assert shown["parts"] == [
        {"group": group, "topic": NAME, "partition": 0, "start_offset": 5, "new_start_offset": RECORDS}
    ]
    assert (shown["would_send"], shown["sent"]) == (1, 0)


def test_work_after_the_plan_makes_it_stale(world: World, topic: str) -> None:
    """A member that came, acknowledged and went: the plan's numbers are wrong, so it is refused; a new one is not."""
    group = f"g-{uuid4().hex[:8]}"
    world.settle(group, topic, 2 * RECORDS, lambda _: AcknowledgeType.RELEASE)
    plan = earliest(world, group)
    world.settle(group, topic, 2 * RECORDS, lambda _: AcknowledgeType.ACCEPT)
    with pytest.raises(PlanStale) as caught:
        world.execute(plan)
    assert caught.value.rule in {"state_moved", "start_offset_moved"}
    assert world.verify(plan) == []
    world.reset(groups=[group], topics=[topic], strategies={"to-earliest": None})


def test_another_topic_of_the_same_name_and_new_partitions_make_it_stale(world: World) -> None:
    """The request carries names only: the plan's id is what was meant. A new partition is not silently left out."""
    topic, group = f"again-{uuid4().hex[:8]}", f"g-{uuid4().hex[:8]}"
    world.make_topic(topic, 1, 3)
    plan = earliest(world, group, topic, allow_create=True)
    world.workload.add_partitions(topic, 2)
    _refused(world, plan, "partition_count_changed")
    plan = earliest(world, group, topic, allow_create=True)
    world.workload.delete_topic(topic)
    world.make_topic(topic, 2, 3)
    _refused(world, plan, "topic_recreated")


def _refused(world: World, plan: dict[str, Any], rule: str) -> None:
    from servers.workload import until

    def is_stale() -> bool:
        """The coordinator learns of a changed topic a little later than the controller."""
        try:
            return not world.would_send(plan)
        except PlanStale as error:
            return error.rule == rule

    until(is_stale, what=rule)
    with pytest.raises(PlanStale) as caught:
        world.execute(plan)
    assert caught.value.rule == rule


def killed(world: World, plan: dict[str, Any], moment: str, tmp_path: Path) -> None:
    """A process that carries out a plan and is killed right before or right after the request."""
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    command = [sys.executable, str(Path(__file__).with_name("interrupted_process.py")), moment, "9"]
    command += ["change", "apply", str(file), "--execute", "--bootstrap-server", world.kafka.bootstrap_servers]
    command += ["--tables", world.tables.uri]
    assert subprocess.run(command, check=False, capture_output=True, timeout=300).returncode == -9


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("moment", "status", "at_rest", "after"),
    [("before", "UNKNOWN", "UNKNOWN", [5, 5]), ("after", "OK_EPOCH_NOT_BUMPED", "DONE", [0, 0])],
)
def test_a_killed_process_leaves_an_unknown_that_verify_settles(
    world: World, group: str, tmp_path: Path, moment: str, status: str, at_rest: str, after: list[int]
) -> None:
    """R004-25: SIGKILL between the audit row and the request, and right after the request: UNKNOWN in the list, nobody
    else may change the group until verification looked. What shows is done; what does not may still arrive."""
    plan = earliest(world, group)
    killed(world, plan, moment, tmp_path)
    assert standing(world, plan) == "UNKNOWN"
    with pytest.raises(ChangeInProgress) as held:
        world.execute(earliest(world, group, strategies={"to-current": None}))
    assert f"acktrail change verify {plan['plan_id']}" in held.value.hint
    verified = world.verify(plan, wait_s=1)
    assert {row["status"] for row in verified} == {status}
    assert standing(world, plan) == at_rest
    assert starts(world, group) == after
    world.reset(groups=[group], topics=[NAME], strategies={"to-earliest": None})


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
    world: World, group: str, monkeypatch: pytest.MonkeyPatch, code: int, scope: str, exit_code: int
) -> None:
    """R004-14, R004-16 to R004-25, R004-32: nothing was done behind each of these answers, and that is what is found:
    also behind a 'done' that was none, and behind those that leave it open. The audit has both words."""
    plan = earliest(world, group)
    monkeypatch.setattr(ShareGroupAdmin, "alter_offsets", answered(code, scope))
    world.execute(plan)
    monkeypatch.undo()
    verified = world.verify(plan, wait_s=0.3)

    assert not any(row["status"].startswith("OK") for row in verified)
    assert starts(world, group) == [5, 5]
    with pytest.raises(AcktrailError) as caught:
        raise_unless_ok(plan["plan_id"], verified, None)
    assert caught.value.exit_code == exit_code, caught.value
    rows = [row for row in _audit(world) if row["plan_id"] == plan["plan_id"]]
    assert [row["event"] for row in rows] == [
        *("planned", "lease_taken", "before_call", "after_call", "verified", "lease_released"),
    ]
    assert all("its words" in row["detail"] for row in rows if row["event"] == "after_call" and code)


def _audit(world: World) -> list[dict[str, Any]]:
    from acktrail.change.audit.journal import read_audit

    return [row.to_row() for row in read_audit(world.tables)]


def test_what_failed_is_sent_again_and_what_is_done_is_not(
    world: World, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reset done in part: the same plan again sends the rest alone; a third time nothing."""
    plan = earliest(world, group)
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
    world.execute(plan)
    assert [row["status"][:2] for row in world.verify(plan)] == ["OK", "FA"]
    assert standing(world, plan) == "PARTLY"
    world.execute(plan)
    assert [row["status"][:2] for row in world.verify(plan)] == ["OK"]
    assert world.execute(plan)["results"] == []
    assert asked == [[0, 1], [1]]
    assert starts(world, group) == [0, 0]


def test_an_overwritten_reset_is_noticed(world: World, group: str) -> None:
    """Somebody else changes the start offset of the empty group right after: OVERWRITTEN, and the list says so."""
    plan = earliest(world, group)
    world.execute(plan)
    with ShareGroupAdmin(world.kafka) as admin:
        admin.alter_offsets(group, [NewStartOffset(topic=NAME, partition=1, start_offset=9)])
    verified = world.verify(plan)
    assert [row["status"] for row in verified] == ["OK_EPOCH_NOT_BUMPED", "OVERWRITTEN_AFTER_RESET"]
    assert standing(world, plan) == "OVERWRITTEN"
    with pytest.raises(OutcomeUnknown):
        raise_unless_ok(plan["plan_id"], verified, None)


def test_a_group_that_goes_to_work_did_not_overwrite_its_reset(world: World, group: str, topic: str) -> None:
    """Verified late, when consumers have acknowledged already: the reset was done, what came after is theirs."""
    plan = earliest(world, group)
    world.execute(plan)
    world.deliveries(group, topic, 2 * RECORDS)
    assert {row["status"] for row in world.verify(plan)} == {"OK"}
    assert standing(world, plan) == "DONE"


def test_the_audit_is_whole_after_all_of_this(world: World, group: str) -> None:
    """Every attempt of this module, also the killed and refused ones, lies in one unbroken chain."""
    report = checked_audit(world.tables)
    assert report.flaws == ()
    assert report.rows > 20
