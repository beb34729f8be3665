"""The law of "drained" against what brokers deliver: where nothing is left no member gets a record that exists, and no
member gets more than is left at most."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from servers.guarded_broker import GuardedBroker
from servers.real_broker import broker_of_release, releases
from servers.workload import Workload, start_at, until

from acktrail.config import KafkaConfig
from acktrail.errors import NotAShareGroup, NotAuthorized, UnknownName
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail.kafka.drain_look import DrainLooks
from acktrail.model.drained import GroupLeft, Wanted
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

pytestmark = pytest.mark.broker
EXPLICIT = {"share.acknowledgement.mode": "explicit"}


@pytest.fixture(scope="module", params=releases("4.3.1", "4.4.0"))
def release(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with broker_of_release(request) as running:
        yield running


class Watch:
    """A group of its own, and a topic."""

    def __init__(self, kafka: KafkaConfig) -> None:
        self.kafka, self.work = kafka, Workload(kafka)
        self.group, self.topic = f"g{uuid4()}", f"t{uuid4()}"

    def look(self, *topics: str, clock: Any = time.time, **wanted: Any) -> GroupLeft:
        asked = Wanted(self.group, topics, **wanted)
        with ShareGroupAdmin(self.kafka) as admin:
            return DrainLooks(admin, clock).look([asked])[asked]

    @contextmanager
    def member(self, policy: str) -> Iterator[ShareConsumer]:
        """A member that acknowledges nothing by itself."""
        self.work.configure_group(self.group, share_auto_offset_reset=policy)
        consumer = ShareConsumer({**to_librdkafka(self.kafka), "group.id": self.group, **EXPLICIT})
        consumer.subscribe([self.topic])
        try:
            until(lambda: not list(consumer.poll(0.2) or ()) and self._assigned(), what="the member")
            yield consumer
        finally:
            consumer.close()
            self.empty()

    def _assigned(self) -> bool:
        with ShareGroupAdmin(self.kafka) as admin:
            members = admin.describe_groups([self.group])[0].members
        return bool(members) and all(one.assignment for one in members)

    def empty(self) -> None:
        with ShareGroupAdmin(self.kafka) as admin:
            until(lambda: not admin.describe_groups([self.group])[0].members, what="an empty group")

    def get(self, policy: str, *, least: int, seconds: float = 4.0) -> int:
        """How many records a new member gets within some seconds, `least` of them without a limit of time; accepts
        all."""
        self.work.configure_group(self.group, share_auto_offset_reset=policy)
        consumer, got = ShareConsumer({**to_librdkafka(self.kafka), "group.id": self.group, **EXPLICIT}), 0
        consumer.subscribe([self.topic])
        begun = time.monotonic()
        while time.monotonic() < begun + seconds or (got < least and time.monotonic() < begun + 120):
            for message in consumer.poll(0.2) or ():
                consumer.acknowledge(message, AcknowledgeType.ACCEPT)
                got += 1
            consumer.commit_sync()
        consumer.close()
        self.empty()
        return got

    def transaction(self, records: int, *, commit: bool) -> None:
        producer = Producer({**to_librdkafka(self.kafka), "transactional.id": str(uuid4())})
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(self.topic, b"x", partition=0)
        producer.flush(30)
        (producer.commit_transaction if commit else producer.abort_transaction)()


@pytest.fixture
def watch(release: EmbeddedBroker) -> Watch:
    return Watch(release.config())


def test_records_in_flight_are_left_and_finished_ones_are_not(watch: Watch) -> None:
    """With `latest`, records that a member holds and never acknowledged look as if nothing was ever initialized: not
    known, while they are young. Acknowledged, nothing is left, and no member gets anything."""
    watch.work.create_topic(watch.topic)
    watch.work.produce(watch.topic, 3)
    with watch.member("latest") as member:
        old = watch.look(young_ms=0, clock=lambda: time.time() + 3_600)
        assert (old.left.at_most, old.members is not None and len(old.members)) == (0, 1)
        watch.work.produce(watch.topic, 2)
        held = until(lambda: list(member.poll(0.5) or ()), what="records")
        assert watch.look().left.at_most is None
        for message in held:
            member.acknowledge(message, AcknowledgeType.ACCEPT)
        member.commit_sync()
        assert until(lambda: watch.look().left.is_drained, what="the end")
    assert watch.look().left.is_drained
    assert watch.get("latest", least=0) == 0


@pytest.mark.parametrize("policy", ["latest", "earliest", "by_duration:PT1H"])
def test_never_initialized(watch: Watch, policy: str) -> None:
    """A group without members that never acknowledged anything: what its policy lets a member get is left, not more."""
    watch.work.create_topic(watch.topic)
    with watch.member(policy):
        pass
    producer, now_ms = Producer(to_librdkafka(watch.kafka)), round(time.time() * 1000)
    for ago_s in (10_000, 9_000, 5, 4, 3):
        producer.produce(watch.topic, b"x", partition=0, timestamp=now_ms - 1000 * ago_s)
        assert producer.flush(30) == 0
    left = watch.look().left
    assert left.at_most == {"latest": 0, "earliest": 5}.get(policy, 3), left.reason
    later = watch.look(clock=lambda: time.time() + 7_200).left.at_most
    assert later == {"earliest": 5}.get(policy, 0)
    assert watch.get(policy, least=left.at_most or 0) == left.at_most


def test_added_partition(watch: Watch) -> None:
    """Kafka 4.4 begins a partition that was added to a topic at offset 0, whatever the policy says: its records are
    left. Before, a group that begins at the end skips them."""
    watch.work.create_topic(watch.topic)
    watch.work.produce(watch.topic, 2)
    assert watch.get("earliest", least=2) == 2
    assert watch.look().left.is_drained
    watch.work.configure_group(watch.group, share_auto_offset_reset="latest")
    watch.work.add_partitions(watch.topic, 2)
    watch.work.produce(watch.topic, 4, partition=1)
    with ShareGroupAdmin(watch.kafka) as admin:
        begins = admin.capabilities().begins_added_partitions
    left = watch.look().left
    assert left.at_most == (4 if begins else 0)
    assert watch.get("latest", least=left.at_most) == left.at_most


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_markers_of_transactions_are_finished_with_the_records_around_them(watch: Watch, isolation: str) -> None:
    """Committed and aborted transactions: when the records are finished nothing is left, although markers stay."""
    watch.work.create_topic(watch.topic)
    for commit in (True, False, True):
        watch.transaction(2, commit=commit)
    watch.work.configure_group(watch.group, share_isolation_level=isolation)
    count = 6 if isolation == "read_uncommitted" else 4
    with watch.member("latest"):
        pass
    assert watch.get("earliest", least=count) == count
    assert watch.look().left.is_drained, watch.look().left.reason


def test_start_offset_behind_the_end_of_the_log(watch: Watch) -> None:
    """A negative lag, and one behind the end, whose lag cannot be told from an unknown one: nothing that exists is
    left. One record before the end: it is."""
    watch.work.create_topic(watch.topic)
    watch.work.produce(watch.topic, 3)
    assert watch.get("earliest", least=3) == 3
    for start, left in ((50, 0), (4, 0), (3, 0), (2, 1)):
        start_at(watch.kafka, watch.group, {(watch.topic, 0): start})
        assert watch.look().left.at_most == left
    assert watch.get("earliest", least=1) == 1


def test_topics_that_are_gone(watch: Watch) -> None:
    """A topic that was deleted holds nothing. Named, it is an error with its name; of a group that has no other, it is
    not known whether it is drained."""
    other = f"other-{uuid4()}"
    for topic in (watch.topic, other):
        watch.work.create_topic(topic)
        watch.work.produce(topic, 1)
    assert watch.get("earliest", least=1) == 1
    start_at(watch.kafka, watch.group, {(other, 0): 0})
    assert watch.look().left.at_most == 1
    misspelt = watch.look(f"{watch.topic}x").error
    assert isinstance(misspelt, UnknownName)
    assert misspelt.nearest[0] == watch.topic
    watch.work.delete_topic(other)
    assert until(lambda: watch.look().left.is_drained, what="the end of the topic")
    assert isinstance(watch.look(other).error, UnknownName)
    watch.work.delete_topic(watch.topic)
    assert until(lambda: watch.look().left.at_most is None, what="the end of the topic")
    assert "no topic" in watch.look().left.reason


def test_group_that_is_not_there_is_an_error(watch: Watch) -> None:
    """Absent is never drained: neither a group that is not there, nor one of another type."""
    absent = watch.look()
    assert isinstance(absent.error, UnknownName)
    assert absent.left.at_most is None
    watch.work.create_topic(watch.topic)
    classic = Producer(to_librdkafka(watch.kafka))
    assert classic.flush(1) == 0
    from confluent_kafka import Consumer

    consumer = Consumer({**to_librdkafka(watch.kafka), "group.id": watch.group})
    consumer.subscribe([watch.topic])
    until(lambda: consumer.poll(0.2) is not None or consumer.assignment(), what="a consumer group")
    assert isinstance(watch.look().error, NotAShareGroup)
    consumer.close()


def test_age_of_the_oldest_unfinished_record(watch: Watch) -> None:
    """At most: of a share partition that begins at its log's start, the first record's; nothing is left: 0."""
    watch.work.create_topic(watch.topic)
    with watch.member("earliest"):
        pass
    producer, at = Producer(to_librdkafka(watch.kafka)), time.time()
    for ago_s in (100, 50):
        producer.produce(watch.topic, b"x", partition=0, timestamp=round(1000 * (at - ago_s)))
        assert producer.flush(30) == 0
    found = watch.look(with_age=True, clock=lambda: at)
    assert found.oldest_s is not None
    assert round(found.oldest_s) == 100
    watch.get("earliest", least=2)
    assert watch.look(with_age=True).oldest_s == 0.0


def test_missing_rights_are_errors(guarded_workload: Workload, guarded: GuardedBroker) -> None:
    """No right on the group, on a topic that is named, or on the configuration where that decides: each is named."""
    watch, user = Watch(guarded.config()), "half-sighted"
    watch.work.create_topic(watch.topic)
    watch.work.produce(watch.topic, 1)
    watch.get("earliest", least=1)
    watch.work.add_partitions(watch.topic, 2)
    watch.work.produce(watch.topic, 1, partition=1)
    watch.kafka = guarded.config(user)
    assert isinstance(watch.look().error, NotAuthorized)
    guarded_workload.allow(user, "DESCRIBE", "GROUP", watch.group)
    until(lambda: watch.look().error is None, what="the right on the group")
    assert "no topic" in watch.look().left.reason
    assert isinstance(watch.look(watch.topic).error, NotAuthorized)
    guarded_workload.allow(user, "DESCRIBE", "TOPIC", watch.topic)
    until(lambda: watch.look(watch.topic).error is None, what="the right on the topic")
    assert "grant DESCRIBE_CONFIGS" in watch.look().left.reason
    guarded_workload.allow(user, "DESCRIBE_CONFIGS", "GROUP", watch.group)
    assert until(lambda: watch.look().left.at_most == 1, what="the right on the configuration")


def test_subscribed_topic_without_a_right_is_an_error(guarded_workload: Workload, guarded: GuardedBroker) -> None:
    """A broker leaves a topic that may not be described out of a group's offsets without an error. Its members'
    subscriptions show it."""
    watch, user = Watch(guarded.config()), "half-sighted"
    watch.work.create_topic(watch.topic)
    guarded_workload.allow(user, "DESCRIBE", "GROUP", watch.group)
    with watch.member("earliest"):
        watch.kafka = guarded.config(user)
        until(lambda: watch.look().error is not None, what="the right on the group")
        assert "topic" in str(watch.look().error)
        watch.kafka = guarded.config()
