"""A topic with more partitions than before, a share group, and a rewind in two resets, on a real broker."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from broker.workload import until
from confluent_kafka import AcknowledgeType, Producer
from confluent_kafka.admin import NewPartitions
from drivers.command_line import run
from reset.plan_scene import RECORDS, Scene
from reset.world import reset_plan

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.broker.client.librdkafka import to_librdkafka
from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail.errors import ChangeRefused, PlanStale
from acktrail.group_changes.json_values import to_json_value
from acktrail.tables.cluster_check import create_for
from acktrail.tables.delta.store import Tables

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TOPIC = "grown"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A topic with 2 partitions and records, then with 4 and records in the others; the tables that an audit writes."""
    with EmbeddedBroker("4.4.0") as broker:
        made = Scene.at(broker.config(), tmp_path_factory.mktemp("two-resets"))
        made.broker = broker
        made.make_topic(TOPIC, 2, RECORDS)
        for future in made.workload.admin.create_partitions([NewPartitions(TOPIC, 4)]).values():
            future.result()
        until(lambda: len(made.workload.admin.list_topics(TOPIC).topics[TOPIC].partitions) == 4, what="4 partitions")
        produce(made, 2, 3)
        write_fences(made)
        yield made


def produce(scene: Scene, *partitions: int) -> None:
    producer = Producer({**to_librdkafka(scene.kafka), "log_level": 3})
    for partition in partitions:
        for number in range(RECORDS):
            producer.produce(TOPIC, str(number).encode(), partition=partition)
    assert producer.flush(30) == 0


def write_fences(scene: Scene) -> None:
    """All of 0 and 1 is from before the expansion."""
    stored = Tables(scene.tables)
    with ShareGroupAdmin(scene.kafka) as admin:
        cluster_id, (topic,) = admin.cluster_id, admin.topics([TOPIC])
    own = {"cluster_id": cluster_id, "event_id": "e1", "topic_id": topic.topic_id, "topic": TOPIC}
    counts = {"sequence": 1, "old_count": 2, "new_count": 4, "is_single": True, "key_mapping": "murmur2"}
    fences = [{"partition": number, "fence_low": RECORDS, "fence_high": RECORDS} for number in range(2)]
    looked = {"observed_at": dt.datetime.now(dt.UTC), "partition": 0, "partition_count": 4}
    for name, rows in (
        ("partition_expansions", [counts]),
        ("expansion_fences", fences),
        ("partition_observations", [looked]),
    ):
        create_for(stored, name, cluster_id)
        stored.append(name, pa.Table.from_pylist([{**own, **row} for row in rows], schema=TABLES[name]))


def finished_group(scene: Scene, name: str) -> str:
    """A group that has accepted all there is."""
    scene.settle(name, TOPIC, 4 * RECORDS, lambda _: AcknowledgeType.ACCEPT)
    return name


def earliest(scene: Scene, group: str, *partitions: int, **asked: Any) -> dict[str, Any]:
    topic = f"{TOPIC}:{','.join(map(str, partitions))}" if partitions else TOPIC
    return scene.plan(groups=[group], topics=[topic], strategies={"to-earliest": None}, **asked)


def rules(plan: dict[str, Any], severity: str) -> set[str]:
    return {each["rule"] for each in plan["notices"] if each["severity"] == severity}


def commands(plan: dict[str, Any]) -> list[Sequence[str]]:
    """The command lines in the notice about what has to wait."""
    (text,) = (each["text"] for each in plan["notices"] if each["rule"] == "order_needs_gate")
    return [shlex.split(part)[1:] for part in text.split("`")[1::2]]


def test_a_rewind_of_one_source_alone_is_refused_or_warned_of(
    scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partition 0 before the expansion while 2 keeps its place: for a group that relies on order nothing is sent."""
    group = finished_group(scene, "rewinds-one")
    assert rules(earliest(scene, group, 0), "warning") >= {"order_broken"}

    monkeypatch.setenv("ACKTRAIL_ORDERED_GROUPS", "rewinds-*")
    ordered = earliest(scene, group, 0)
    assert rules(ordered, "refusal") == {"order_broken"}
    with pytest.raises(ChangeRefused, match="order_broken"):
        scene.execute(ordered)
    words = ("reset", "plan", "--group", group, "--topic", f"{TOPIC}:0", "--to-earliest", *scene.arguments())
    done = run(capsys, *words)
    said = "partition 0 starts before the expansion from 2 to 4, but partition 2 keeps records from after it"
    assert done.code == 2
    assert said in done.stdout
    assert run(capsys, *words, "--allow", "order_broken").code == 0


@pytest.mark.full
def test_two_resets_deliver_the_sources_first_and_then_the_rest(
    scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the two command lines of the notice: the first one delivers the records of 0 and 1 and none of 2 and 3, the
    second one is refused until these are finished, and then delivers those of 2 and 3."""
    monkeypatch.setenv("ACKTRAIL_ORDERED_GROUPS", "*")
    group = finished_group(scene, "in two; resets")
    whole = earliest(scene, group)
    assert rules(whole, "warning") >= {"order_needs_gate"}
    first, second = commands(whole)

    def apply(words: Sequence[str]) -> None:
        assert run(capsys, *words, *scene.arguments()).code == 0
        plan_id = run(capsys, "reset", "list", "--json", *scene.arguments()[2:]).rows[0]["plan_id"]
        assert run(capsys, "reset", "apply", plan_id, "--execute", *scene.arguments()).code == 0

    apply(first)
    early = run(capsys, *second, *scene.arguments())
    assert early.code == 2
    assert "Let the group finish partitions 0, 1, stop it, and plan again" in early.stdout
    got = scene.deliveries(group, TOPIC, 2 * RECORDS)
    assert {each.partition for each in got} == {0, 1}
    scene.wait_empty(group)
    apply(second)
    got = scene.deliveries(group, TOPIC, 2 * RECORDS)
    assert {each.partition for each in got} == {2, 3}


def test_what_changed_since_the_plan_is_seen_before_anything_is_sent(scene: Scene) -> None:
    """Another client rewinds a source that the plan leaves as it is: the plan, accepted before, is stale."""
    group = finished_group(scene, "overtaken")
    plan = scene.plan(groups=[group], topics=[f"{TOPIC}:2"], strategies={"to-offset": "3"})
    scene.store(plan)
    assert not rules(plan, "warning") & {"order_broken", "order_uncertain", "order_needs_gate"}
    scene.reset(groups=[group], topics=[f"{TOPIC}:0"], strategies={"to-earliest": None})
    with pytest.raises(PlanStale, match="order_broken"):
        scene.execute(plan)
    assert to_json_value(reset_plan(plan)) == plan
