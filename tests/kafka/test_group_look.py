"""A look at all share groups from the brokers alone: lags, and how old the oldest unfinished record is."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from change.world import World
from confluent_kafka import AcknowledgeType, Producer
from servers.guarded_broker import GuardedBroker
from servers.workload import Workload, until

from acktrail.config import KafkaConfig
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail.kafka.group_look import GroupLooks
from acktrail.serving.group_gauges import SeenQueue
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

pytestmark = pytest.mark.broker
RECORDS: Final = 10
EACH_S: Final = 600
"""Between two records."""
LARGE: Final = 40_000
"""Bytes of a record: more than a look asks of each log."""


def written(world: World, topic: str, first: int, count: int, newest_at: float) -> None:
    """`count` records from the number `first` on, each a batch of its own, `EACH_S` apart; record `RECORDS` is written
    at `newest_at`."""
    producer = Producer({**to_librdkafka(world.kafka), "compression.type": "none"})
    for number in range(first, first + count):
        size = LARGE if number % 3 == 0 else 10
        producer.produce(
            topic, b"x" * size, partition=0, timestamp=round(1000 * (newest_at - EACH_S * (RECORDS - number)))
        )
        assert producer.flush(30) == 0


def queue_of(kafka: KafkaConfig, group: str, at: float) -> SeenQueue:
    with ShareGroupAdmin(kafka) as admin:
        looks = GroupLooks(admin, lambda: at)
        first, again = looks.look(), looks.look()
    assert first == again
    (found,) = (queue for queue in first.queues if queue.group_id == group)
    return found


@pytest.mark.parametrize(
    ("is_finished", "is_exact"),
    [
        pytest.param(lambda _: True, False, id="all, then one comes"),
        pytest.param(lambda offset: offset > 0, False, id="all but the first"),
        pytest.param(lambda offset: offset % 2 == 0, False, id="every second one"),
        pytest.param(lambda _: False, True, id="none"),
    ],
)
def test_the_age_of_the_oldest_unfinished_record_lies_between_its_bounds(
    is_finished: Callable[[int], bool], is_exact: bool, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """A record that comes after everything was acknowledged is young, though the start offset that the broker knows is
    old; one that is released again and again is old, though all behind it are acknowledged. Small batches and such as
    are larger than what is asked for."""
    world, group, topic = World.at(broker.config(), tmp_path), f"g{uuid4()}", f"t{uuid4()}"
    at = time.time()
    world.workload.create_topic(topic, 1)
    written(world, topic, 0, RECORDS, at)
    world.settle(
        group, topic, RECORDS, lambda part: AcknowledgeType.ACCEPT if is_finished(part[1]) else AcknowledgeType.RELEASE
    )
    written(world, topic, RECORDS, 1, at)
    unfinished = [number for number in range(RECORDS + 1) if number == RECORDS or not is_finished(number)]
    found = queue_of(world.kafka, group, at)
    at_least, at_most = found.oldest_s
    assert found.lag == len(unfinished)
    assert at_least is not None
    assert at_most is not None
    age = EACH_S * (RECORDS - unfinished[0])
    assert at_least - 0.001 <= age <= at_most + 0.001
    assert (at_least == at_most) == is_exact


def test_what_is_not_known_has_no_age(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Of a group that never acknowledged anything, a lag and an age are not known; of one that finished everything both
    are 0."""
    world, topic = World.at(broker.config(), tmp_path), f"t{uuid4()}"
    new, done = f"n{uuid4()}", f"d{uuid4()}"
    world.make_topic(topic, 1, 2)
    world.settle(done, topic, 2, lambda _: AcknowledgeType.ACCEPT)
    with world.member(new, topic):
        pass
    found = queue_of(world.kafka, done, time.time())
    assert (found.lag, found.oldest_s) == (0, (0.0, 0.0))
    assert queue_of(world.kafka, new, time.time()).oldest_s in {(None, None), (0.0, 0.0)}


def test_without_the_right_to_read_there_is_lag_and_no_age(guarded_workload: Workload, guarded: GuardedBroker) -> None:
    """The bounds are absent, not 0; with the right they are there."""
    group, topic, user = f"g{uuid4()}", f"t{uuid4()}", "half-sighted"
    guarded_workload.create_topic(topic)
    guarded_workload.produce(topic, 3)
    guarded_workload.acknowledge(group, topic, 1)
    guarded_workload.allow(user, "DESCRIBE", "GROUP", group)
    guarded_workload.allow(user, "DESCRIBE", "TOPIC", topic)
    until(lambda: _lag(guarded.config(user), group) == 2, what="the lag")
    assert queue_of(guarded.config(user), group, time.time()).oldest_s == (None, None)
    guarded_workload.allow(user, "READ", "TOPIC", topic)
    until(lambda: None not in queue_of(guarded.config(user), group, time.time()).oldest_s, what="the age")


def _lag(kafka: KafkaConfig, group: str) -> int | None:
    with ShareGroupAdmin(kafka) as admin:
        return next((queue.lag for queue in GroupLooks(admin).look().queues if queue.group_id == group), None)
