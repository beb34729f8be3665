"""Observations of real clusters: one that this principal may see in part, where what it may not see is judged by
nothing but that; one whose groups never stand still."""

from __future__ import annotations

import datetime as dt
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from uuid import uuid4

import pytest
from confluent_kafka import AcknowledgeType
from drivers.command_line import run
from servers.guarded_broker import GuardedBroker
from servers.real_broker import releases
from servers.workload import Workload, until

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.tables.delta.store import Tables
from acktrail_connect.export.export_run import observe
from acktrail_connect.sinks.delta_sink import DeltaSink
from acktrail_connect.sources.observation import observe as ask
from acktrail_jobs.api import reconcile


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """`watcher` may read the state topic and describe group ``seen`` and topic ``open``; groups ``seen`` and ``unseen``
    have worked on topic ``open``, and ``seen`` on topic ``closed`` too. `tables`: an observation by `watcher`."""

    broker: GuardedBroker
    watcher: KafkaConfig
    tables: TablesConfig


@pytest.fixture(scope="module", params=releases("4.3.1", "4.4.0"))
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    users = {"admin": "admin-secret", "watcher": "watcher-secret"}
    with GuardedBroker(users, request.param) as broker:
        workload = Workload(broker.config())
        for topic in ("open", "closed"):
            workload.create_topic(topic)
            workload.produce(topic, 2)
        for group, topic in (("seen", "open"), ("unseen", "open"), ("seen", "closed")):
            workload.acknowledge(group, topic, 1)
        for operation, kind, name in (
            ("READ", "TOPIC", "__share_group_state"),
            ("DESCRIBE", "TOPIC", "open"),
            ("DESCRIBE", "GROUP", "seen"),
            ("DESCRIBE", "GROUP", "never-there"),
        ):
            workload.allow("watcher", operation, kind, name)
        watcher = broker.config("watcher")
        tables = TablesConfig(uri=str(tmp_path_factory.mktemp("rights") / "tables"))
        with ShareGroupAdmin(watcher) as admin:
            until(lambda: admin.describe_groups(["never-there"])[0].error_code == 69, what="the last right")
        observe(watcher, tables, run_id="r1")
        yield Guarded(broker=broker, watcher=watcher, tables=tables)


def test_what_may_not_be_seen_is_not_authorized(guarded: Guarded) -> None:
    """A group and a topic that may not be described are no orphans and not unknown: verdict, reason and
    finding name the right, from the first observation on; what may be seen is judged as ever."""
    reconcile(guarded.tables, "r1", "in-process")

    stored = Tables(guarded.tables)
    with ShareGroupAdmin(guarded.broker.config()) as admin:
        ids = {topic.topic_id: topic.name for topic in admin.topics(["open", "closed"])}
    own = stored.read("reconciliations").to_pylist()
    assert {(row["group_id"], ids[row["topic_id"]]): row["verdict"] for row in own} == {
        ("seen", "open"): "match",
        ("unseen", "open"): "not_authorized",
        ("seen", "closed"): "not_authorized",
    }
    reasons = " ".join(row["reason"] for row in own if row["verdict"] == "not_authorized")
    assert "DESCRIBE on the group" in reasons
    assert "DESCRIBE on its topic is missing" in reasons
    found = stored.read("findings").to_pylist()
    assert sorted(row["group_id"] for row in found if row["rule"] == "not_authorized") == ["seen", "unseen"]
    assert not [row for row in found if row["rule"] in ("orphan_state", "unknown", "missing_state")]


def test_a_group_that_is_gone_is_no_group_that_is_hidden(guarded: Guarded) -> None:
    """Asked by name, a group that may not be described is a row with Kafka's error 30; one that is not there (69) has
    no row, nor has a topic id that is gone; a hidden topic is listed by its id."""
    with ShareGroupAdmin(guarded.broker.config()) as owner:
        (closed,) = owner.topics(["closed"])
    assert closed.topic_id is not None
    with ShareGroupAdmin(guarded.watcher) as admin:
        batch = ask(
            admin,
            run_id="r",
            phase="before",
            groups=["unseen", "never-there"],
            topic_ids=[closed.topic_id, "AAAAAAAAAAAAAAAAAAAAAQ"],
        )
    groups = {row["group_id"]: row["error_code"] for row in batch.rows["group_observations"].to_pylist()}
    assert groups == {"seen": 0, "unseen": 30}
    topics = {row["topic_id"]: row["status"] for row in batch.rows["topics"].to_pylist()}
    assert topics[closed.topic_id] == "not_authorized"
    assert "AAAAAAAAAAAAAAAAAAAAAQ" not in topics


def _doctor(
    capsys: pytest.CaptureFixture[str], guarded: Guarded, user: str, folder: Path, tables: str
) -> tuple[int, dict[str, str]]:
    """Exit code, and the detail of each check that says ``missing``, but for the ACLs that it suggests."""
    client = folder / "client.properties"
    client.write_text("\n".join(f"{k}={v}" for k, v in guarded.broker.client_properties(user).items()))
    connection = ("--bootstrap-server", guarded.broker.bootstrap_servers, "--client-config", str(client))
    done = run(capsys, "doctor", "--json", *connection, "--tables", tables)
    found = {check["what"]: check["detail"] for check in done.rows if check["status"] == "missing"}
    return done.code, {what: detail for what, detail in found.items() if not what.startswith("ACL ")}


def test_doctor_names_tables_of_another_cluster_and_unreadable_ones(
    guarded: Guarded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both are missing, with exit code 3; an unreadable table is not "nothing exported yet", and it is named."""
    owner = guarded.broker
    observe(owner.config(), own := TablesConfig(uri=str(tmp_path / "own")))
    assert _doctor(capsys, guarded, "admin", tmp_path, own.uri) == (0, {})
    Tables(TablesConfig(uri=str(tmp_path / "other"))).create("state_records", properties={"cluster_id": "another"})
    code, missing = _doctor(capsys, guarded, "admin", tmp_path, str(tmp_path / "other"))
    assert (code, set(missing)) == (3, {"tables' cluster"})
    assert "belong to cluster another" in missing["tables' cluster"]
    for log in (tmp_path / "own" / "state_records" / "_delta_log").iterdir():
        log.write_text("{")
    code, missing = _doctor(capsys, guarded, "admin", tmp_path, own.uri)
    assert (code, set(missing)) == (3, {"table state_records"})


def test_doctor_names_each_missing_right(guarded: Guarded, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """DESCRIBE on a group and a topic that only state records name, DESCRIBE_CONFIGS; exit code 3."""
    code, missing = _doctor(capsys, guarded, "watcher", tmp_path, guarded.tables.uri)

    assert code == 3
    rights = {"DESCRIBE on groups", "DESCRIBE on topics", "DESCRIBE_CONFIGS on groups"}
    assert set(missing) == {*rights, "dead-letter topics"}, "their topics stand in the groups' configurations"
    assert "'unseen'" in missing["DESCRIBE on groups"]
    with ShareGroupAdmin(guarded.broker.config()) as owner:
        assert str(owner.topics(["closed"])[0].topic_id) in missing["DESCRIBE on topics"]


OBSERVATIONS = 4


class Movement:
    """One producer and one share consumer that accept, release and reject until they are stopped."""

    def __init__(self, workload: Workload, name: str) -> None:
        self._workload, self._name = workload, name
        self._told = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._produce, self._consume)]
        self.acknowledged = 0

    def __enter__(self) -> Self:
        self._workload.create_topic(self._name)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._told.set()
        for thread in self._threads:
            thread.join(240)

    def _produce(self) -> None:
        while not self._told.wait(0.01):
            self._workload.produce(self._name, 7)

    def _consume(self) -> None:
        answers = (AcknowledgeType.ACCEPT, AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)
        explicit = {"share.acknowledgement.mode": "explicit"}
        with self._workload.share_consumer(self._name, self._name, **explicit) as consumer:
            while not self._told.is_set():
                for number, message in enumerate(consumer.poll(0.2) or ()):
                    consumer.acknowledge(message, answers[number % len(answers)])
                    if number % 5 == 0:
                        consumer.commit_sync()
                    self.acknowledged += 1


def test_a_run_from_the_future_is_named_and_not_kept(
    kafka: KafkaConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One export from a machine whose clock is two hours ahead, then one from here: the second one is the newest, and
    complete; the first one is named until its time has come."""
    name, tables = f"clocks-{uuid4().hex[:8]}", TablesConfig(uri=str(tmp_path / "tables"))

    def ahead() -> dt.datetime:
        return dt.datetime.now(dt.UTC) + dt.timedelta(hours=2)

    with Movement(Workload(kafka), name) as movement:
        until(lambda: movement.acknowledged > 5, what="an acknowledgement")
        with monkeypatch.context() as patch:
            patch.setattr("acktrail_connect.sources.observation._now", ahead)
            patch.setitem(DeltaSink.__init__.__kwdefaults__, "clock", ahead)
            observe(kafka, tables, run_id="ahead")
        reconcile(tables, None, "in-process", with_history=True)
        assert "export    unknown" in run(capsys, "status", "--tables", tables.uri).stdout
        reached = movement.acknowledged
        until(lambda: movement.acknowledged > reached, what="an acknowledgement")
        observe(kafka, tables, run_id="normal")
        reconcile(tables, None, "in-process", with_history=True)
    (own,) = [row for row in Tables(tables).read("queue_statuses").to_pylist() if row["group_id"] == name]
    assert (own["run_id"], own["verdict"], own["completeness"]) == ("normal", "match", "complete")
    status = run(capsys, "status", "--tables", tables.uri)
    assert status.code == 6
    assert re.search(r"export    \d+ s ago", status.stdout)
    assert "run ahead wrote at" in status.stdout
    doctor = run(capsys, "doctor", "--bootstrap-server", kafka.bootstrap_servers, "--tables", tables.uri)
    assert "in the future: run ahead at" in doctor.stdout


@pytest.mark.full
@pytest.mark.slow
def test_a_cluster_at_work_raises_no_false_alarm(kafka: KafkaConfig, tmp_path: Path) -> None:
    """While records are produced, acknowledged and archived: every observation matches, and some are reported to have
    moved."""
    name, tables = f"moving-{uuid4().hex[:8]}", TablesConfig(uri=str(tmp_path / "tables"))
    with Movement(Workload(kafka), name) as movement:
        for number in range(OBSERVATIONS):
            reached = movement.acknowledged
            until(lambda reached=reached: movement.acknowledged > reached, what="an acknowledgement")
            observe(kafka, tables, run_id=f"r{number}")
    for number in range(OBSERVATIONS):
        reconcile(tables, f"r{number}", "in-process")
    rows = [row for row in Tables(tables).read("reconciliations").to_pylist() if row["group_id"] == name]
    assert len(rows) == OBSERVATIONS
    assert {row["verdict"] for row in rows} == {"match"}, [(row["verdict"], row["reason"]) for row in rows]
    assert any(row["moved"] for row in rows)
