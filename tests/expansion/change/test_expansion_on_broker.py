"""Expansions of topics of a real broker, by command and by function."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from change.world import World
from confluent_kafka import AcknowledgeType
from drivers import command_line
from expansion.support.committed import commit
from servers.kafka_proxy import kafka_proxy
from servers.workload import until

from acktrail.change.api import open_journal
from acktrail.change.audit.integrity import checked_audit
from acktrail.change.audit.journal import read_audit
from acktrail.config import TablesConfig
from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail.errors import InputError, OutcomeUnknown, PlanStale, RetryableError, UnknownName
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.tables.cluster_check import create_for
from acktrail.tables.delta.store import Tables
from acktrail.times import instant_text
from acktrail_expansion.change import apply_expansion as change
from acktrail_expansion.change.collect_expansion import make_plan
from acktrail_expansion.change.expansion_plan import ExpansionPlan
from acktrail_expansion.change.partition_creation import create_partitions
from acktrail_expansion.looks.partition_listing import list_partitions, listed_by_brokers

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

CREATE_PARTITIONS = 37
EDITS = [
    ('"new_count": 2', '"new_count": 9', "[edited_plan]"),
    ('"new_count": 2', '"new_count": "2"', "new_count"),
    ('"version": 1', '"version": 2', "version"),
    ("acktrail-expansion-plan", "acktrail-reset-plan", "plan of an expansion"),
]
"""Of the file of a plan, and what is said of them."""
DONE = [("before_call", None), ("after_call", "done"), ("verified", "done")]


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

    def apply(self, plan: ExpansionPlan, admin: ShareGroupAdmin | None = None) -> change.Settling:
        return change.apply_expansion(admin or self.admin, open_journal(self.tables, plan, actor="ann"), plan)

    def events(self, plan: ExpansionPlan) -> list[tuple[str, str | None]]:
        return [(row.event, row.outcome) for row in read_audit(self.tables, {"plan_id": plan.plan_id})]

    def listed(self, topic: str) -> int:
        """Its partitions; 0: it is not there."""
        return len(list_partitions(client_of(self.admin), [topic])[0].leaders)

    def run(self, *words: str | Path) -> command_line.Done:
        """``acktrail expand`` with brokers and, but for a plan, tables."""
        own = () if "plan" in words or "--tables" in words else ("--tables", self.tables.uri)
        where = () if words[0] in {"approve", "reject"} else ("--bootstrap-server", self.kafka.bootstrap_servers)
        return command_line.run(self.capsys, "expand", *words, *where, *own)


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
    monkeypatch.setattr(change, "_SPREAD_S", 0.5)
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

    assert stage.run("plan", topic, "--partitions", "3", "--out", plan).code == 0
    groups = {group.pop("group_id"): group for group in json.loads(plan.read_text())["groups"]}
    named = ("begins_at", "open_records", "most_open", "unknown", "is_ordered")
    assert [groups["found-share"][name] for name in named] == ["latest", 1, [[0, 1]], 0, False]
    assert [groups["ordered-x"][name] for name in named] == [None, 5, [[0, 5]], 0, True]

    def complaint(topic: str, count: int, code: int = 2) -> str:
        return stage.run("plan", topic, "--partitions", str(count)).complaint(code)

    assert "did you mean 'found-orders'" in complaint("found-order", 4)
    assert "[not_more_partitions]" in complaint(topic, 1)
    assert "[too_many_partitions]" in complaint(topic, 20_000)
    assert "[internal_topic]" in complaint("__consumer_offsets", 60)
    monkeypatch.setenv("ACKTRAIL_KEY_MAPPINGS", "*=murmur3")
    assert "ACKTRAIL_KEY_MAPPINGS" in complaint(topic, 4, code=3)


def test_an_expansion_by_command(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run, a rejected or edited plan, a missing approval and the tables of another cluster change nothing. Then a
    signal ends the wait: exit code 130, and a sentence how to go on; what the wait assumes of producers was said before
    it. Applied again, the plan asks for nothing, and waits for the rest of the time alone. The audit is whole."""
    monkeypatch.setenv("ACKTRAIL_RESET_APPROVAL", "required")
    monkeypatch.setenv("ACKTRAIL_SETTLE", "5s")
    stage.workload.create_topic("commanded", 1)
    good, bad, foreign = (stage.folder / name for name in ("good.json", "bad.json", "foreign"))
    for file in (good, bad):
        assert stage.run("plan", "commanded", "--partitions", "2", "--out", file).code == 0
    create_for(Tables(TablesConfig(uri=str(foreign))), "reset_audit", "another-cluster")
    for words in (("check", "commanded"), ("apply", good, "--execute"), ("approve", good)):
        assert "belong to cluster another-cluster" in stage.run(*words, "--tables", foreign).complaint(3)
    assert [file.name for file in foreign.iterdir()] == ["reset_audit"]
    assert stage.run("reject", bad, "--reason", "not now", "--json").rows[0]["standing"] == "REJECTED"
    assert "[plan_rejected]" in stage.run("apply", bad, "--execute").complaint(2)
    whole = bad.read_text()
    for old, new, why in EDITS:
        bad.write_text(whole.replace(old, new))
        assert why in stage.run("approve", bad).complaint(2)
    assert "[approval_missing]" in stage.run("apply", good, "--execute").complaint(2)
    assert "approved by" in stage.run("approve", good).stdout
    assert "would be expanded" in stage.run("apply", good).stdout
    assert stage.listed("commanded") == 1

    with monkeypatch.context() as patch:
        slept, own = "acktrail_expansion.cli.expand_commands.time.sleep", threading.get_ident()
        patch.setattr(slept, lambda _seconds: signal.pthread_kill(own, signal.SIGTERM))
        done = stage.run("apply", good, "--execute")
    assert (done.code, done.stdout, stage.listed("commanded")) == (130, "", 2)
    assumed, left = done.stderr.splitlines()
    assert ("delivery.timeout.ms" in assumed, f"acktrail expand apply {good} --execute" in left) == (True, True)
    (second,) = stage.run("apply", good, "--execute", "--json").rows
    assert (second["is_settled"], instant_text(second["settles_at_ms"]) in assumed) == (True, True)

    found = read_audit(stage.tables)
    assert [(row.event, row.outcome) for row in found[2:]] == DONE
    assert (json.loads(found[2].detail)["to"], checked_audit(stage.tables).rows) == (2, 5)


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
    with pytest.raises(PlanStale, match="the plan is for cluster"):
        stage.apply(replace(plan, cluster_id="other"))
    assert (stage.listed("again"), read_audit(stage.tables)) == (2, [])


def test_an_answer_that_is_lost_is_looked_for(stage: Stage) -> None:
    """Where the broker did it and its answer is swallowed, the lists of partitions show it. Where the request hangs in
    the network the outcome is unknown; once it arrived, the plan, applied again, sends nothing, and continues."""
    swallowed, late = stage.planned("swallowed"), stage.planned("late")
    unknown = [("before_call", None), ("after_call", "unknown")]
    with kafka_proxy(stage.kafka.bootstrap_servers) as proxy, ShareGroupAdmin(proxy.config()) as through:
        proxy.silenced.add(CREATE_PARTITIONS)
        assert stage.apply(swallowed, through).is_settled
        proxy.held.add(CREATE_PARTITIONS)
        with pytest.raises(OutcomeUnknown, match="not known whether they came"):
            stage.apply(late, through)
        assert (stage.listed("swallowed"), stage.listed("late")) == (4, 2)
        proxy.silenced.clear()
        proxy.release()
    until(lambda: stage.listed("late") == 4)
    assert stage.apply(late).is_settled
    assert stage.events(swallowed) == [*unknown, ("verified", "done")]
    assert stage.events(late) == [*unknown, ("verified", "unknown"), ("verified", "done")]


def test_a_broker_that_does_not_list_the_partitions_keeps_fences_open(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R003-09: a second broker that lags is made up: producers may ask it. That is said, nothing settles, and the plan,
    applied again, sends nothing and settles once all brokers list the partitions."""
    plan = stage.planned("lagging")
    lagging = {"lagging": (plan.topic_id, 2)}
    with monkeypatch.context() as patch:
        for module in ("partition_listing", "partition_observation"):
            lists = f"acktrail_expansion.looks.{module}.listed_by_brokers"
            patch.setattr(lists, lambda *asked: [*listed_by_brokers(*asked), lagging])
        for _ in range(2):
            with pytest.raises(RetryableError, match="not every broker lists them"):
                stage.apply(plan)
    assert stage.events(plan) == DONE[:2]
    assert stage.apply(plan).is_settled
    assert stage.events(plan) == DONE


def test_somebody_else_is_quicker(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic gets the partitions between the look and the request: nothing is sent, and it is not noted as asked
    for, so that nobody takes it for one step."""
    plan = stage.planned("raced")

    def look_slowly(*_: Any, **__: Any) -> None:
        stage.workload.add_partitions("raced", 4)
        monkeypatch.undo()

    monkeypatch.setattr(change, "take_look", look_slowly)
    stage.apply(plan)
    assert stage.events(plan) == [("verified", "done")]
