"""Expansions of topics of a real broker, by command and by function; and a rewind of a grown topic in two resets."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from change.world import RECORDS, Scene, World
from confluent_kafka import AcknowledgeType
from drivers import command_line
from drivers.command_line import Done, run
from extras.expansion.support.rows import audit
from extras.expansion.support.true_traffic import commit
from servers.kafka_proxy import kafka_proxy
from servers.workload import until

from acktrail.change import api
from acktrail.change.audit.journal import read_audit
from acktrail.change.change_kind import Settled
from acktrail.change.cluster import Cluster
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import InputError, OutcomeUnknown, PlanStale, UnknownName
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.tables.cluster_check import create_for
from acktrail.tables.delta.store import Tables
from acktrail.view.audit_integrity import checked_audit
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail_expansion.change import expansion_kind as kind
from acktrail_expansion.change.expansion_kind import create_partitions
from acktrail_expansion.change.expansion_plan import ExpansionPlan, make_plan
from acktrail_expansion.observations.ledger_connector import list_partitions, listed_by_brokers, take_look

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

CREATE_PARTITIONS = 37
UNKNOWN = ("after_call", "unknown")
DONE = [("before_call", None), ("after_call", "done"), ("verified", "done")]
"""Without those about leases and the plan."""
LEFT_OUT = {"planned", "lease_taken", "lease_released"}


@dataclass
class Stage(World):
    """A broker, tables of one test, and how a topic is expanded with both."""

    admin: ShareGroupAdmin
    folder: Path
    capsys: pytest.CaptureFixture[str]

    def planned(self, topic: str) -> ExpansionPlan:
        """From two partitions to four, of a topic that is made for it."""
        self.workload.create_topic(topic, 2)
        return make_plan(self.admin, topic, 4, created_by="ann")

    def apply(self, plan: ExpansionPlan, kafka: KafkaConfig | None = None) -> Settled:
        with Cluster(kafka or self.kafka) as cluster:
            journal = api.open_journal(self.tables, plan, actor="ann")
            api.store_checked(cluster, journal, plan)
            api.execute(cluster, journal, plan)
        return self.verify(plan, kafka)

    def verify(self, plan: ExpansionPlan, kafka: KafkaConfig | None = None) -> Settled:
        with Cluster(kafka or self.kafka) as cluster:
            return api.verify(cluster, api.open_journal(self.tables, plan, actor="ann"), plan)

    def events(self, plan: ExpansionPlan) -> list[tuple[str, str | None]]:
        rows = read_audit(self.tables, {"plan_id": plan.plan_id})
        return [(row.event, row.outcome) for row in rows if row.event not in LEFT_OUT]

    def listed(self, topic: str) -> int:
        """Its partitions; 0: it is not there."""
        return len(list_partitions(client_of(self.admin), [topic])[0].leaders)

    def run(self, *words: str | Path) -> command_line.Done:
        """``acktrail`` with brokers and tables."""
        own = () if "--tables" in words else ("--tables", self.tables.uri)
        where = () if {"reject", "list"} & {*words} else ("--bootstrap-server", self.kafka.bootstrap_servers)
        return command_line.run(self.capsys, *words, *where, *own)


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedBroker]:
    """A broker of its own: looks see every group of a cluster."""
    with EmbeddedBroker("4.4.0") as broker:
        yield broker


@pytest.fixture
def stage(
    running: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    """Producers of these tests know a count at once."""
    monkeypatch.setenv("ACKTRAIL_SETTLE", "0s")
    monkeypatch.setenv("ACKTRAIL_KEY_MAPPINGS", "*=murmur2")
    monkeypatch.setenv("ACKTRAIL_ORDERED_GROUPS", "ordered-*")
    monkeypatch.setattr(kind, "_SPREAD_S", 0.5)
    with ShareGroupAdmin(running.config()) as admin:
        yield Stage(running.config(), TablesConfig(uri=str(tmp_path / "tables")), admin, tmp_path, capsys)


def test_what_a_plan_finds_out_and_refuses(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is open: of a share group whose start offset stands at a record that came back that one alone, not all
    behind it. What may not be done is one line, before any plan."""
    topic, plan = "found-orders", stage.folder / "plan.json"
    stage.workload.create_topic(topic, 1)
    stage.workload.produce(topic, 9)
    commit(stage.workload.admin, "ordered-x", topic, 4)
    came_back = {(0, 0): AcknowledgeType.RELEASE}
    stage.settle("found-share", topic, 9, lambda part: came_back.get(part, AcknowledgeType.ACCEPT))
    stage.workload.configure_group("found-share", share_auto_offset_reset="latest")

    assert stage.run("expand", "plan", topic, "--partitions", "3", "--out", plan).code == 0
    groups = {group.pop("group_id"): group for group in json.loads(plan.read_text())["readers"]}
    named = ("begins_at", "open_records", "most_open", "unknown", "is_ordered")
    assert [groups["found-share"][name] for name in named] == ["latest", 1, [[0, 1]], 0, False]
    assert [groups["ordered-x"][name] for name in named] == [None, 5, [[0, 5]], 0, True]

    def complaint(topic: str, count: int, code: int = 2) -> str:
        return stage.run("expand", "plan", topic, "--partitions", str(count)).complaint(code)

    assert "did you mean 'found-orders'" in complaint("found-order", 4)
    assert "[not_more_partitions]" in complaint(topic, 1)
    assert "[too_many_partitions]" in complaint(topic, 20_000)
    assert "[internal_topic]" in complaint("__consumer_offsets", 60)
    monkeypatch.setenv("ACKTRAIL_KEY_MAPPINGS", "*=murmur3")
    assert "ACKTRAIL_KEY_MAPPINGS" in complaint(topic, 4, code=3)


def test_an_expansion_by_command(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run, a rejected or edited plan, a missing approval and the tables of another cluster change nothing. What
    the wait for producers assumes of them is said. Applied again, the plan asks for nothing. The audit is whole, and
    nothing takes an expansion back."""
    monkeypatch.setenv("ACKTRAIL_RESET_APPROVAL", "required")
    monkeypatch.setenv("ACKTRAIL_SETTLE", "5s")
    stage.workload.create_topic("commanded", 1)
    good, bad, foreign = (stage.folder / name for name in ("good.json", "bad.json", "foreign"))
    for file in (good, bad):
        assert stage.run("expand", "plan", "commanded", "--partitions", "2", "--out", file).code == 0
    create_for(Tables(TablesConfig(uri=str(foreign))), "reset_audit", "another-cluster")
    for words in (
        ("expand", "check", "commanded"),
        ("change", "apply", good, "--execute"),
        ("change", "approve", good),
    ):
        assert "belong to cluster another-cluster" in stage.run(*words, "--tables", foreign).complaint(3)
    assert [file.name for file in foreign.iterdir()] == ["reset_audit"]
    assert stage.run("change", "reject", bad, "--reason", "not now", "--json").rows[0]["standing"] == "REJECTED"
    assert "[plan_rejected]" in stage.run("change", "apply", bad, "--execute").complaint(2)
    bad.write_text(bad.read_text().replace('"new_count": 2', '"new_count": 9'))
    assert "[edited_plan]" in stage.run("change", "approve", bad).complaint(2)
    assert "[approval_missing]" in stage.run("change", "apply", good, "--execute").complaint(2)
    assert "approved by" in stage.run("change", "approve", good).stdout
    (would,) = stage.run("change", "apply", good, "--json").rows
    assert would["parts"] == [{"topic": "commanded", "partitions": 1, "new_partitions": 2}]
    assert stage.listed("commanded") == 1

    done = stage.run("change", "apply", good, "--execute")
    assert (done.code, stage.listed("commanded")) == (0, 2)
    assert ("delivery.timeout.ms" in done.stdout, "acktrail expand check commanded" in done.stdout) == (True, True)
    again = stage.run("change", "apply", good, "--execute").stdout
    assert again.startswith("everything is done already")
    plan_id = json.loads(good.read_text())["plan_id"]
    assert "partitions cannot be taken away" in stage.run("change", "undo", plan_id).complaint(2)
    listed = stage.run("change", "list", "--json").rows
    assert {row["standing"] for row in listed} == {"DONE", "REJECTED"}

    found = [row for row in read_audit(stage.tables, {"plan_id": plan_id}) if row.event not in LEFT_OUT]
    assert [(row.event, row.outcome) for row in found[1:]] == DONE
    assert json.loads(found[1].detail)["to"] == 2
    assert checked_audit(stage.tables).plans == 2


def test_a_plan_of_another_topic_or_count_is_stale(stage: Stage) -> None:
    """Made again under its name, expanded by somebody else to another count, or gone: nothing is sent, and the reason
    is named. The controller takes no fewer partitions."""
    plan = stage.planned("again")
    stage.workload.add_partitions("again", 3)
    with pytest.raises(InputError, match="INVALID_PARTITIONS"):
        create_partitions(client_of(stage.admin), "again", 2)
    with pytest.raises(PlanStale, match="had 2 partitions and has 3"):
        stage.apply(plan)
    stage.workload.delete_topic("again")
    until(lambda: stage.listed("again") == 0)
    with pytest.raises(UnknownName):
        stage.apply(plan)
    stage.workload.create_topic("again", 2)
    with pytest.raises(PlanStale, match="deleted and created again"):
        stage.apply(plan)
    assert (stage.listed("again"), stage.events(plan)) == (2, [])


def test_an_answer_that_is_lost_is_looked_for(stage: Stage) -> None:
    """Where the broker did it and its answer is swallowed, the lists of partitions show it. Where the request hangs in
    the network the outcome is unknown; applied again it is looked for, then sent again. What comes late is refused."""
    swallowed, late = stage.planned("swallowed"), stage.planned("late")
    with kafka_proxy(stage.kafka.bootstrap_servers) as proxy:
        proxy.silenced.add(CREATE_PARTITIONS)
        assert stage.apply(swallowed, proxy.config()).open_until_ms is None
        proxy.held.add(CREATE_PARTITIONS)
        assert stage.apply(late, proxy.config()).groups == {"": "unknown"}
        assert (stage.listed("swallowed"), stage.listed("late")) == (4, 2)
        assert stage.apply(late).groups == {"": "done"}
        proxy.silenced.clear()
        proxy.release()
    assert stage.listed("late") == 4
    assert stage.verify(late).open_until_ms is None
    assert stage.events(swallowed) == [DONE[0], UNKNOWN, DONE[2]]
    assert stage.events(late) == [DONE[0], UNKNOWN, *[("verified", "unknown")] * 2, *DONE]


def test_a_broker_that_does_not_list_the_partitions_keeps_fences_open(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R003-09: a second broker that lags is made up: producers may ask it. That is said, nothing settles; a
    verification settles it once all brokers list the partitions."""
    plan = stage.planned("lagging")
    lagging = {"lagging": (plan.topic_id, 2)}
    with monkeypatch.context() as patch:
        lists = "acktrail_expansion.observations.ledger_connector.listed_by_brokers"
        patch.setattr(lists, lambda *asked: [*listed_by_brokers(*asked), lagging])
        for look in (stage.apply, stage.verify):
            with pytest.raises(OutcomeUnknown, match="not every broker lists them"):
                look(plan)
    assert stage.events(plan) == DONE[:2]
    assert stage.verify(plan).open_until_ms is None
    assert stage.events(plan) == DONE


def test_somebody_else_is_quicker(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic gets the partitions between the look and the request: nothing is sent, and it is not noted as done, so
    that nobody takes it for one step."""
    plan = stage.planned("raced")

    def look_slowly(*_: Any, **__: Any) -> None:
        stage.workload.add_partitions("raced", 4)
        monkeypatch.undo()

    monkeypatch.setattr(kind, "take_look", look_slowly)
    with pytest.raises(PlanStale, match="has 4 partitions already"):
        stage.apply(plan)
    assert stage.events(plan) == [("before_call", None), ("refused", None)]


TOPIC, GROUP = "grown", "in two; resets"
ALLOWED = ("order_broken", "order_uncertain")


def test_a_rewind_keeps_order_in_two_resets_or_is_refused(
    running: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From what is not known, by looks and an audit, to the two command lines of the notice, which deliver the old
    partitions first and then the others. A plan that another reset overtakes is stale."""
    monkeypatch.setenv("ACKTRAIL_ORDERED_GROUPS", "*")
    scene = Scene.at(running.config(), tmp_path)

    def rewound(partition: int) -> dict[str, str]:
        """What a plan says about the order of keys."""
        topics, strategies = [f"{TOPIC}:{partition}"], {"to-earliest": None}
        notices = scene.plan(groups=[GROUP], topics=topics, strategies=strategies)["notices"]
        return {each["rule"]: each["severity"] for each in notices if each["rule"].startswith(("order", "expan"))}

    def look() -> None:
        """A look, and the audit of what it shows."""
        with ShareGroupAdmin(scene.kafka) as admin:
            take_look(admin, scene.tables, topics=[TOPIC])
        audit(scene.tables, settle="0s")

    def command(*words: str) -> Done:
        return run(capsys, *words, *scene.arguments())

    def apply(words: Sequence[str]) -> set[int]:
        """Where the records are that come then."""
        assert command(*words).code == 0
        plan_id = run(capsys, "change", "list", "--json", *scene.arguments()[2:]).rows[0]["plan_id"]
        assert command("change", "apply", plan_id, "--execute").code == 0
        found = {each.partition for each in scene.deliveries(GROUP, TOPIC, 2 * RECORDS)}
        scene.wait_empty(GROUP)
        return found

    scene.make_topic(TOPIC, 2, RECORDS)
    scene.settle(GROUP, TOPIC, 2 * RECORDS, lambda _: AcknowledgeType.ACCEPT)
    assert rewound(0) == {"expansions_unknown": "warning"}
    look()
    assert rewound(0) == {}
    scene.workload.add_partitions(TOPIC, 4)
    for partition in (2, 3):
        scene.workload.produce(TOPIC, RECORDS, partition)
    scene.settle(GROUP, TOPIC, 2 * RECORDS, lambda _: AcknowledgeType.ACCEPT)
    unsure = {"order_uncertain": "refusal", "expansion_not_single": "warning"}
    assert rewound(0) == unsure, "no audit saw the expansion"
    look()
    assert rewound(0) == {**unsure, "order_broken": "refusal"}
    scene.workload.add_partitions(TOPIC, 5)
    assert rewound(2) == unsure, "no audit saw partition 4"
    look()

    plan = ("change", "plan", "reset", "--group", GROUP, "--to-earliest", "--topic")
    refused = command(*plan, f"{TOPIC}:0")
    assert refused.code == 2
    assert "partition 0 starts before the expansion from 2 to 4, but partition 2 keeps records" in refused.stdout
    unknown = command(*plan, f"{TOPIC}:0", "--allow", "order_broke")
    assert "--allow 'order_broke': the known rules are order_broken, order_needs_gate" in unknown.stderr
    whole = command(*plan, f"{TOPIC}:0,1,2,3")
    first, second = (shlex.split(part)[1:] for part in whole.stdout.split("`")[1:4:2])
    assert apply(first) == {0, 1}
    assert apply(second) == {2, 3}

    overtaken = scene.plan(groups=[GROUP], topics=[f"{TOPIC}:2"], strategies={"to-offset": "3"})
    scene.store(overtaken)
    scene.reset(groups=[GROUP], topics=[f"{TOPIC}:0"], strategies={"to-earliest": None}, allow=ALLOWED)
    with pytest.raises(PlanStale, match="order_"):
        scene.execute(overtaken)
