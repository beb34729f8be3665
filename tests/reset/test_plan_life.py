"""Pairs of steps: apply after a rejection, undo after a partial apply, anything after a request whose answer was lost.
On real brokers of two releases, by the command line where an operator would use it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from broker.workload import until
from confluent_kafka import AcknowledgeType
from drivers.command_line import Done, run
from reset.world import World, change_plan, reset_plan

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.broker.changes import NewStartOffset, raise_unless_done
from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail.errors import ChangeInProgress, ChangeRefused, OutcomeUnknown, PlanStale
from acktrail.group_changes import api, change_api
from acktrail.group_changes.audit.audit_chain import Event
from acktrail.group_changes.audit.journal import read_audit
from acktrail.group_changes.cluster import Cluster
from acktrail.group_changes.lifecycle.plan_status import list_plans
from acktrail.tables.delta.store import Tables

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TOPIC = "orders"
RECORDS = 12


class Scene(World):
    """A broker that may be killed, its tables, and groups at start offset 5 in both partitions of a topic."""

    broker: EmbeddedBroker

    def group(self) -> str:
        name = f"g-{uuid4().hex[:8]}"
        self.put(name, {0: 5, 1: 5})
        return name

    def put(self, group: str, starts: dict[int, int]) -> None:
        """Another client's reset."""
        offsets = [NewStartOffset(topic=TOPIC, partition=index, start_offset=at) for index, at in starts.items()]
        with ShareGroupAdmin(self.kafka) as admin:
            raise_unless_done(admin.alter_offsets(group, offsets), operation="READ")

    def starts(self, group: str) -> list[int | None]:
        with ShareGroupAdmin(self.kafka) as admin:
            return [offset.start_offset for offset in admin.describe_offsets(group)]

    def earliest(self, group: str, **changes: Any) -> dict[str, Any]:
        """A stored plan."""
        plan = self.plan(**{"groups": [group], "topics": [TOPIC], "strategies": {"to-earliest": None}, **changes})
        self.store(plan)
        return plan

    def standing(self, plan_id: str) -> str:
        return next(line["standing"] for line in list_plans(self.tables) if line["plan_id"] == plan_id)

    def is_open(self, plan_id: str) -> bool:
        """Whether nobody knows what became of a plan; RUNNING: the process that sent it, a test, still lives."""
        return self.standing(plan_id) in {"RUNNING", "UNKNOWN", "UNVERIFIED"}

    def events(self, plan_id: str) -> list[str]:
        return [row.event for row in read_audit(self.tables, {"plan_id": plan_id})]

    def arguments(self) -> tuple[str, ...]:
        return ("--bootstrap-server", self.kafka.bootstrap_servers, "--tables", self.tables.uri)


@pytest.fixture(scope="module", params=["4.3.1", "4.4.0"])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with EmbeddedBroker(request.param) as broker:
        made = Scene.at(broker.config(), tmp_path_factory.mktemp("life"))
        made.broker = broker
        made.make_topic(TOPIC, 2, RECORDS)
        yield made


Command = Callable[..., Done]

ONE_RELEASE = pytest.mark.parametrize("scene", ["4.3.1"], indirect=True)
"""For what no release of Kafka has a part in."""


@pytest.fixture
def reset(scene: Scene, capsys: pytest.CaptureFixture[str]) -> Command:
    """``acktrail reset`` with the scene's broker and tables where a command takes them."""

    def command(name: str, *words: str) -> Done:
        where = scene.arguments() if name not in ("approve", "reject", "show") else scene.arguments()[2:]
        return run(capsys, "reset", name, *words, *where)

    return command


# Decisions


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
        scene.would_send(plan, tables=scene.tables)
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
        scene.would_send(old, tables=scene.tables, max_age_ms=0)
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
    assert (done.results, done.outcomes) == ((), {group: "DONE"})
    assert scene.starts(group) == [5, 5]


def test_a_plan_that_was_done_is_not_sent_again(scene: Scene, reset: Command) -> None:
    """Everything at its target: nothing is sent. Somebody put it back as the plan had found it: refused all the same,
    really and as a dry run, although nothing moved in the plan's eyes."""
    group = scene.group()
    plan = scene.reset(groups=[group], topics=[TOPIC], strategies={"to-earliest": None})
    assert reset("apply", plan["plan_id"], "--execute").stdout == "every share partition is at its target already\n"
    scene.put(group, {0: 5, 1: 5})
    for words in ((), ("--execute",)):
        assert "[plan_carried_out]" in reset("apply", plan["plan_id"], *words).complaint(2)
    assert scene.starts(group) == [5, 5]
    assert scene.events(plan["plan_id"]).count(Event.BEFORE_CALL) == 1


# Partial plans


def test_a_partial_apply_says_what_it_left_out(scene: Scene, reset: Command) -> None:
    """A partition that is not there, and a whole group: exit code 7, a row for every share partition of the plan in the
    table, in JSON and in the text, PARTLY in the list; a second time nothing is sent and the same is said."""
    group = scene.group()
    plan = scene.earliest(group, groups=[group, f"{group}-missing"], topics=[f"{TOPIC}:0,7"])
    done = reset("apply", plan["plan_id"], "--execute", "--partial", "--watch", "0", "--json")
    assert done.code == 7, done.stderr
    found = json.loads(done.stdout)
    outcomes = {(row["group_id"], row["partition"]): (row["status"], row["error"]) for row in found["outcomes"]}
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
        scene.would_send(second, tables=scene.tables)
    assert Event.BEFORE_CALL not in scene.events(second["plan_id"])
    redo = scene.undo(first)
    scene.execute(redo)
    scene.verify(redo)
    assert scene.standing(plan["plan_id"]) == "DONE"


def test_an_undo_after_the_group_moved_on_must_be_allowed(scene: Scene, reset: Command) -> None:
    """Consumers got and released records since, or another client reset it: the undo says so, and is sent only where
    that is allowed."""
    group = scene.group()
    plan = scene.reset(groups=[group], topics=[TOPIC], strategies={"to-earliest": None})
    scene.settle(group, TOPIC, 2 * RECORDS, lambda _: AcknowledgeType.RELEASE)
    refused = reset("undo", plan["plan_id"], "--execute")
    assert "[moved_on]" in refused.stderr
    assert refused.code == 2
    allowed = reset("undo", plan["plan_id"], "--allow-moved-on")
    assert "serious" in allowed.stdout
    assert reset("undo", plan["plan_id"], "--allow-moved-on", "--execute", "--watch", "0").code == 0
    assert scene.starts(group) == [5, 5]


# Requests whose answer is lost


def unknown(done: Done, plan_id: str) -> bool:
    """Whether a command ended as it must when a request left and nobody knows what became of it."""
    assert done.code == 5, done
    assert f"acktrail reset verify {plan_id}" in done.stderr
    return True


@contextmanager
def after_the_call(monkeypatch: pytest.MonkeyPatch, name: str, happens: Callable[[], object]) -> Iterator[None]:
    """Something happens after a real request was answered, before anything else."""
    send = getattr(ShareGroupAdmin, name)

    def sent(*arguments: Any) -> Any:
        answer = send(*arguments)
        happens()
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(ShareGroupAdmin, name, sent)
        yield


@contextmanager
def lost_tables(monkeypatch: pytest.MonkeyPatch, scene: Scene, name: str) -> Iterator[None]:
    """The folder of the tables is a file from the moment on when the request was answered; it comes back."""
    folder = Path(scene.tables.uri)
    away = folder.with_name("away")

    def lose() -> None:
        folder.rename(away)
        folder.write_text("")

    try:
        with after_the_call(monkeypatch, name, lose):
            yield
    finally:
        if away.exists():
            folder.unlink()
            away.rename(folder)


def test_tables_lost_after_the_request_leave_an_unknown_outcome(
    scene: Scene, reset: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer cannot be noted: exit code 5, not 3; once the tables are back, verification settles it."""
    group = scene.group()
    plan = scene.earliest(group)
    with lost_tables(monkeypatch, scene, "alter_offsets"):
        assert unknown(reset("apply", plan["plan_id"], "--execute", "--watch", "0"), plan["plan_id"])
    assert scene.is_open(plan["plan_id"])
    assert reset("verify", plan["plan_id"], "--watch", "0").code == 0
    assert scene.starts(group) == [0, 0]


@ONE_RELEASE
@pytest.mark.parametrize("step", ["write_executions", "note"])
def test_what_verification_cannot_note_is_unknown(
    scene: Scene, reset: Command, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Rows of `reset_executions`, or the end of the audit, cannot be written after the look: nothing is settled."""
    from acktrail.errors import ConfigurationError
    from acktrail.group_changes.audit.journal import Journal
    from acktrail.group_changes.verification import verify

    plan = scene.earliest(scene.group())

    def fail(*_: Any, **__: Any) -> None:
        raise ConfigurationError("tables: the storage is full")

    settle = verify.verify_reset

    def failing(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(Journal, step, fail)
        return settle(*arguments, **named)

    monkeypatch.setattr(verify, "verify_reset", failing)
    done = reset("apply", plan["plan_id"], "--execute", "--watch", "0")
    monkeypatch.undo()
    assert unknown(done, plan["plan_id"])
    assert "storage is full" in done.stderr
    assert reset("verify", plan["plan_id"], "--watch", "0").code == 0


@ONE_RELEASE
def test_a_later_group_does_not_hide_that_one_before_it_was_sent(
    scene: Scene, reset: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit row before the second request cannot be written: the first one left all the same."""
    groups = sorted([scene.group(), scene.group()])
    plan = scene.earliest(groups[0], groups=groups)
    from acktrail.errors import ConfigurationError
    from acktrail.group_changes.audit.journal import Journal

    note = Journal.note

    def note_once(journal: Journal, entries: Any, **named: Any) -> None:
        if any(one.event is Event.BEFORE_CALL and one.group_id == groups[1] for one in entries):
            raise ConfigurationError("tables: the storage is full")
        note(journal, entries, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "note", note_once)
        assert unknown(reset("apply", plan["plan_id"], "--execute", "--watch", "0"), plan["plan_id"])
    assert [scene.starts(group) for group in groups] == [[0, 0], [5, 5]]
    assert reset("verify", plan["plan_id"], "--watch", "0").code == 7


@ONE_RELEASE
def test_nothing_of_this_applies_before_the_request_leaves(
    scene: Scene, reset: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit row before the first request cannot be written: exit code 3, nothing was sent, the group is free."""
    from acktrail.errors import ConfigurationError
    from acktrail.group_changes.audit.journal import Journal

    group = scene.group()
    plan, note = scene.earliest(group), Journal.note

    def note_never(journal: Journal, entries: Any, **named: Any) -> None:
        if any(one.event is Event.BEFORE_CALL for one in entries):
            raise ConfigurationError("tables: the storage is full")
        note(journal, entries, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "note", note_never)
        reset("apply", plan["plan_id"], "--execute").complaint(3)
    assert scene.starts(group) == [5, 5]
    assert scene.standing(plan["plan_id"]) == "REFUSED"
    assert reset("apply", plan["plan_id"], "--execute", "--watch", "0").code == 0


def test_changes_of_other_kinds_are_unknown_too(
    scene: Scene, capsys: pytest.CaptureFixture[str], reset: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables lost after a deletion of offsets, and after a change of configurations."""
    group = scene.group()
    deletion = ("offsets", "delete", "--group", group, "--topic", TOPIC, "--execute")
    setting = ("groups", "config", "set", "--group", group, "share.auto.offset.reset=earliest", "--execute")
    for name, words in (("delete_offsets", deletion), ("alter_group_configs", setting)):
        with lost_tables(monkeypatch, scene, name):
            done = run(capsys, *words, *scene.arguments())
        plan_id = list_plans(scene.tables)[0]["plan_id"]
        assert unknown(done, plan_id)
        assert scene.is_open(plan_id)
        assert reset("verify", plan_id).code == 0
        assert scene.standing(plan_id) == "DONE"


def process(scene: Scene, *words: str) -> tuple[int, str]:
    """How the command line ended in a process of its own, and what it said on stderr."""
    script = Path(__file__).with_name("interrupted_process.py")
    command = [sys.executable, str(script), *words, *scene.arguments()]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stderr


@ONE_RELEASE
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_the_request_is_not_silent(scene: Scene, number: signal.Signals) -> None:
    """SIGINT and SIGTERM to a real process whose request was just answered: exit code 5 and what to do; before the
    request: interrupted, nothing is sent, and the group is free."""
    group = scene.group()
    plan = scene.earliest(group)
    words = (str(int(number)), "reset", "apply", plan["plan_id"], "--execute")
    assert process(scene, "before", *words)[0] == 130
    assert (scene.standing(plan["plan_id"]), scene.starts(group)) == ("REFUSED", [5, 5])
    code, message = process(scene, "after", *words)
    assert (code, f"acktrail reset verify {plan['plan_id']}" in message) == (5, True), message
    assert scene.standing(plan["plan_id"]) == "UNKNOWN"
    assert {row["status"][:2] for row in scene.verify(plan)} == {"OK"}


@ONE_RELEASE
def test_a_signal_after_a_deletion_is_not_silent(scene: Scene) -> None:
    """The same for what is not a reset."""
    group = scene.group()
    words = ("offsets", "delete", "--group", group, "--topic", TOPIC, "--execute")
    code, message = process(scene, "after", str(int(signal.SIGTERM)), *words)
    plan_id = list_plans(scene.tables)[0]["plan_id"]
    assert (code, f"acktrail reset verify {plan_id}" in message) == (5, True), message
    assert scene.standing(plan_id) == "UNKNOWN"


def test_a_signal_while_verification_waits(scene: Scene) -> None:
    """A real process that would watch for ten minutes gets SIGTERM once the answer is noted."""
    group = scene.group()
    plan = scene.earliest(group)
    acktrail = str(Path(sys.executable).with_name("acktrail"))
    command = [acktrail, "reset", "apply", plan["plan_id"], "--execute", "--watch", "600", *scene.arguments()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        until(lambda: Event.AFTER_CALL in scene.events(plan["plan_id"]), what="the answer to be noted")
        running.send_signal(signal.SIGTERM)
        try:
            _, message = running.communicate(timeout=300)
        finally:
            running.kill()
    assert (running.returncode, f"acktrail reset verify {plan['plan_id']}" in message) == (5, True), message
    assert {row["status"][:2] for row in scene.verify(plan)} == {"OK"}


def test_a_broker_stopped_after_the_request_leaves_an_unknown_outcome(
    scene: Scene, reset: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed right after its answer, before verification: exit code 5 for a reset, again for verification while it is
    down, and for a deletion; settled when it is back. The module's functions raise the same."""
    group, other = scene.group(), scene.group()
    plan, deletion = scene.earliest(group), scene.plan_deletion([other], [TOPIC])
    with after_the_call(monkeypatch, "alter_offsets", scene.broker.kill):
        assert unknown(reset("apply", plan["plan_id"], "--execute", "--watch", "0"), plan["plan_id"])
    assert unknown(reset("verify", plan["plan_id"], "--watch", "0"), plan["plan_id"])
    scene.broker.start()
    assert scene.is_open(plan["plan_id"])
    assert {row["status"][:2] for row in scene.verify(plan)} == {"OK"}
    with after_the_call(monkeypatch, "delete_offsets", scene.broker.kill), pytest.raises(OutcomeUnknown) as caught:
        scene.execute_change(deletion)
    assert f"acktrail reset verify {deletion['plan_id']}" in caught.value.hint
    scene.broker.start()
    with Cluster(scene.kafka) as cluster:
        assert change_api.settle_change(cluster, scene.tables, change_plan(deletion)) == {other: "done"}
    assert scene.standing(deletion["plan_id"]) == "DONE"
