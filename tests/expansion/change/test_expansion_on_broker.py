"""Expansions of topics of a real broker, by command and by function."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from broker.workload import Workload, until
from confluent_kafka import AcknowledgeType, Producer
from drivers import command_line
from expansion.support.committed import commit
from servers.kafka_proxy import kafka_proxy

from acktrail.broker.admin import ShareGroupAdmin, client_of
from acktrail.broker.client.error_codes import Outcome
from acktrail.broker.client.librdkafka import to_librdkafka
from acktrail.config import TablesConfig
from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail.errors import ChangeRefused, OutcomeUnknown, PlanStale, UnknownName
from acktrail.group_changes.audit.integrity import checked_audit
from acktrail.group_changes.audit.journal import read_audit
from acktrail.group_changes.planning.plan_file import plan_json, write_text
from acktrail.tables.delta.store import Tables
from acktrail.times import now_ms
from acktrail_expansion.change import apply_expansion as change
from acktrail_expansion.change.collect_expansion import make_plan
from acktrail_expansion.change.expansion_plan import ExpansionPlan, FirstPosition
from acktrail_expansion.change.partition_creation import PartitionCreation, create_partitions
from acktrail_expansion.change.settling import Settling, settling
from acktrail_expansion.looks.partition_listing import list_partitions

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

CREATE_PARTITIONS = 37
CREATED = "acktrail_expansion.change.partition_creation.create_partitions"


@dataclass(frozen=True)
class Stage:
    """A broker, tables of one test, and how a topic is expanded with both."""

    broker: EmbeddedBroker
    workload: Workload
    admin: ShareGroupAdmin
    folder: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def tables(self) -> TablesConfig:
        return TablesConfig(uri=str(self.folder / "tables"))

    def plan(self, topic: str, partitions: int) -> ExpansionPlan:
        return make_plan(self.admin, topic, partitions, created_by="ann")

    def planned(self, topic: str, before: int, after: int) -> ExpansionPlan:
        """Of a topic that is made for it."""
        self.workload.create_topic(topic, before)
        return self.plan(topic, after)

    def filed(self, plan: ExpansionPlan, name: str = "plan") -> Path:
        file = self.folder / f"{name}.json"
        write_text(plan_json(plan), file)
        return file

    def apply(self, plan: ExpansionPlan, admin: ShareGroupAdmin | None = None) -> change.ExpansionResult:
        journal = change.open_expansion_journal(self.tables, plan, actor="ann")
        return change.apply_expansion(admin or self.admin, journal, plan)

    def events(self, plan: ExpansionPlan) -> list[tuple[str, str | None]]:
        return [(row.event, row.outcome) for row in read_audit(self.tables, {"plan_id": plan.plan_id})]

    def listed(self, topic: str) -> int | None:
        """Its partitions; None: it is not there."""
        (found,) = list_partitions(client_of(self.admin), [topic])
        return None if found.error_code else found.partition_count

    def looks(self) -> int:
        return len({row["run_id"] for row in Tables(self.tables).rows("partition_observations")})

    def run(self, *words: str | Path) -> command_line.Done:
        """``acktrail expand`` with brokers and, but for a plan, tables."""
        own = () if words[0] == "plan" else ("--tables", self.tables.uri)
        where = () if words[0] in {"approve", "reject"} else ("--bootstrap-server", self.broker.bootstrap_servers)
        return command_line.run(self.capsys, "expand", *words, *where, *own)


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedBroker]:
    """A broker of its own: looks see every group of a cluster."""
    with EmbeddedBroker("4.4.0") as broker:
        yield broker


@pytest.fixture
def stage(
    running: EmbeddedBroker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Stage]:
    """Producers of these tests know a count at once."""
    monkeypatch.setenv("ACKTRAIL_SETTLE", "0s")
    monkeypatch.setenv("ACKTRAIL_KEY_MAPPINGS", "*=murmur2")
    monkeypatch.setenv("ACKTRAIL_ORDERED_GROUPS", "ordered-*")
    monkeypatch.setattr(change, "_SPREAD_S", 0.5)
    with ShareGroupAdmin(running.config()) as admin:
        yield Stage(running, Workload(running.config()), admin, tmp_path, capsys)


@pytest.mark.parametrize(("topic", "new_count", "moving"), [("half", 4, "1/2"), ("odd", 3, "2/3")])
def test_an_expansion_by_command(stage: Stage, topic: str, new_count: int, moving: str) -> None:
    """The plan has what is open in each group; a dry run changes nothing; applied, the topic has the partitions;
    applied again, nothing is done, nor looked at; the audit is whole and names the request."""
    stage.workload.create_topic(topic, 2)
    stage.workload.produce(topic, 9, partition=0)
    commit(stage.broker.config(), f"ordered-{topic}", topic, 4, 0)
    file = stage.folder / "plan.json"

    done = stage.run("plan", topic, "--partitions", str(new_count), "--out", file)
    plan = json.loads(file.read_text())
    assert (done.code, plan["moving"], "open_before_expansion" in done.stdout) == (0, moving, True), done
    (group,) = [each for each in plan["groups"] if each["group_id"] == f"ordered-{topic}"]
    assert (group["open_records"], group["unknown"], group["is_ordered"]) == (5, 0, True)
    assert group["partitions"] == [{"partition": 0, "open_records": 5}]

    done = stage.run("apply", file)
    assert (done.code, "would be expanded" in done.stdout, stage.listed(topic)) == (0, True, 2)

    (result,) = stage.run("apply", file, "--execute", "--json").rows
    assert (result["was_there"], result["is_settled"], result["has_old"]) == (False, True, True), result
    assert stage.listed(topic) == new_count

    before = stage.looks()
    done = stage.run("apply", file, "--execute")
    assert (done.code, "it has been expanded" in done.stdout, stage.looks()) == (0, True, before)
    found = read_audit(stage.tables)
    events = [("before_call", None), ("after_call", "done"), ("verified", "done")]
    assert [(row.kind, row.event, row.outcome) for row in found] == [("expand_topic", *each) for each in events]
    assert json.loads(found[0].detail)["to"] == new_count
    assert checked_audit(stage.tables).rows == 3


def test_what_a_plan_finds_out(stage: Stage) -> None:
    """A compacted topic; where a share group begins, by its configuration; what is open by the broker's lag: a share
    group whose start offset stands at a record that came back has that one open, not all behind it."""
    topic, kafka = "found-out", stage.broker.config()
    stage.workload.create_topic(topic, 1, **{"cleanup.policy": "compact,delete"})
    producer = Producer(to_librdkafka(kafka))
    for number in range(60):
        producer.produce(topic, b"value", key=str(number).encode())  # without a key it would be refused
    assert producer.flush(30) == 0
    commit(kafka, "found-classic", topic, 10)
    finished, explicit = 0, {"share.acknowledgement.mode": "explicit"}
    with stage.workload.share_consumer("found-share", topic, **explicit) as consumer:
        while finished < 59:
            for message in consumer.poll(0.5) or ():
                is_first = message.offset() == 0
                consumer.acknowledge(message, AcknowledgeType.RELEASE if is_first else AcknowledgeType.ACCEPT)
                finished += not is_first
            consumer.commit_sync()
    stage.workload.configure_group("found-share", share_auto_offset_reset="latest")

    plan = stage.plan(topic, 2)

    assert "old_values_stay" in {notice.rule for notice in plan.notices}
    groups = {group.group_id: (group.begins_at, group.open_records) for group in plan.groups}
    assert groups["found-share"] == (FirstPosition.LATEST, 1)
    assert groups["found-classic"] == (FirstPosition.IN_CLIENTS, 50)


def test_what_is_refused_by_command(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is not there (with the nearest name), an internal one, a count that is no more, one beyond the
    most, an unknown partitioner: one line each, and no plan."""
    stage.workload.create_topic("settled-orders", 2)
    commit(stage.broker.config(), "internal-maker", "settled-orders", 0)

    def complaint(topic: str, count: int, code: int = 2) -> str:
        return stage.run("plan", topic, "--partitions", str(count)).complaint(code)

    assert "did you mean 'settled-orders'" in complaint("settled-order", 4)
    assert "[not_more_partitions]" in complaint("settled-orders", 2)
    assert "[not_more_partitions]" in complaint("settled-orders", 1)
    assert "[too_many_partitions]" in complaint("settled-orders", 20_000)
    assert "[internal_topic]" in complaint("__consumer_offsets", 60)
    monkeypatch.setenv("ACKTRAIL_KEY_MAPPINGS", "*=murmur3")
    assert "ACKTRAIL_KEY_MAPPINGS" in complaint("settled-orders", 4, code=3)


def test_a_plan_of_another_topic_or_count_is_stale(stage: Stage) -> None:
    """Made again under its name, expanded by somebody else to another count, or gone: nothing is sent, and the reason
    is named."""
    plan = stage.planned("again", 2, 4)
    assert create_partitions(client_of(stage.admin), "again", 3).error is None
    until(lambda: stage.listed("again") == 3)
    with pytest.raises(PlanStale, match="had 2 partitions and has 3"):
        stage.apply(plan)
    stage.workload.delete_topic("again")
    until(lambda: stage.listed("again") is None)
    with pytest.raises(UnknownName):
        stage.apply(plan)
    stage.workload.create_topic("again", 2)
    with pytest.raises(PlanStale, match="deleted and created again"):
        stage.apply(plan)
    with pytest.raises(PlanStale, match="the plan is for cluster"):
        stage.apply(replace(plan, cluster_id="other"))
    assert (stage.listed("again"), read_audit(stage.tables)) == (2, [])


def test_somebody_else_is_quicker(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic gets the partitions between the look and the request: nothing is sent, and it is not noted as asked
    for, so that nobody takes it for one step. Applied again, the plan follows what is there."""
    plan = stage.planned("raced", 2, 4)

    def look_slowly(*_: Any, **__: Any) -> None:
        assert create_partitions(client_of(stage.admin), "raced", 4).error is None
        until(lambda: stage.listed("raced") == 4)

    def validated(_client: Any, topic: str, _count: int, *, validate_only: bool = False) -> PartitionCreation:
        """Of a controller that has not heard of the other request yet."""
        assert validate_only
        return PartitionCreation(topic=topic, outcome=Outcome.DONE)

    with monkeypatch.context() as patch:
        patch.setattr(change, "take_look", look_slowly)
        patch.setattr(CREATED, validated)
        with pytest.raises(PlanStale, match="has got 4 partitions meanwhile"):
            stage.apply(plan)
    assert stage.events(plan) == []
    result = stage.apply(plan)
    assert (result.was_there, result.has_old) == (True, False)


def test_the_controller_refuses(stage: Stage) -> None:
    """Asked whether it would do it, and asked to do it; nothing changes."""
    stage.workload.create_topic("twice", 2)
    client = client_of(stage.admin)
    answer = create_partitions(client, "twice", 2, validate_only=True)
    assert (answer.outcome.value, answer.error_code) == ("refused", 37)
    assert "INVALID_PARTITIONS" in str(answer.exception())
    assert create_partitions(client, "nothing-here", 2, validate_only=True).error_code == 3
    assert (create_partitions(client, "twice", 1).outcome.value, stage.listed("twice")) == ("refused", 2)


def test_an_answer_that_is_lost_is_looked_for(stage: Stage) -> None:
    """The broker does it and its answer is swallowed: the lists of partitions show it, and the expansion continues."""
    plan = stage.planned("swallowed", 2, 4)
    with kafka_proxy(stage.broker.bootstrap_servers) as proxy, ShareGroupAdmin(proxy.config()) as through:
        sent: list[bool] = []

        def silence_the_second(api_key: int) -> float | None:
            if api_key == CREATE_PARTITIONS:
                sent.append(True)
            return None if api_key == CREATE_PARTITIONS and len(sent) > 1 else 1.0

        proxy.share_of = silence_the_second  # type: ignore[method-assign]  # this proxy alone
        result = stage.apply(plan, through)

    assert (result.was_there, result.has_old, len(sent), stage.listed("swallowed")) == (False, True, 2, 4)
    assert stage.events(plan) == [("before_call", None), ("after_call", "unknown"), ("verified", "done")]


def test_a_request_that_is_late_is_an_unknown_outcome(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request hangs in the network: no broker lists the partitions, and the outcome is unknown. It arrives later:
    the plan, applied again, sees what is there, sends nothing, and continues."""
    plan = stage.planned("late", 2, 4)
    with kafka_proxy(stage.broker.bootstrap_servers) as proxy, ShareGroupAdmin(proxy.config()) as through:

        def held_back(client: Any, topic: str, count: int, *, validate_only: bool = False) -> PartitionCreation:
            proxy.held.update(() if validate_only else {CREATE_PARTITIONS})
            return create_partitions(client, topic, count, validate_only=validate_only)

        monkeypatch.setattr(CREATED, held_back)
        with pytest.raises(OutcomeUnknown, match="not known whether they came"):
            stage.apply(plan, through)
        assert stage.listed("late") == 2
        proxy.release()
    events = [("before_call", None), ("after_call", "unknown"), ("verified", "unknown")]
    assert stage.events(plan) == events
    until(lambda: stage.listed("late") == 4)

    result = stage.apply(plan)

    assert (result.was_there, result.has_old, result.is_settled, stage.events(plan)) == (True, True, True, events)


def test_a_broker_that_does_not_list_the_partitions_keeps_fences_open(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R003-09: every second list is an old one, as of a broker that lags: producers may ask it. That is said, nothing
    settles, and the plan, applied again, sends nothing and settles once all brokers list the partitions."""
    plan = stage.planned("lagging", 2, 4)
    attempts: tuple[Callable[[], Any], ...] = (
        lambda: stage.apply(plan),
        lambda: change.finish_expansion(stage.admin, stage.tables, plan),
    )
    with monkeypatch.context() as patch:
        brokers, lags = stage.admin.broker_ids() * 2, cycle([False, True])

        def listing(client: Any, names: Any = None, *, node_id: int | None = None, **more: Any) -> Any:
            found = list_partitions(client, names, node_id=node_id, **more)
            is_old = node_id is not None and next(lags)
            return tuple(replace(each, partitions=each.partitions[:2]) for each in found) if is_old else found

        patch.setattr(stage.admin, "broker_ids", lambda: brokers)
        for module in ("partition_listing", "partition_observation"):
            patch.setattr(f"acktrail_expansion.looks.{module}.list_partitions", listing)
        for attempt in attempts:
            with pytest.raises(change.NotEverywhere, match="not every broker lists them") as raised:
                attempt()
            assert raised.value.exit_code == 4
    assert settling(stage.tables, plan) == Settling(has_old=True, settles_at_ms=None, is_settled=False)

    result = stage.apply(plan)

    assert (result.was_there, result.is_settled) == (True, True)
    assert stage.events(plan) == [("before_call", None), ("after_call", "done"), ("verified", "done")]


def test_a_wait_can_be_left_and_goes_on(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal in the wait: exit code 130, and a sentence how to go on; what the wait assumes of producers was said
    before it, in plain lines. The plan, applied again, waits for the rest of the time alone."""
    monkeypatch.setenv("ACKTRAIL_SETTLE", "10s")
    file, own = stage.filed(stage.planned("left", 1, 2)), threading.get_ident()
    with monkeypatch.context() as patch:
        patch.setattr(
            "acktrail_expansion.cli.expansion_apply_command.time.sleep",
            lambda _seconds: signal.pthread_kill(own, signal.SIGTERM),
        )
        done = stage.run("apply", file, "--execute")
    assert (done.code, done.stdout, stage.listed("left")) == (130, "", 2)
    first, assumed, left = done.stderr.splitlines()
    assert ("waiting until" in first, "delivery.timeout.ms" in assumed) == (True, True)
    assert f"acktrail expand apply {file} --execute" in left

    (first,) = stage.run("apply", file, "--execute", "--no-wait", "--json").rows
    (second,) = stage.run("apply", file, "--execute", "--json").rows
    assert (second["is_settled"], second["was_there"]) == (True, True)
    assert second["settles_at_ms"] == first["settles_at_ms"] <= now_ms()


def test_decisions_by_command(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """An approval lets a plan pass that needs one; a rejection closes it for good; an edited plan cannot be decided."""
    monkeypatch.setenv("ACKTRAIL_RESET_APPROVAL", "required")
    stage.workload.create_topic("decided", 1)
    good, bad, edited = (stage.filed(stage.plan("decided", 2), name) for name in ("good", "bad", "edited"))
    edited.write_text(edited.read_text().replace('"new_count": 2', '"new_count": 9'))

    assert "approved by" in stage.run("approve", good).stdout
    assert stage.run("reject", bad, "--reason", "not now", "--json").rows[0]["standing"] == "REJECTED"
    assert "[edited_plan]" in stage.run("approve", edited).complaint(2)
    assert "[plan_rejected]" in stage.run("apply", bad, "--execute").complaint(2)
    with pytest.raises(ChangeRefused, match="approval_missing"):
        stage.apply(stage.plan("decided", 2))
    assert stage.listed("decided") == 1
    assert (stage.run("apply", good, "--execute").code, stage.listed("decided")) == (0, 2)
