"""Anything that goes wrong after a request left is an unknown outcome, which verification settles, also late, and after
records were pruned. On real brokers."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from change.world import ONE_RELEASE, TOPIC, Command, Scene, World
from confluent_kafka import AcknowledgeType
from drivers.command_line import Done, run
from servers.kafka_proxy import kafka_proxy
from servers.real_broker import kill
from servers.workload import until

from acktrail.change.apply.reset_execution import raise_unless_ok
from acktrail.change.audit.audit_chain import Event
from acktrail.change.audit.journal import Journal, read_audit
from acktrail.change.plan_status import list_plans
from acktrail.change.verify import reset_verification
from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, OutcomeUnknown, PlanStale
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.log_reader import StateTopic
from acktrail.model.share_partition import GroupId, SharePartition, TopicId, state_partition_of
from acktrail.view.audit_integrity import checked_audit
from acktrail_embedded import EmbeddedBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def unknown(done: Done, plan_id: str) -> bool:
    """Whether a command ended as it must when a request left and nobody knows what became of it."""
    assert done.code == 5, done
    assert f"acktrail change verify {plan_id}" in done.stderr
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


@pytest.mark.few(1)
@ONE_RELEASE
@pytest.mark.parametrize("step", ["write_executions", "note"])
def test_what_verification_cannot_note_is_unknown(
    scene: Scene, ask: Command, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Rows of `reset_executions`, or the end of the audit, cannot be written after the look: nothing is settled."""
    plan = scene.earliest(scene.group())

    def fail(*_: Any, **__: Any) -> None:
        raise ConfigurationError("tables: the storage is full")

    settle = reset_verification.verify_reset

    def failing(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(Journal, step, fail)
        return settle(*arguments, **named)

    monkeypatch.setattr(reset_verification, "verify_reset", failing)
    done = ask("change", "apply", plan["plan_id"], "--execute", "--watch", "0")
    monkeypatch.undo()
    assert unknown(done, plan["plan_id"])
    assert "storage is full" in done.stderr
    assert ask("change", "verify", plan["plan_id"], "--watch", "0").code == 0


@contextmanager
def unwritten(monkeypatch: pytest.MonkeyPatch, group: str) -> Iterator[None]:
    """The audit row before the request of a group cannot be written."""
    note = Journal.note

    def note_others(journal: Journal, entries: Any, **named: Any) -> None:
        if any(one.event is Event.BEFORE_CALL and one.group_id == group for one in entries):
            raise ConfigurationError("tables: the storage is full")
        note(journal, entries, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "note", note_others)
        yield


@ONE_RELEASE
def test_a_later_group_does_not_hide_that_one_before_it_was_sent(
    scene: Scene, ask: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit row before the second request cannot be written: the first one left all the same. Before the first
    request: exit code 3, nothing was sent, the group is free."""
    groups = sorted([scene.group(), scene.group()])
    plan = scene.earliest(groups[0], groups=groups)["plan_id"]
    with unwritten(monkeypatch, groups[0]):
        ask("change", "apply", plan, "--execute").complaint(3)
    assert [scene.starts(group) for group in groups] == [[5, 5], [5, 5]]
    assert scene.standing(plan) == "REFUSED"
    with unwritten(monkeypatch, groups[1]):
        assert unknown(ask("change", "apply", plan, "--execute", "--watch", "0"), plan)
    assert [scene.starts(group) for group in groups] == [[0, 0], [5, 5]]
    assert ask("change", "verify", plan, "--watch", "0").code == 7
    assert ask("change", "apply", plan, "--execute", "--watch", "0").code == 0


def test_tables_lost_after_a_request_leave_an_unknown_outcome(
    scene: Scene, capsys: pytest.CaptureFixture[str], ask: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables lost after a reset, a deletion of offsets, and a change of configurations: the answer cannot be noted,
    exit code 5, not 3; once the tables are back, verification settles it."""
    group = scene.group()
    deletion = ("groups", "delete-offsets", "--group", group, "--topic", TOPIC, "--execute")
    setting = ("groups", "config", "set", "--group", group, "share.auto.offset.reset=earliest", "--execute")
    reset_of = ("change", "apply", scene.earliest(group)["plan_id"], "--execute", "--watch", "0")
    requests = (("alter_offsets", reset_of), ("delete_offsets", deletion), ("alter_group_configs", setting))
    for name, words in requests:
        with lost_tables(monkeypatch, scene, name):
            done = run(capsys, *words, *scene.arguments())
        plan_id = reset_of[2] if name == "alter_offsets" else list_plans(scene.tables)[0]["plan_id"]
        assert unknown(done, plan_id)
        assert scene.is_open(plan_id)
        assert ask("change", "verify", plan_id).code == 0
        assert scene.standing(plan_id) == "DONE"


@pytest.mark.few(1)
@ONE_RELEASE
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_the_request_is_not_silent(scene: Scene, number: signal.Signals) -> None:
    """SIGINT and SIGTERM to a real process whose request was just answered: exit code 5 and what to do; before the
    request: interrupted, nothing is sent, and the group is free."""
    group = scene.group()
    plan = scene.earliest(group)
    assert scene.interrupted("before", number, plan["plan_id"])[0] == 130
    assert (scene.standing(plan["plan_id"]), scene.starts(group)) == ("REFUSED", [5, 5])
    code, message = scene.interrupted("after", number, plan["plan_id"])
    assert (code, f"acktrail change verify {plan['plan_id']}" in message) == (5, True), message
    assert scene.standing(plan["plan_id"]) == "UNKNOWN"
    assert {row["status"][:2] for row in scene.verify(plan)} == {"OK"}


@ONE_RELEASE
@pytest.mark.parametrize(("moment", "code"), [("leased", 4), ("before", 5)])
def test_a_process_that_was_killed_before_its_request_leaves_a_way_out(
    scene: Scene, ask: Command, moment: str, code: int
) -> None:
    """SIGKILL between lease and audit row: verification says that nothing was sent; between audit row and request: that
    it may still arrive. Both name `apply`, which carries the plan out."""
    group = scene.group()
    plan = scene.earliest(group)["plan_id"]
    assert scene.interrupted(moment, signal.SIGKILL, plan)[0] == -signal.SIGKILL
    verified = ask("change", "verify", plan, "--wait", "0")
    assert (verified.code, f"acktrail change apply {plan} --execute" in verified.stderr) == (code, True), verified
    assert "verify" not in verified.stderr
    assert ask("change", "apply", plan, "--execute", "--watch", "0").code == 0
    assert (scene.standing(plan), scene.starts(group)) == ("DONE", [0, 0])


def test_a_signal_while_verification_waits(scene: Scene) -> None:
    """A real process that would watch for ten minutes gets SIGTERM once the answer is noted."""
    group = scene.group()
    plan = scene.earliest(group)
    acktrail = str(Path(sys.executable).with_name("acktrail"))
    command = [acktrail, "change", "apply", plan["plan_id"], "--execute", "--watch", "600", *scene.arguments()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        until(lambda: Event.AFTER_CALL in scene.events(plan["plan_id"]), what="the answer to be noted")
        running.send_signal(signal.SIGTERM)
        try:
            _, message = running.communicate(timeout=300)
        finally:
            running.kill()
    assert (running.returncode, f"acktrail change verify {plan['plan_id']}" in message) == (5, True), message
    assert {row["status"][:2] for row in scene.verify(plan)} == {"OK"}


def test_a_broker_stopped_after_the_request_leaves_an_unknown_outcome(
    scene: Scene, ask: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed right after its answer, before verification: exit code 5 for the reset, and again for verification while
    it is down; settled when it is back."""
    plan = scene.earliest(scene.group())
    with after_the_call(monkeypatch, "alter_offsets", partial(kill, scene.broker)):
        assert unknown(ask("change", "apply", plan["plan_id"], "--execute", "--watch", "0"), plan["plan_id"])
    assert unknown(ask("change", "verify", plan["plan_id"], "--watch", "0"), plan["plan_id"])
    scene.broker.start()
    assert scene.is_open(plan["plan_id"])
    assert {row["status"][:2] for row in scene.verify(plan)} == {"OK"}


ALTER = 91


@ONE_RELEASE
@pytest.mark.parametrize("way_out", ["apply", "reject"])
def test_a_request_that_never_arrives_has_a_way_out(
    scene: Scene, capsys: pytest.CaptureFixture[str], ask: Command, way_out: str
) -> None:
    """The network loses the request: `verify` finds nothing, exit code 5, and names what a person may do: `apply` sends
    it again, `reject` closes it. Each command that is named does what it says; `list` and `show` name the same."""
    group = scene.group()
    made = scene.earliest(group)
    plan = made["plan_id"]
    with kafka_proxy(scene.kafka.bootstrap_servers) as network:
        network.held.add(ALTER)
        World(network.config(), scene.tables).execute(made)
        network.waiting.clear()
    verified = ask("change", "verify", plan, "--wait", "0")
    assert (verified.code, f"change {way_out} {plan}" in verified.stderr) == (5, True), verified
    assert "change verify" not in verified.stderr
    listed = run(capsys, "change", "list", *scene.arguments()[2:])
    for shown in (listed.stdout, ask("change", "show", plan).stdout):
        assert f"change {way_out} {plan}" in shown
    assert f"change {way_out} {plan}" in ask("change", "undo", plan).complaint(5)
    assert ask("change", way_out, plan, *(["--execute", "--watch", "0"] if way_out == "apply" else [])).code == 0
    assert scene.starts(group) == ([0, 0] if way_out == "apply" else [5, 5])
    assert scene.standing(plan) == ("DONE" if way_out == "apply" else "STOPPED")


@contextmanager
def unanswered(scene: Scene, plan: dict[str, Any]) -> Iterator[None]:
    """A plan whose request the network holds back until the end of the block: nobody knows what becomes of it."""
    with kafka_proxy(scene.kafka.bootstrap_servers) as network:
        network.held.add(ALTER)
        done = World(network.config(), scene.tables).execute(plan)
        assert [result["outcome"] for result in done["results"]] == ["unknown"] * 2
        assert {row["status"] for row in scene.verify(plan, wait_s=0)} == {"UNKNOWN"}
        yield
        network.release()


def plan_to(scene: Scene, group: str, target: int) -> dict[str, Any]:
    return scene.earliest(group, strategies={"to-offset": str(target)}, allow_skip=True)


def test_a_request_that_arrives_late_is_found_by_a_later_look(scene: Scene, ask: Command) -> None:
    """Held back by the network until its sender has given up and found nothing: UNKNOWN, never FAILED, however often
    one looks, and exit code 5. Delivered then: a dry run does not call its work stale, and the next look finds it done.
    The audit keeps both."""
    group = scene.group()
    plan = plan_to(scene, group, 4)
    with unanswered(scene, plan):
        assert scene.standing(plan["plan_id"]) == "UNKNOWN"
        rows = scene.verify(plan, wait_s=0)
        with pytest.raises(OutcomeUnknown, match="no answer"):
            raise_unless_ok(plan["plan_id"], rows, None)
    until(lambda: scene.starts(group) == [4, 4], what="the request to arrive")
    for word in ("apply", "approve"):
        complaint = ask("change", word, plan["plan_id"]).complaint(5)
        assert (f"change apply {plan['plan_id']} --execute" in complaint, "stale" in complaint) == (True, False)
    assert {row["status"] for row in scene.verify(plan)} == {"OK_EPOCH_NOT_BUMPED"}
    assert scene.standing(plan["plan_id"]) == "DONE"
    assert scene.verify(plan) == []
    rows = read_audit(scene.tables, {"plan_id": plan["plan_id"], "event": Event.VERIFIED.value})
    assert [row.outcome for row in rows] == ["unknown", "unknown", "done"]
    checked_audit(scene.tables)


@pytest.mark.few(1)
@pytest.mark.parametrize("looks_at", ["late", "done"])
def test_a_late_request_undoes_the_plan_after_it(scene: Scene, looks_at: str) -> None:
    """A plan made before the silence is stale; one made after it names the other. It is done, and overwritten when the
    late request arrives: a look at either of the two says so."""
    group = scene.group()
    before, late = plan_to(scene, group, 2), plan_to(scene, group, 4)
    with unanswered(scene, late):
        with pytest.raises(PlanStale) as caught:
            scene.execute(before)
        assert caught.value.rule == "unanswered_request"
        plan = plan_to(scene, group, 7)
        (notice,) = (notice for notice in plan["notices"] if notice["rule"] == "unanswered_request")
        assert (notice["severity"], late["plan_id"] in notice["text"]) == ("serious", True)
        scene.execute(plan)
        assert {row["status"] for row in scene.verify(plan)} == {"OK_EPOCH_NOT_BUMPED"}
        assert scene.standing(plan["plan_id"]) == "DONE"
    scene.verify(late if looks_at == "late" else plan, wait_s=0)
    assert scene.standing(plan["plan_id"]) == "OVERWRITTEN"
    assert scene.standing(late["plan_id"]) == ("DONE" if looks_at == "late" else "UNKNOWN")
    checked_audit(scene.tables)


RECORDS, WORKED = 20, 9
STATE_PARTITIONS = 50
SHORT_MEMORY = {
    "share.coordinator.state.topic.num.partitions": str(STATE_PARTITIONS),
    "share.coordinator.snapshot.update.records.per.snapshot": "6",
    "share.coordinator.state.topic.prune.interval.ms": "500",
    "share.coordinator.cold.partition.snapshot.interval.ms": "86400000",
}
"""Seven updates make a snapshot, and what lies before it is gone soon after."""


class Forgetful(World):
    """A broker that prunes its state topic."""

    def state_partition(self, group: str) -> int:
        with ShareGroupAdmin(self.kafka) as admin:
            topic_id = admin.topics([TOPIC])[0].topic_id
        key = SharePartition(group_id=GroupId(group), topic_id=TopicId(topic_id or ""), partition=0)
        return state_partition_of(key, STATE_PARTITIONS)

    def log(self, group: str) -> tuple[int, int]:
        """Start and end of the log that has the group's state."""
        partition = self.state_partition(group)
        with ShareGroupAdmin(self.kafka) as admin:
            found = StateTopic(admin).log_offsets({partition})[partition]
        return found.log_start_offset or 0, found.last_stable_offset or 0

    def work(self, group: str, records: int, keep: int | None = None, after: Callable[[], Any] = lambda: None) -> None:
        """The group acknowledges `records` records, each in a write of its own with `after` it, but not the one at
        offset `keep`."""
        left = records
        with self.workload.share_consumer(group, TOPIC, **{"share.acknowledgement.mode": "explicit"}) as consumer:

            def is_done() -> bool:
                nonlocal left
                for message in consumer.poll(0.2) or ():
                    is_kept = message.offset() == keep or not left
                    consumer.acknowledge(message, AcknowledgeType.RELEASE if is_kept else AcknowledgeType.ACCEPT)
                    if not is_kept:
                        consumer.commit_sync()
                        after()
                        left -= 1
                consumer.commit_sync()
                return not left

            until(is_done, what=f"{records} records")
        self.wait_empty(group)


@pytest.mark.full
@pytest.mark.parametrize("version", ["4.4.0", "4.3.1"])
def test_a_reset_is_not_called_overwritten_because_its_records_are_pruned(
    version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sent and not verified, then the group works and the records are pruned: unknown, never overwritten; done where
    the tables have kept the records. What nobody can say keeps nobody from the next plan. The two groups share no state
    partition: none holds back the other's."""
    with EmbeddedBroker(version, properties=SHORT_MEMORY) as broker:
        world = Forgetful.at(broker.config(), tmp_path / "reset")
        world.make_topic(TOPIC, 1, RECORDS)
        exported = World(world.kafka, TablesConfig(uri=str(tmp_path / "exported")))
        answered, kept, *_ = {world.state_partition(f"g{number}"): f"g{number}" for number in range(9)}.values()
        where, plans = {answered: world, kept: exported}, {}
        for group, one in where.items():
            world.work(group, 2, keep=0)
            plans[group] = one.earliest(group, strategies={"to-offset": "4"}, allow_skip=True)
        world.execute(plans[answered])
        assert exported.interrupted("after", signal.SIGKILL, plans[kept]["plan_id"])[0] == -signal.SIGKILL
        ends = {group: world.log(group)[1] for group in plans}

        def export() -> None:
            assert run(capsys, "run", "export", "--state-only", *exported.arguments()).code == 0

        export()
        world.work(kept, WORKED, after=export)
        world.work(answered, WORKED)
        for group, end in ends.items():
            until(lambda group=group, end=end: world.log(group)[0] > end, what=f"{group} to be pruned")
        found = {group: {row["status"] for row in one.verify(plans[group], wait_s=0)} for group, one in where.items()}
        assert found == {answered: {"UNKNOWN"}, kept: {"OK"}}
        assert world.standing(plans[answered]["plan_id"]) == "UNKNOWN"
        world.reset(groups=[answered], topics=[TOPIC], strategies={"to-earliest": None})
