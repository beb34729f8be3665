"""A topic with more partitions than before, a share group, and a rewind in two resets, on a real broker."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest
from change.world import RECORDS, Scene
from confluent_kafka import AcknowledgeType
from drivers.command_line import Done, run
from expansion.support.seen_looks import audit

from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail.errors import PlanStale
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail_expansion.looks.ledger_connector import take_look

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TOPIC, GROUP = "grown", "in two; resets"
ALLOWED = ("order_broken", "order_uncertain")


def look(scene: Scene) -> None:
    """A look, and the audit of what it shows."""
    with ShareGroupAdmin(scene.kafka) as admin:
        take_look(admin, scene.tables, topics=[TOPIC])
    audit(scene.tables, settle="0s")


def test_a_rewind_keeps_order_in_two_resets_or_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From what is not known, by looks and an audit, to the two command lines of the notice, which deliver the old
    partitions first and then the others. A plan that another reset overtakes is stale."""
    monkeypatch.setenv("ACKTRAIL_ORDERED_GROUPS", "*")
    with EmbeddedBroker("4.4.0") as broker:
        scene = Scene.at(broker.config(), tmp_path)

        def rewound(partition: int) -> dict[str, str]:
            """What a plan says about the order of keys."""
            topics, strategies = [f"{TOPIC}:{partition}"], {"to-earliest": None}
            notices = scene.plan(groups=[GROUP], topics=topics, strategies=strategies)["notices"]
            return {each["rule"]: each["severity"] for each in notices if each["rule"].startswith(("order", "expan"))}

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
        look(scene)
        assert rewound(0) == {}
        scene.workload.add_partitions(TOPIC, 4)
        for partition in (2, 3):
            scene.workload.produce(TOPIC, RECORDS, partition)
        scene.settle(GROUP, TOPIC, 2 * RECORDS, lambda _: AcknowledgeType.ACCEPT)
        unsure = {"order_uncertain": "refusal", "expansion_not_single": "warning"}
        assert rewound(0) == unsure, "no audit saw the expansion"
        look(scene)
        assert rewound(0) == {**unsure, "order_broken": "refusal"}
        scene.workload.add_partitions(TOPIC, 5)
        assert rewound(2) == unsure, "no audit saw partition 4"
        look(scene)

        plan = ("change", "plan", "reset", "--group", GROUP, "--to-earliest", "--topic")
        refused = command(*plan, f"{TOPIC}:0")
        assert refused.code == 2
        assert "partition 0 starts before the expansion from 2 to 4, but partition 2 keeps records" in refused.stdout
        unknown = command(*plan, f"{TOPIC}:0", "--allow", "order_broke")
        assert "--allow 'order_broke': the rules there are: order_broken, order_needs_gate" in unknown.stderr
        whole = command(*plan, f"{TOPIC}:0,1,2,3")
        first, second = (shlex.split(part)[1:] for part in whole.stdout.split("`")[1:4:2])
        assert apply(first) == {0, 1}
        assert apply(second) == {2, 3}

        overtaken = scene.plan(groups=[GROUP], topics=[f"{TOPIC}:2"], strategies={"to-offset": "3"})
        scene.store(overtaken)
        scene.reset(groups=[GROUP], topics=[f"{TOPIC}:0"], strategies={"to-earliest": None}, allow=ALLOWED)
        with pytest.raises(PlanStale, match="order_"):
            scene.execute(overtaken)
