"""Resets on the other releases: done where Kafka does them, refused where it does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from change.world import World
from confluent_kafka import AcknowledgeType
from coordinator_messages import coordinator_states
from servers.releases import releases

from acktrail.embedded import EmbeddedBroker
from acktrail.errors import ChangeRefused
from acktrail.kafka.client.error_codes import NONE

pytestmark = [pytest.mark.broker, pytest.mark.slow]

RECORDS = 10


@pytest.fixture(scope="module", params=releases("4.4.0", "4.2.1"))
def older_and_newer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with EmbeddedBroker(request.param) as broker:
        yield World.at(broker.config(), tmp_path_factory.mktemp("reset"))


def held_of(world: World, group: str) -> tuple[int | None, tuple[tuple[int, int, int, int], ...]]:
    """Start offset and batches of a group's one share partition, as its share coordinator says."""
    (held,) = (held for key, held in coordinator_states(world.kafka).items() if key.group_id == group)
    assert held.error_code == NONE
    return held.start_offset, held.batches


def test_a_reset_and_its_undo(older_and_newer: World) -> None:
    """R004-01: planned, done, verified in the state topic, taken back; a new consumer gets what the plan says. The
    share coordinator itself holds the target and not one batch after it."""
    world = older_and_newer
    world.make_topic("orders", 1, RECORDS)

    def first_four(part: tuple[int, int]) -> AcknowledgeType:
        return AcknowledgeType.ACCEPT if part[1] < 4 else AcknowledgeType.RELEASE

    world.settle("g", "orders", RECORDS, first_four)
    plan = world.reset(groups=["g"], topics=["orders"], strategies={"to-earliest": None})
    assert (plan["totals"]["delivered_again"], plan["totals"]["to_deliver"]) == (4, RECORDS)
    assert held_of(world, "g") == (0, ())
    undo = world.undo(plan)
    world.execute(undo)
    assert held_of(world, "g") == (4, ())
    assert {row["status"] for row in world.verify(undo)} == {"OK_EPOCH_NOT_BUMPED"}
    assert [delivery.offset for delivery in world.deliveries("g", "orders", RECORDS - 4)] == list(range(4, RECORDS))


def test_a_group_is_made_by_its_reset(older_and_newer: World) -> None:
    """A missing group is made where that is allowed, with whatever state epoch the release gives it."""
    world = older_and_newer
    world.make_topic("made", 2, RECORDS)
    plan = world.reset(
        groups=["new"], topics=["made:1"], strategies={"to-offset": "7"}, allow_create=True, allow_skip=True
    )
    assert [row["status"] for row in world.verify(plan)] == []
    assert [delivery.offset for delivery in world.deliveries("new", "made", RECORDS + 3) if delivery.partition] == [
        7,
        8,
        9,
    ]


@pytest.mark.full
def test_a_release_that_drops_resets_is_refused(tmp_path: Path) -> None:
    """R004-32: Kafka 4.1 answers a reset without an error and does nothing: there is no plan for it."""
    with EmbeddedBroker("4.1.2") as broker:
        world = World.at(broker.config(), tmp_path)
        world.make_topic("orders", 1, RECORDS)
        plan = world.plan(groups=["g"], topics=["orders"], strategies={"to-earliest": None}, allow_create=True)
        assert {n["rule"] for n in plan["notices"] if n["severity"] == "refusal"} == {"unsupported_release"}
        with pytest.raises(ChangeRefused, match="unsupported_release"):
            world.execute(plan)
