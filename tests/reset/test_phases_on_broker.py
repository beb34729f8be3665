"""A topic with more partitions than before, a share group, and a reset in two phases, on a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from broker.workload import until
from confluent_kafka import AcknowledgeType, Producer
from confluent_kafka.admin import NewPartitions
from drivers.command_line import run
from reset.plan_scene import RECORDS, Scene
from reset.world import reset_plan
from samples.ledger_tables import find_expansions, look

from acktrail.broker.client.librdkafka import to_librdkafka
from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail.errors import ChangeRefused, PlanStale
from acktrail.group_changes.json_values import to_json_value
from acktrail.group_changes.lifecycle.phases import next_phase_request
from acktrail.group_changes.request.reset_request import StrategyKind
from acktrail.model.expansion.key_mapping import KeyMapping

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TOPIC = "grown"
SOURCES = [(0, offset) for offset in range(RECORDS)] + [(1, offset) for offset in range(RECORDS)]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A topic with 2 partitions and records, then with 4, then with records in the others; its ledger."""
    with EmbeddedBroker("4.4.0") as broker:
        made = Scene.at(broker.config(), tmp_path_factory.mktemp("phases"))
        made.broker = broker
        made.make_topic(TOPIC, 2, RECORDS)
        look(made.kafka, made.tables, TOPIC)
        for future in made.workload.admin.create_partitions([NewPartitions(TOPIC, 4)]).values():
            future.result()
        until(lambda: len(made.workload.admin.list_topics(TOPIC).topics[TOPIC].partitions) == 4, what="4 partitions")
        look(made.kafka, made.tables, TOPIC)
        produce(made, {2: RECORDS, 3: RECORDS})
        find_expansions(made.tables, KeyMapping.MURMUR2)
        yield made


def produce(scene: Scene, counts: dict[int, int]) -> None:
    producer = Producer({**to_librdkafka(scene.kafka), "log_level": 3})
    for partition, count in counts.items():
        for number in range(count):
            producer.produce(TOPIC, str(number).encode(), partition=partition)
    assert producer.flush(30) == 0


def finished_group(scene: Scene, name: str) -> str:
    """A group that has accepted all there is."""
    scene.settle(name, TOPIC, 4 * RECORDS, lambda _: AcknowledgeType.ACCEPT)
    return name


def earliest(scene: Scene, group: str, *topics: str, **asked: Any) -> dict[str, Any]:
    return scene.plan(groups=[group], topics=topics or [TOPIC], strategies={"to-earliest": None}, **asked)


def rules(plan: dict[str, Any], severity: str) -> set[str]:
    return {each["rule"] for each in plan["notices"] if each["severity"] == severity}


def following(scene: Scene, plan: dict[str, Any]) -> dict[str, Any]:
    made = scene.plan_of(next_phase_request(reset_plan(plan)))
    scene.store(made)
    return made


def test_a_rewind_of_one_source_alone_is_refused_or_warned_of(
    scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partition 0 before the expansion while 2 keeps its place: strict sends nothing, warn plans it with a warning."""
    group = finished_group(scene, "rewinds-one")
    strict = earliest(scene, group, f"{TOPIC}:0", ordering="strict")
    assert rules(strict, "refusal") == {"order_broken"}
    with pytest.raises(ChangeRefused, match="order_broken"):
        scene.execute(strict)
    assert rules(earliest(scene, group, f"{TOPIC}:0"), "warning") >= {"order_broken"}

    monkeypatch.setenv("ACKTRAIL_ORDERED_GROUPS", "rewinds-*")
    assert rules(earliest(scene, group, f"{TOPIC}:0"), "refusal") == {"order_broken"}
    monkeypatch.delenv("ACKTRAIL_ORDERED_GROUPS")

    words = ("--group", group, "--topic", f"{TOPIC}:0", "--to-earliest")
    done = run(capsys, "reset", "plan", *words, "--ordering", "strict", *scene.arguments())
    assert done.code == 2
    assert (
        "partition 0 starts before the expansion from 2 to 4, but partition 2 keeps records from after it"
        in done.stdout
    )


@pytest.mark.full
def test_two_phases_deliver_the_sources_first_and_then_the_rest(scene: Scene) -> None:
    """Phase 1 delivers the records of 0 and 1 and none of 2 and 3; the second phase is refused until they are finished,
    and then delivers those of 2 and 3, from their beginning."""
    group = finished_group(scene, "in-phases")
    first = earliest(scene, group, phases=True, ordering="strict")
    assert {row["partition"]: row["target_offset"] for row in first["partitions"]} == {
        0: 0,
        1: 0,
        2: RECORDS,
        3: RECORDS,
    }
    assert rules(first, "warning") >= {"waits"}
    scene.store(first)
    with pytest.raises(ChangeRefused, match="phase_not_done"):
        following(scene, first)
    scene.execute(first)
    assert {row["status"][:2] for row in scene.verify(first)} == {"OK"}

    early = following(scene, first)
    assert rules(early, "refusal") == {"phase_not_reached"}
    with pytest.raises(ChangeRefused, match="phase_not_reached"):
        scene.execute(early)
    got = scene.deliveries(group, TOPIC, 2 * RECORDS)
    assert [(each.partition, each.offset) for each in got] == SOURCES
    scene.wait_empty(group)

    second = following(scene, first)
    assert second["request"]["strategy"]["kind"] == StrategyKind.NEXT_PHASE
    assert not rules(second, "refusal")
    scene.execute(second)
    assert {row["status"][:2] for row in scene.verify(second)} == {"OK"}
    got = scene.deliveries(group, TOPIC, 2 * RECORDS)
    assert [(each.partition, each.offset) for each in got] == [(p + 2, offset) for p, offset in SOURCES]
    with pytest.raises(ChangeRefused, match="no_next_phase"):
        next_phase_request(reset_plan(second))


def test_what_changed_since_the_plan_is_seen_before_anything_is_sent(scene: Scene) -> None:
    """Another client rewinds a source that the plan leaves as it is: the plan, accepted before, is stale."""
    group = finished_group(scene, "overtaken")
    plan = scene.plan(groups=[group], topics=[f"{TOPIC}:2"], strategies={"shift-by": "-3"})
    scene.store(plan)
    assert not rules(plan, "warning") & {"order_broken", "order_uncertain", "order_needs_phases"}
    scene.reset(groups=[group], topics=[f"{TOPIC}:0"], strategies={"to-earliest": None})
    with pytest.raises(PlanStale, match="order_changed"):
        scene.execute(plan)
    assert to_json_value(reset_plan(plan)) == plan
