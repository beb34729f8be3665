"""Resets on the other releases: done where Kafka does them, refused where it does not; and a broker that dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from change.world import World
from confluent_kafka import AcknowledgeType
from coordinator_messages import coordinator_states
from servers.real_broker import kill
from servers.releases import releases

from acktrail.change import api
from acktrail.change.cluster import Cluster
from acktrail.embedded import EmbeddedBroker
from acktrail.errors import ChangeRefused
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.broker_client import BrokerClient, NoResponse
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


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedBroker, World]]:
    with EmbeddedBroker() as broker:
        world = World.at(broker.config(), tmp_path_factory.mktemp("reset"))
        world.make_topic("orders", 1, RECORDS)
        with ShareGroupAdmin(world.kafka) as admin:
            from acktrail.kafka.changes import NewStartOffset

            admin.alter_offsets("g", [NewStartOffset(topic="orders", partition=0, start_offset=5)])
        yield broker, world


@pytest.mark.full
@pytest.mark.parametrize(("arrives", "statuses"), [(False, {"UNKNOWN"}), (True, {"OK_EPOCH_NOT_BUMPED"})])
def test_a_coordinator_that_dies_leaves_it_open_until_verified(
    mortal: tuple[EmbeddedBroker, World], monkeypatch: pytest.MonkeyPatch, arrives: bool, statuses: set[str]
) -> None:
    """R004-25: killed before it took the request, or after it did and before its answer: unknown, nothing is sent
    again, and the state topic tells which it was when the broker is back."""
    broker, world = mortal
    plan = world.plan(groups=["g"], topics=["orders"], strategies={"to-earliest": None})
    send, sent = BrokerClient.send_once, []

    def dying(client: BrokerClient, request: Any, node_id: int | None = None) -> Any:
        sent.append(request)
        if arrives:
            send(client, request, node_id)
        kill(broker)
        return send(client, request, node_id) if not arrives else NoResponse(node_id=node_id, error=ConnectionError())

    monkeypatch.setattr(BrokerClient, "send_once", dying)
    done = world.execute(plan)
    monkeypatch.undo()
    broker.start()
    assert {result["outcome"] for result in done["results"]} <= {"unknown", "refused"}
    assert len(sent) == 1
    verified = world.verify(plan, wait_s=1)
    assert {row["status"].replace("FAILED", "UNKNOWN") for row in verified} == statuses


@pytest.mark.full
def test_a_release_that_drops_resets_is_refused(tmp_path: Path) -> None:
    """R004-32: Kafka 4.1 answers a reset without an error and does nothing: there is no plan for it."""
    with EmbeddedBroker("4.1.2") as broker:
        world = World.at(broker.config(), tmp_path)
        world.make_topic("orders", 1, RECORDS)
        plan = world.plan(groups=["g"], topics=["orders"], strategies={"to-earliest": None}, allow_create=True)
        with Cluster(world.kafka) as cluster:
            request = world.request(groups=["g"], all_topics=True, strategies={"to-latest": None})
            notices = api.preflight(cluster, request)
        assert {n["rule"] for n in plan["notices"] if n["severity"] == "refusal"} == {"unsupported_release"}
        assert "unsupported_release" in {notice.rule for notice in notices}
        with pytest.raises(ChangeRefused, match="unsupported_release"):
            world.execute(plan)
