"""What the admin client says is what the cluster says, epochs and the configurations of the founding documents among
it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, ShareConsumer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType
from drivers.own_process import printed
from oracle.kafka_classes import compiled
from servers.real_broker import kafka_tool
from servers.workload import Worked, Workload, until

from acktrail.config import KafkaConfig
from acktrail.errors import NotAShareGroup, UnknownName
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.changes import ConfigsChange, NewStartOffset, Outcome
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail.kafka.descriptions import TopicPartition
from acktrail_embedded import EmbeddedBroker


def test_start_offset_lag_and_leader_epoch_are_those_of_kafkas_own_tool(
    admin: ShareGroupAdmin, worked: Worked, broker: EmbeddedBroker
) -> None:
    """For every share partition our answer equals the line that kafka-share-groups.sh prints."""
    asked = ("--bootstrap-server", broker.bootstrap_servers, "--describe", "--verbose", "--group", worked.group)
    lines = printed(*kafka_tool("org.apache.kafka.tools.consumer.group.ShareGroupCommand", *asked)).splitlines()
    rows = [line.split() for line in lines if line.startswith(worked.group)]
    said = [
        [o.topic, str(o.partition), _cell(o.leader_epoch), _cell(o.start_offset), _cell(o.lag)]
        for o in admin.describe_offsets(worked.group)
    ]
    assert [row[1:] for row in rows] == said
    assert len(said) == worked.partitions
    (named,) = admin.describe_offsets(worked.group, {worked.topic: [0]})
    assert named == admin.describe_offsets(worked.group)[0]
    assert said[0][-1] == str(worked.produced - worked.accepted)


def _cell(number: int | None) -> str:
    return "-" if number is None else str(number)


def test_unknown_names_come_with_the_nearest_known(admin: ShareGroupAdmin, worked: Worked) -> None:
    """A mistyped group or topic is answered with the right one; so is a partition that is not there, by what the
    cluster lists, before the question: Kafka would let it run into the time-out."""
    for index in (2, 10_000):
        with pytest.raises(UnknownName) as caught:
            admin.describe_offsets(worked.group, {worked.topic: [0, index]})
        assert caught.value.nearest == (f"{worked.topic}:1",)
    with pytest.raises(UnknownName) as group:
        admin.describe_group(worked.group + "x")
    assert worked.group in group.value.nearest
    with pytest.raises(UnknownName) as topic:
        admin.describe_offsets(worked.group, {worked.topic + "x": [0]})
    assert worked.topic in topic.value.nearest


def test_asking_for_a_topic_does_not_create_it(admin: ShareGroupAdmin) -> None:
    """A topic that is not there is an error value, also the second time."""
    name = f"never-{uuid4().hex}"
    for _ in range(2):
        (topic,) = admin.topics([name])
        assert topic.error == "UNKNOWN_TOPIC_OR_PARTITION"
        assert topic.topic_id is None
    assert name not in {t.name for t in admin.topics()}


def test_groups_are_listed_by_type(admin: ShareGroupAdmin, worked: Worked, kafka: KafkaConfig) -> None:
    """A share group is listed as one, and a consumer group is not among them."""
    consumers = f"consumers-{uuid4().hex[:8]}"
    consumer = Consumer({**to_librdkafka(kafka), "group.id": consumers, "enable.auto.commit": False})
    consumer.commit(offsets=[ConfluentPartition(worked.topic, 0, 1)], asynchronous=False)
    consumer.close()
    shares = {listing.group_id: listing for listing in admin.list_groups()}
    assert shares[worked.group].state == "Empty"
    assert shares[worked.group].group_type == "share"
    assert consumers not in shares
    assert consumers in {listing.group_id for listing in admin.list_groups(("consumer", "classic"))}
    with pytest.raises(NotAShareGroup):
        admin.describe_group(consumers)


def test_ends_of_logs_are_those_that_a_consumer_sees(
    admin: ShareGroupAdmin, worked: Worked, kafka: KafkaConfig
) -> None:
    """First offset and high watermark agree with librdkafka's, and what is not there is an error value."""
    consumer = Consumer({**to_librdkafka(kafka), "group.id": "watermarks"})
    asked = [TopicPartition(topic=worked.topic, partition=index) for index in (1, 0, 7)]
    known, other, absent = admin.list_offsets([*asked])
    for row in (known, other):
        low, high = consumer.get_watermark_offsets(ConfluentPartition(row.topic, row.partition), timeout=120)
        assert (row.log_start_offset, row.high_watermark, row.last_stable_offset) == (low, high, high)
    consumer.close()
    assert other.high_watermark == worked.produced
    assert (absent.partition, absent.error, absent.high_watermark) == (7, "UNKNOWN_TOPIC_OR_PARTITION", None)


def test_a_partition_never_initialized_has_no_start_offset(admin: ShareGroupAdmin, workload: Workload) -> None:
    """Unknown is None, never -1: before the first acknowledgement there is neither start offset nor lag."""
    topic = f"idle-{uuid4().hex[:8]}"
    workload.create_topic(topic)

    def described() -> str | None:
        """The group coordinator learns of a topic a little later than the broker that lists it."""
        (row,) = admin.describe_offsets("no-such-group", {topic: [0]})
        assert (row.start_offset, row.leader_epoch, row.lag, row.error_code, row.error) == (None, None, None, 0, None)
        return row.topic_id

    assert until(described, what="the topic's id") == admin.topics([topic])[0].topic_id


def test_the_first_record_at_a_time_is_librdkafkas(admin: ShareGroupAdmin, worked: Worked, kafka: KafkaConfig) -> None:
    """A time in a log is the offset that librdkafka finds; after the last record there is none, which is no error."""
    asked = [TopicPartition(topic=worked.topic, partition=index) for index in (0, 1)]
    (first, empty) = admin.offsets_at(asked, 0)
    assert (first.offset, empty.offset, empty.error_code) == (0, None, 0)
    assert first.timestamp_ms is not None
    consumer = Consumer({**to_librdkafka(kafka), "group.id": "times"})
    for moment in (first.timestamp_ms, first.timestamp_ms + 1):
        (found,) = consumer.offsets_for_times([ConfluentPartition(worked.topic, 0, moment)], timeout=120)
        (said, _) = admin.offsets_at(asked, moment)
        assert said.offset == (None if found.offset < 0 else found.offset)
    consumer.close()
    (late, _) = admin.offsets_at(asked, 2**62)
    assert (late.offset, late.timestamp_ms, late.error) == (None, None, None)


def test_a_group_is_changed_and_deleted(admin: ShareGroupAdmin, workload: Workload) -> None:
    """R004-09 to R004-13, R002-35, R002-38: configuration, start offsets, a topic's state and the group itself: each
    change is what is described next. Start offset and isolation level are configured for each group."""
    group = topic = f"changed-{uuid4().hex[:8]}"
    workload.create_topic(topic)
    workload.produce(topic, 9)
    change = ConfigsChange(group_id=group, configs=(("share.auto.offset.reset", "earliest"),))
    assert admin.alter_group_configs(change).outcome is Outcome.DONE
    # The controller has answered; the broker that is asked learns of it a little later.
    (configs,) = until(lambda: [each for each in admin.group_configs([group]) if each.own], what="its configuration")
    assert configs.own == {"share.auto.offset.reset"}
    assert {"share.delivery.count.limit", "share.isolation.level"} <= (configs.configs or {}).keys()
    (altered,) = admin.alter_offsets(group, [NewStartOffset(topic=topic, partition=0, start_offset=4)])
    assert (altered.outcome, altered.topic_id) == (Outcome.DONE, admin.topics([topic])[0].topic_id)
    (offset,) = admin.describe_offsets(group)
    assert (offset.start_offset, offset.lag) == (4, 5)
    assert [r.outcome for r in admin.delete_offsets(group, [topic])] == [Outcome.DONE]
    assert admin.describe_offsets(group) == ()
    assert [r.outcome for r in admin.delete_offsets(group, [topic])] == [Outcome.REFUSED]
    assert admin.delete_group(group).outcome is Outcome.DONE
    (again,) = admin.alter_offsets(group, [NewStartOffset(topic=topic, partition=3, start_offset=4)])
    assert (again.outcome, again.error_code) == (Outcome.REFUSED, 3)
    assert admin.delete_group(group).outcome is Outcome.DONE, "the refused change made the group"
    assert admin.delete_group(group).error_code == 69


def test_a_group_with_members_is_not_changed(admin: ShareGroupAdmin, workload: Workload, worked: Worked) -> None:
    """68 for start offsets, state and group, and nothing is changed."""
    group = f"busy-{uuid4().hex[:8]}"
    with workload.share_consumer(group, worked.topic) as consumer:
        until(lambda: consumer.poll(0.2) and admin.describe_offsets(group), what="the group to work")
        results = [
            *admin.alter_offsets(group, [NewStartOffset(topic=worked.topic, partition=0, start_offset=1)]),
            *admin.delete_offsets(group, [worked.topic]),
            admin.delete_group(group),
        ]
    assert [(r.outcome, r.error_code) for r in results] == [(Outcome.REFUSED, 68)] * 3


@pytest.mark.broker
@pytest.mark.full
def test_a_broker_that_knows_no_lag_leaves_it_unknown() -> None:
    """Kafka 4.1 describes start offsets without lag: it is None, never a number."""
    with EmbeddedBroker("4.1.2") as broker:
        workload = Workload(broker.config())
        workload.create_topic("orders")
        workload.produce("orders", 10)
        workload.acknowledge("g", "orders", 10)
        with ShareGroupAdmin(broker.config()) as admin:
            found = admin.capabilities()
            (offset,) = admin.describe_offsets("g")
            (lost,) = admin.alter_offsets("g", [NewStartOffset(topic="orders", partition=0, start_offset=3)])
    assert (found.release, found.describes_share_groups, found.reports_lag) == ("4.1", True, False)
    assert offset.start_offset is not None
    assert offset.lag is None
    assert not found.resets_share_groups
    assert lost.outcome is Outcome.NOT_ATTEMPTED, "a reset that does nothing is no success"


_SHORT_SESSIONS = {
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "2000",
}
_MEMBER = """
import sys
from confluent_kafka import ShareConsumer
consumer = ShareConsumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2]})
consumer.subscribe([sys.argv[3]])
while True:
    consumer.poll(0.2)
"""


def test_epochs_grow_with_members_subscriptions_and_partitions(admin: ShareGroupAdmin, workload: Workload) -> None:
    """R002-01, R002-02, R002-04: the group epoch grows when a member joins, subscribes to another topic, when that
    topic gets a partition, and when the member leaves; while nothing happens it stays."""
    name = f"epochs-{uuid4().hex[:8]}"
    first, second = f"{name}-first", f"{name}-second"
    for topic in (first, second):
        workload.create_topic(topic)
    epochs: list[int] = []

    def settled(topic: str, partitions: int) -> int | None:
        """The epoch, once the one member reads `partitions` of `topic`."""
        consumer.poll(0.2)
        group = admin.describe_groups([name])[0]
        wanted = [(part.topic, len(part.partitions)) for member in group.members for part in member.assignment]
        return group.group_epoch if wanted == [(topic, partitions)] else None

    with workload.share_consumer(name, first) as consumer:
        epochs.append(until(lambda: settled(first, 1), what="an assignment"))
        assert [settled(first, 1) for _ in range(5)] == epochs * 5
        consumer.subscribe([second])
        epochs.append(until(lambda: settled(second, 1), what="the other topic"))
        workload.add_partitions(second, 2)
        epochs.append(until(lambda: settled(second, 2), what="the new partition"))
    epochs.append(admin.describe_group(name).group_epoch or 0)

    assert all(before < after for before, after in pairwise(epochs))


@pytest.mark.broker
@pytest.mark.full
def test_epochs_grow_when_a_dead_member_is_removed() -> None:
    """R002-03, R001-29: a member that was killed counts as one until its session ends; then the coordinator takes it
    out, with a new group epoch."""
    with EmbeddedBroker(properties=_SHORT_SESSIONS) as broker, ShareGroupAdmin(broker.config()) as admin:
        Workload(broker.config()).create_topic("orders")
        command = [sys.executable, "-c", _MEMBER, broker.bootstrap_servers, "g", "orders"]
        with subprocess.Popen(command) as member:
            try:
                until(lambda: admin.describe_groups(["g"])[0].members, what="a member")
            finally:
                member.kill()
        left_behind = admin.describe_group("g")
        assert left_behind.members
        until(lambda: not admin.describe_group("g").members, what="the session's end")
        after = admin.describe_group("g")

    assert (after.group_epoch or 0) > (left_behind.group_epoch or 0)


Defaults = dict[str, str | None]

CONFIGS: Final[dict[str, Defaults]] = tomllib.loads(
    Path(__file__).with_name("documented_configs.toml").read_text("utf-8")
)
GONE: Final = {"group.share.enable", "group.share.max.groups", "group.share.record.lock.duration.max.ms"}
"""In the documents, and not in what was released."""


@pytest.fixture(scope="module")
def defaults(workload: Workload) -> Defaults:
    """The broker's own default of every configuration, not the value it was started with."""
    node = next(iter(workload.admin.list_topics(timeout=120).brokers))
    (found,) = workload.admin.describe_configs([ConfigResource(ResourceType.BROKER, str(node))]).values()
    return {
        name: said.value
        for name, entry in found.result(timeout=120).items()
        for said in entry.synonyms.values()
        if said.source == ConfigSource.DEFAULT_CONFIG.value
    }


def test_defaults_are_as_documented_or_as_released(defaults: Defaults) -> None:
    """R000-23, R001-24 to R001-37, R002-15 to R002-29, R002-31 to R002-34: proposed values are the defaults
    of brokers, or what brokers do counts. Share groups are there by the feature `share.version`: some of the
    configurations are gone, and `share` is none of the protocols that are switched on by name."""
    expected = CONFIGS["documented"] | CONFIGS["released"]
    assert {name: defaults[name] for name in expected} == expected
    assert not defaults.keys() & GONE
    assert "share" not in (defaults["group.coordinator.rebalance.protocols"] or "").split(",")


@pytest.mark.parametrize("version", [pytest.param("4.3.1", marks=pytest.mark.full), "4.4.0"])
def test_limits_are_as_documented_or_as_released(version: str, tmp_path: Path) -> None:
    """R001-25 to R001-28, R001-35, R001-36, R002-17 to R002-20, R002-27, R002-28, R002-34: the limits of
    configurations that have some in the documents are those, or what brokers do counts."""
    lines = compiled(("KafkaLimits.java",), "KafkaLimits", version, tmp_path).run("")
    limits = dict(line.split(" ", 1) for line in lines)
    expected = CONFIGS["limits"] | CONFIGS["released_limits"]

    assert {name: limits[name] for name in expected} == expected
    assert not limits.keys() & GONE


def test_what_share_consumers_do_not_take() -> None:
    """R002-35 to R002-39, R002-42, R002-43: what consumers are configured with is refused by share consumers."""
    for name, value in CONFIGS["not_for_members"].items():
        with pytest.raises(ValueError, match=f"`{name}` is not"):
            ShareConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", name: value})
