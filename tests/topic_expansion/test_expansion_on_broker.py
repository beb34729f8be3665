"""Expansions of topics of a real broker, by command and by function, and the looks that show them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from broker.workload import Workload, until
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from drivers import command_line
from servers.kafka_proxy import kafka_proxy

from acktrail.broker.admin import ShareGroupAdmin, client_of
from acktrail.broker.client.librdkafka import to_librdkafka
from acktrail.broker.ledger.ledger_connector import PartitionLedgerSource, PartitionLedgerTask
from acktrail.broker.ledger.partition_creation import create_partitions
from acktrail.broker.ledger.partition_listing import list_partitions
from acktrail.broker.topic_configs import is_compacted
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.connect.contract import SinkTaskContext, SourceTaskContext
from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail.errors import ChangeRefused, NotEverywhere, OutcomeUnknown, PlanStale, UnknownName
from acktrail.group_changes.audit.integrity import checked_audit
from acktrail.group_changes.audit.journal import read_audit
from acktrail.group_changes.planning.plan_file import plan_json, write_text
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.delta_connector import DeltaSinkConnector
from acktrail.topic_expansion.apply_expansion import (
    ExpansionResult,
    apply_expansion,
    finish_expansion,
    open_expansion_journal,
)
from acktrail.topic_expansion.collect_expansion import expansion_request, make_plan
from acktrail.topic_expansion.expansion_facts import FirstPosition
from acktrail.topic_expansion.expansion_plan import ExpansionPlan
from acktrail.topic_expansion.ledger_reading import stored_expansion
from acktrail.topic_expansion.stored_look import take_look

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

CREATE_PARTITIONS = 37


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedBroker]:
    """A broker of its own: looks see every group of a cluster."""
    with EmbeddedBroker("4.4.0") as broker:
        yield broker


@pytest.fixture(scope="module")
def workload(running: EmbeddedBroker) -> Workload:
    return Workload(running.config())


@pytest.fixture
def admin(running: EmbeddedBroker) -> Iterator[ShareGroupAdmin]:
    with ShareGroupAdmin(running.config()) as asked:
        yield asked


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Producers of these tests know a count at once."""
    monkeypatch.setenv("ACKTRAIL_SETTLE", "0s")
    monkeypatch.setenv("ACKTRAIL_KEY_MAPPINGS", "*=murmur2")
    monkeypatch.setenv("ACKTRAIL_ORDERED_GROUPS", "ordered-*")


def planned(admin: ShareGroupAdmin, topic: str, partitions: int, tables: TablesConfig | None = None) -> ExpansionPlan:
    return make_plan(admin, expansion_request(topic, partitions), tables=tables, created_by="ann")


def applied(admin: ShareGroupAdmin, tables: TablesConfig, plan: ExpansionPlan) -> ExpansionResult:
    return apply_expansion(admin, open_expansion_journal(tables, plan, actor="ann"), plan)


def events(tables: TablesConfig, plan: ExpansionPlan) -> list[tuple[str, str | None]]:
    return [(row.event, row.outcome) for row in read_audit(tables, {"plan_id": plan.plan_id})]


def looks(tables: TablesConfig) -> int:
    return len(Tables(tables).read("partition_observations", columns=["run_id"])["run_id"].unique())


def commit(kafka: KafkaConfig, group: str, topic: str, *offsets: int) -> None:
    """Commit positions as a classic group does."""
    consumer = Consumer({**to_librdkafka(kafka), "group.id": group, "enable.auto.commit": False})
    places = [TopicPartition(topic, number, offset) for number, offset in enumerate(offsets)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def test_a_look_has_what_the_brokers_answer(
    running: EmbeddedBroker,
    workload: Workload,
    admin: ShareGroupAdmin,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Counts, ends and positions of a share, a classic and a consumer group are those of direct questions; a share
    group is read twice; pages of one partition give the same list; the look is stored once."""
    workload.create_topic("looked", 3)
    workload.produce("looked", 7, partition=1)
    workload.acknowledge("look-share", "looked", 4)
    commit(running.config(), "look-classic", "looked", 0, 5)
    member = Consumer({**to_librdkafka(running.config()), "group.id": "look-consumer", "group.protocol": "consumer"})
    member.subscribe(["looked"])
    until(lambda: member.poll(0.2) is None and len(member.assignment()) == 3, what="the assignment")
    member.commit(offsets=[TopicPartition("looked", 1, 3)], asynchronous=False)
    member.close()
    where = ("--bootstrap-server", running.bootstrap_servers, "--tables", str(tmp_path))

    done = command_line.run(capsys, "expand", "observe", "--topic", "looked", "--json", *where)

    (look,) = done.rows
    assert (done.code, look["topics"], look["partitions"], look["topics_straddling"]) == (0, 1, 3, 0)
    tables = TablesConfig(uri=str(tmp_path))
    rows = Tables(tables).read("partition_observations").to_pylist()
    asked = {each.partition: each for each in admin.list_offsets(admin_places("looked", 3))}
    assert sorted((row["partition"], row["log_end_offset"], row["last_stable_offset"]) for row in rows) == [
        (number, asked[number].high_watermark, asked[number].last_stable_offset) for number in range(3)
    ]
    assert {row["leader_epoch"] for row in rows} == {each.leader_epoch for each in listed(admin, "looked").partitions}
    assert {(row["consistency"], row["partition_count"], row["error_code"]) for row in rows} == {("consistent", 3, 0)}
    (newest,) = [row for row in rows if row["partition"] == 1]
    assert newest["max_timestamp_ms"] > 0
    assert newest["max_timestamp_offset"] in range(7)

    positions = Tables(tables).read("group_positions").to_pylist()
    share = [row for row in positions if (row["group_id"], row["partition"]) == ("look-share", 1)]
    (direct,) = admin.describe_offsets("look-share", {"looked": [1]})
    assert [row["position"] for row in share] == [direct.start_offset] * 2 == [4, 4]
    assert len({row["observed_at"] for row in share}) == 2
    others = {(row["group_id"], row["group_type"], row["partition"], row["position"]) for row in positions}
    assert ("look-classic", "classic", 1, 5) in others
    assert ("look-consumer", "consumer", 1, 3) in others
    workload.create_topic("looked-too", 2)
    both = ["looked", "looked-too"]
    for page in (1, 2, 3, 4):
        assert list_partitions(client_of(admin), both, page=page) == list_partitions(client_of(admin), both), page
    assert list_partitions(client_of(admin), None, page=7) == list_partitions(client_of(admin), None)
    take_look(admin, tables, topics=["looked"], run_id=look["run_id"])
    assert Tables(tables).read("partition_observations").num_rows == 3


def test_the_connector_looks_on_a_schedule(running: EmbeddedBroker, workload: Workload, tmp_path: Path) -> None:
    """It looks at once, not again before its time, then under another run id; what the sink stores is each look once,
    named topics alone, and a topic that is gone as a row with its error."""
    workload.create_topic("scheduled", 2)
    given = {
        "kafka.bootstrap.servers": running.bootstrap_servers,
        "topics": "scheduled,never-there",
        "interval.ms": "1000",
    }
    connector = PartitionLedgerSource(PartitionLedgerSource.config_def.parse(given))
    connector.start()
    now = [100.0]
    task = PartitionLedgerTask(
        running.config(), interval_s=1.0, topics=["scheduled", "never-there"], clock=lambda: now[0]
    )
    task.start(SourceTaskContext())
    sinks = DeltaSinkConnector(DeltaSinkConnector.config_def.parse({"tables": str(tmp_path)}))
    found = []
    for at in (100.0, 100.5, 101.5):
        now[0] = at
        batches = task.poll(0.01)
        found.append(len(batches))
        for batch in [*batches, *batches]:
            context = SinkTaskContext(connector="ledger", run_id="worker", cluster_id=connector.cluster_id)
            sink = sinks.task(context)
            sink.start()
            sink.put(batch)
            sink.flush()
            sink.stop()
    task.stop()
    connector.stop()

    assert found == [1, 0, 1]
    rows = Tables(TablesConfig(uri=str(tmp_path))).read("partition_observations").to_pylist()
    places = sorted((row["topic"], -1 if row["partition"] is None else row["partition"]) for row in rows)
    assert places == sorted([("never-there", -1), ("scheduled", 0), ("scheduled", 1)] * 2)
    assert {row["error_code"] for row in rows if row["topic"] == "never-there"} == {3}
    assert len({row["run_id"] for row in rows} - {"worker"}) == 2


def admin_places(topic: str, count: int) -> list[Any]:
    from acktrail.broker.descriptions import TopicPartition as Place

    return [Place(topic=topic, partition=number) for number in range(count)]


def listed(admin: ShareGroupAdmin, topic: str) -> Any:
    (found,) = list_partitions(client_of(admin), [topic])
    return found


@pytest.mark.parametrize(("topic", "new_count", "moving"), [("half", 4, (1, 2)), ("odd", 3, (2, 3))])
def test_an_expansion_by_command(
    running: EmbeddedBroker,
    workload: Workload,
    admin: ShareGroupAdmin,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    topic: str,
    new_count: int,
    moving: tuple[int, int],
) -> None:
    """The plan has what is open in each group; a dry run changes nothing; applied, the topic has the partitions and the
    fences hold the ends of the logs; applied again, nothing is done; the audit is whole and names the request."""
    workload.create_topic(topic, 2)
    workload.produce(topic, 9, partition=0)
    commit(running.config(), f"ordered-{topic}", topic, 4, 0)
    broker = ("--bootstrap-server", running.bootstrap_servers)
    where = (*broker, "--tables", str(tmp_path / "tables"))
    file = tmp_path / "plan.json"

    done = command_line.run(capsys, "expand", "plan", topic, "--partitions", str(new_count), "--out", file, *where)
    assert done.code == 0, done.stderr
    plan = json.loads(file.read_text())
    assert (plan["keys"]["moving"], plan["keys"]["keys"]) == moving
    (group,) = [each for each in plan["groups"] if each["group_id"] == f"ordered-{topic}"]
    assert (group["open_records"], group["unknown"], group["is_ordered"]) == (5, 0, True)
    assert [(each["partition"], each["position"], each["log_end"]) for each in group["partitions"]] == [(0, 4, 9)]
    assert "open_before_expansion" in done.stdout

    done = command_line.run(capsys, "expand", "apply", file, *where)
    assert (done.code, "would be expanded" in done.stdout) == (0, True)
    assert listed(admin, topic).partition_count == 2

    done = command_line.run(capsys, "expand", "apply", file, "--execute", "--json", *where)
    (result,) = done.rows
    assert (done.code, result["was_there"], result["is_settled"]) == (0, False, True), result
    assert [(each["low"], each["high"], each["width"]) for each in result["fences"]] == [(9, 9, 0), (0, 0, 0)]
    left = {each["group_id"]: each["records"] for each in result["groups"]}
    assert left[f"ordered-{topic}"] == 5
    assert listed(admin, topic).partition_count == new_count

    tables = TablesConfig(uri=str(tmp_path / "tables"))
    before = looks(tables)
    done = command_line.run(capsys, "expand", "apply", file, "--execute", *where)
    assert (done.code, "it has been expanded" in done.stdout) == (0, True)
    assert looks(tables) == before
    found = read_audit(tables)
    assert [(row.kind, row.event, row.outcome) for row in found] == [
        ("expand_topic", "before_call", None),
        ("expand_topic", "after_call", "done"),
        ("expand_topic", "verified", "done"),
    ]
    assert json.loads(found[0].detail)["to"] == new_count
    assert checked_audit(tables).rows == 3


def test_what_a_plan_finds_out(
    running: EmbeddedBroker, workload: Workload, admin: ShareGroupAdmin, tmp_path: Path
) -> None:
    """A compacted topic; where a share group begins, by its configuration; the pace of a group by two looks, and with
    it when it would be past what is open."""
    topic, tables = "found-out", TablesConfig(uri=str(tmp_path))
    new = NewTopic(topic, 1, 1, config={"cleanup.policy": "compact,delete"})
    for future in workload.admin.create_topics([new]).values():
        future.result()
    until(lambda: topic in workload.admin.list_topics(timeout=60).topics)
    producer = Producer(to_librdkafka(running.config()))
    for number in range(90):
        producer.produce(topic, b"value", key=str(number).encode())  # without a key it would be refused
    assert producer.flush(30) == 0
    workload.acknowledge("found-share", topic, 2)
    workload.configure_group("found-share", share_auto_offset_reset="latest")
    commit(running.config(), "found-classic", topic, 10)
    take_look(admin, tables, topics=[topic])
    commit(running.config(), "found-classic", topic, 60)
    take_look(admin, tables, topics=[topic])

    plan = planned(admin, topic, 2, tables)

    assert "old_values_stay" in {notice.rule for notice in plan.notices}
    groups = {group.group_id: group for group in plan.groups if group.group_id.startswith("found-")}
    assert {name: group.begins_at for name, group in groups.items()} == {
        "found-share": FirstPosition.LATEST,
        "found-classic": FirstPosition.IN_CLIENTS,
    }
    assert (groups["found-share"].open_records, groups["found-classic"].open_records) == (88, 30)
    pace = groups["found-classic"].records_per_s
    assert pace is not None
    assert 0 < pace <= 50 / 0.001
    assert groups["found-share"].records_per_s is None
    assert plan.safe_after_s is None
    assert is_compacted(client_of(admin), "no-such-topic") is None


def test_what_is_refused_by_command(
    running: EmbeddedBroker, workload: Workload, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A topic that is not there (with the nearest name), an internal one, a count that is no more, one beyond the
    most: one line each, and no plan of them is carried out."""
    workload.create_topic("settled-orders", 2)
    workload.acknowledge("internal-maker", "settled-orders", 0)
    broker = ("--bootstrap-server", running.bootstrap_servers)
    done = command_line.run(capsys, "expand", "plan", "settled-order", "--partitions", "4", *broker)
    assert "did you mean 'settled-orders'" in done.complaint(2)
    file = tmp_path / "plan.json"
    for topic, count, rule in (
        ("settled-orders", 2, "not_more_partitions"),
        ("settled-orders", 1, "not_more_partitions"),
        ("settled-orders", 20_000, "too_many_partitions"),
        ("__consumer_offsets", 60, "internal_topic"),
    ):
        done = command_line.run(capsys, "expand", "plan", topic, "--partitions", str(count), "--out", file, *broker)
        assert (done.code, rule in done.stderr) == (2, True), done
        done = command_line.run(
            capsys, "expand", "apply", file, "--execute", *broker, "--tables", str(tmp_path / "tables")
        )
        assert rule in done.complaint(2)
    done = command_line.run(capsys, "expand", "observe", "--topic", "settled-order", *broker, "--tables", str(tmp_path))
    assert "did you mean" in done.complaint(2)


def test_a_plan_of_another_topic_or_count_is_stale(workload: Workload, admin: ShareGroupAdmin, tmp_path: Path) -> None:
    """Made again under its name, expanded by somebody else to another count, or gone: nothing is sent, and the reason
    is named."""
    tables = TablesConfig(uri=str(tmp_path))
    workload.create_topic("again", 2)
    plan = planned(admin, "again", 4)
    assert create_partitions(client_of(admin), "again", 3).error is None
    until(lambda: listed(admin, "again").partition_count == 3)
    with pytest.raises(PlanStale, match="had 2 partitions and has 3"):
        applied(admin, tables, plan)
    workload.delete_topic("again")
    until(lambda: listed(admin, "again").error_code != 0)
    with pytest.raises(UnknownName):
        applied(admin, tables, plan)
    workload.create_topic("again", 2)
    with pytest.raises(PlanStale, match="deleted and created again"):
        applied(admin, tables, plan)
    with pytest.raises(PlanStale, match="the plan is for cluster"):
        applied(admin, tables, replace(plan, cluster_id="other"))
    assert listed(admin, "again").partition_count == 2
    assert read_audit(tables) == []


def test_brokers_refuse_before_anything_is_sent(workload: Workload, admin: ShareGroupAdmin, tmp_path: Path) -> None:
    """A plan that was in order when it was made, and that the controller refuses: `validate_only` finds out, and the
    audit has the refusal alone."""
    workload.create_topic("twice", 2)
    plan = planned(admin, "twice", 3)
    answer = create_partitions(client_of(admin), "twice", 2, validate_only=True)
    assert (answer.outcome.value, answer.error_code) == ("refused", 37)
    assert "INVALID_PARTITIONS" in str(answer.exception())
    assert create_partitions(client_of(admin), "nothing-here", 2, validate_only=True).error_code == 3
    assert listed(admin, "twice").partition_count == 2
    refused = create_partitions(client_of(admin), "twice", 1)
    assert (refused.outcome.value, listed(admin, "twice").partition_count) == ("refused", 2)
    assert applied(admin, TablesConfig(uri=str(tmp_path)), plan).is_settled is not None


def test_an_answer_that_is_lost_is_looked_for(
    running: EmbeddedBroker, workload: Workload, admin: ShareGroupAdmin, tmp_path: Path
) -> None:
    """The broker does it and its answer is swallowed: the lists of partitions show it, and the expansion continues."""
    tables = TablesConfig(uri=str(tmp_path))
    workload.create_topic("swallowed", 2)
    plan = planned(admin, "swallowed", 4)
    with kafka_proxy(running.bootstrap_servers) as proxy, ShareGroupAdmin(proxy.config()) as through:
        sent: list[bool] = []

        def silence_the_second(api_key: int) -> float | None:
            if api_key == CREATE_PARTITIONS:
                sent.append(True)
            return None if api_key == CREATE_PARTITIONS and len(sent) > 1 else 1.0

        proxy.share_of = silence_the_second  # type: ignore[method-assign]  # this proxy alone
        result = applied(through, tables, plan)

    assert (result.was_there, result.event_id is not None, len(sent)) == (False, True, 2)
    assert listed(admin, "swallowed").partition_count == 4
    assert events(tables, plan) == [("before_call", None), ("after_call", "unknown"), ("verified", "done")]


def test_a_request_that_is_late_is_an_unknown_outcome(
    running: EmbeddedBroker,
    workload: Workload,
    admin: ShareGroupAdmin,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The request hangs in the network: no broker lists the partitions, and the outcome is unknown. It arrives later:
    the plan, applied again, sees what is there, sends nothing, and continues."""
    monkeypatch.setattr("acktrail.topic_expansion.apply_expansion._SPREAD_S", 0.5)
    tables = TablesConfig(uri=str(tmp_path))
    workload.create_topic("late", 2)
    plan = planned(admin, "late", 4)
    with kafka_proxy(running.bootstrap_servers) as proxy, ShareGroupAdmin(proxy.config()) as through:
        monkeypatch.setattr(
            "acktrail.broker.ledger.partition_creation.create_partitions", holding_the_second(proxy.held)
        )
        with pytest.raises(OutcomeUnknown, match="not known whether they came"):
            applied(through, tables, plan)
        assert listed(admin, "late").partition_count == 2
        proxy.release()
    assert events(tables, plan) == [("before_call", None), ("after_call", "unknown"), ("verified", "unknown")]
    until(lambda: listed(admin, "late").partition_count == 4)

    result = applied(admin, tables, plan)

    assert (result.was_there, result.event_id is not None) == (True, True)
    assert len(events(tables, plan)) == 3
    assert finish_expansion(admin, tables, plan).is_settled


def test_a_broker_that_does_not_list_the_partitions_keeps_fences_open(
    workload: Workload, admin: ShareGroupAdmin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R003-09: every second list is an old one, as of a broker that lags: producers may ask it. That is said, nothing
    settles, and the plan, applied again, sends nothing and settles once all brokers list the partitions."""
    monkeypatch.setattr("acktrail.topic_expansion.apply_expansion._SPREAD_S", 0.5)
    tables = TablesConfig(uri=str(tmp_path))
    workload.create_topic("lagging", 2)
    plan = planned(admin, "lagging", 4)
    with monkeypatch.context() as patch:
        brokers, lags = admin.broker_ids() * 2, cycle([False, True])

        def listing(client: Any, names: Any = None, *, node_id: int | None = None, **more: Any) -> Any:
            found = list_partitions(client, names, node_id=node_id, **more)
            is_old = node_id is not None and next(lags)
            return tuple(replace(each, partitions=each.partitions[:2]) for each in found) if is_old else found

        patch.setattr(admin, "broker_ids", lambda: brokers)
        for module in ("partition_listing", "partition_observation"):
            patch.setattr(f"acktrail.broker.ledger.{module}.list_partitions", listing)
        for apply in (lambda: applied(admin, tables, plan), lambda: finish_expansion(admin, tables, plan)):
            with pytest.raises(NotEverywhere, match="not every broker lists them") as raised:
                apply()
            assert raised.value.exit_code == 4
    found = stored_expansion(tables, plan)
    assert found is not None
    assert (found.status.value, found.settles_at_ms) == ("settling", None)

    result = applied(admin, tables, plan)

    assert (result.was_there, result.settles_at_ms is not None) == (True, True)
    assert finish_expansion(admin, tables, plan).is_settled
    assert events(tables, plan) == [("before_call", None), ("after_call", "done"), ("verified", "done")]


def holding_the_second(held: set[int]) -> Any:
    """`create_partitions`, whose request that changes something is held back in the network."""

    def call(client: Any, topic: str, count: int, *, validate_only: bool = False) -> Any:
        if not validate_only:
            held.add(CREATE_PARTITIONS)
        return create_partitions(client, topic, count, validate_only=validate_only)

    return call


def test_a_wait_that_was_stopped_continues(
    running: EmbeddedBroker,
    workload: Workload,
    admin: ShareGroupAdmin,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With --no-wait the fences are open; records that come meanwhile are between them once the wait is over, and the
    plan, applied again, waits for the rest alone."""
    monkeypatch.setenv("ACKTRAIL_SETTLE", "3s")
    workload.create_topic("waiting", 1)
    workload.produce("waiting", 3)
    file = tmp_path / "plan.json"
    write_text(plan_json(planned(admin, "waiting", 2)), file)
    where = ("--bootstrap-server", running.bootstrap_servers, "--tables", str(tmp_path / "tables"), "--json")

    done = command_line.run(capsys, "expand", "apply", file, "--execute", "--no-wait", *where)
    (first,) = done.rows
    assert (first["is_settled"], first["fences"][0]["low"], first["fences"][0]["high"]) == (False, 3, None)
    workload.produce("waiting", 2)
    done = command_line.run(capsys, "expand", "apply", file, "--execute", *where)
    (second,) = done.rows

    assert (second["is_settled"], second["was_there"]) == (True, True)
    assert second["settles_at_ms"] == first["settles_at_ms"]
    assert (second["fences"][0]["low"], second["fences"][0]["high"], second["fences"][0]["width"]) == (3, 5, 2)


def test_an_approval_that_is_required_is_asked_for(
    workload: Workload, admin: ShareGroupAdmin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the environment requires an approval, a plan without one changes nothing."""
    monkeypatch.setenv("ACKTRAIL_RESET_APPROVAL", "required")
    workload.create_topic("guarded", 1)
    with pytest.raises(ChangeRefused, match="approval_missing"):
        applied(admin, TablesConfig(uri=str(tmp_path)), planned(admin, "guarded", 2))
    assert listed(admin, "guarded").partition_count == 1


def test_decisions_by_command(
    running: EmbeddedBroker,
    workload: Workload,
    admin: ShareGroupAdmin,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An approval lets a plan pass that needs one; a rejection closes it for good; an edited plan cannot be decided."""
    monkeypatch.setenv("ACKTRAIL_RESET_APPROVAL", "required")
    workload.create_topic("decided", 1)
    tables = ("--tables", str(tmp_path / "tables"))
    where = ("--bootstrap-server", running.bootstrap_servers, *tables)
    files = {name: tmp_path / f"{name}.json" for name in ("good", "bad", "edited")}
    for file in files.values():
        write_text(plan_json(planned(admin, "decided", 2)), file)
    files["edited"].write_text(files["edited"].read_text().replace('"new_count": 2', '"new_count": 9'))

    assert "approved by" in command_line.run(capsys, "expand", "approve", files["good"], *tables).stdout
    rejected = command_line.run(capsys, "expand", "reject", files["bad"], "--reason", "not now", "--json", *tables)
    assert rejected.rows[0]["standing"] == "REJECTED"
    assert "[edited_plan]" in command_line.run(capsys, "expand", "approve", files["edited"], *tables).complaint(2)
    done = command_line.run(capsys, "expand", "apply", files["bad"], "--execute", *where)
    assert "[plan_rejected]" in done.complaint(2)
    assert listed(admin, "decided").partition_count == 1
    assert command_line.run(capsys, "expand", "apply", files["good"], "--execute", *where).code == 0
    assert listed(admin, "decided").partition_count == 2
