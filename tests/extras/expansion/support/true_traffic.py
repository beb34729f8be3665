"""Keyed records and groups on a real topic, by a log that knows the order of everything: the truth about a verdict.

One thread does one thing after another, so every delivery and every end of a record has a place in one order. Nothing
here asks acktrail for anything.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import gcd
from operator import itemgetter
from typing import Any, Final, NamedTuple

from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from drivers.whole_topic import messages_of
from servers.workload import Workload, until

from acktrail.config import KafkaConfig
from acktrail.kafka.client.client_settings import to_librdkafka

KEYS: Final = tuple(b"key-%02d" % number for number in range(16))
DELIVERIES: Final = 10
"""Kafka archives a record that was released so often (``group.share.delivery.count.limit``)."""
_NEVER: Final = {"topic.metadata.refresh.interval.ms": -1, "metadata.max.age.ms": 86_400_000}
_SOON: Final = {"topic.metadata.refresh.interval.ms": 200}
"""A share consumer gets records of a new partition once its own metadata has it."""
Place = tuple[int, int]
"""Partition and offset."""


class Written(NamedTuple):
    """A record of the log; `count`: the partitions that its producer knew."""

    key: bytes
    partition: int
    offset: int
    count: int

    @property
    def place(self) -> Place:
        return self.partition, self.offset


@dataclass(slots=True)
class GroupLog:
    """When a group began each record, and when it finished it, on the one clock of all that happens."""

    begun: dict[Place, int] = field(default_factory=dict)
    finished: dict[Place, int] = field(default_factory=dict)

    def reset(self, partitions: Iterable[int]) -> None:
        """The group goes back to the beginning of these partitions."""
        self.finished = {place: at for place, at in self.finished.items() if place[0] not in {*partitions}}


class _Member:
    """The one member of a group. Its `take` finishes the records that are wanted, and no others."""

    def __init__(self, consumer: Any, topic: str, tick: Callable[[], int]) -> None:
        self.log, self._consumer, self._topic, self._tick = GroupLog(), consumer, topic, tick
        consumer.subscribe([topic])

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


class CommittingMember(_Member):
    """Of a consumer or a classic group: it says what it has got of a partition by a commit, before it goes on with
    another. Brokers see nothing else of what it does with records."""

    def take(self, wanted: set[Place]) -> None:
        for partition, own in itertools.groupby(sorted(wanted - self.log.finished.keys()), key=itemgetter(0)):
            places = [*own]
            self.log.begun = {place: self._tick() for place in places} | self.log.begun
            until(partial(self._committed, TopicPartition(self._topic, partition, places[-1][1] + 1)), what="a commit")
            self.log.finished |= {place: self._tick() for place in places}

    def _committed(self, position: TopicPartition) -> bool:
        """A commit that a rebalance refuses is made after it."""
        self._consumer.consume(500, 0.05)
        try:
            return bool(self._consumer.assignment() and self._consumer.commit(offsets=[position], asynchronous=False))
        except KafkaException as error:
            if error.args[0].name() not in ("REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "STALE_MEMBER_EPOCH"):
                raise
            return False


class SharingMember(_Member):
    """Of a share group: it accepts what it wants, and releases everything else that comes. What it acknowledges in one
    request is begun and finished at once: a first delivery in progress is not seen."""

    def __init__(self, consumer: Any, topic: str, tick: Callable[[], int]) -> None:
        super().__init__(consumer, topic, tick)
        self._released = Counter[Place]()

    def take(self, wanted: set[Place]) -> None:
        until(lambda: not self.step(wanted), what=f"{len(wanted)} records for the share group")

    def step(self, wanted: set[Place]) -> set[Place]:
        """What is left of `wanted` after some more records."""
        if left := wanted - self.log.finished.keys():
            got = {_placed(message): message for message in self._consumer.poll(0.2) or ()}
            for place, message in got.items():
                kind = AcknowledgeType.ACCEPT if place in left else AcknowledgeType.RELEASE
                self._consumer.acknowledge(message, kind)
            self._consumer.commit_sync()
            at = self._tick()
            self._released.update(got.keys() - left)
            ends = [place for place in got if place in left or self._released[place] == DELIVERIES]
            self.log.begun = dict.fromkeys(got, at) | self.log.begun
            self.log.finished |= dict.fromkeys(ends, at)
        return left


Member = CommittingMember | SharingMember


def _placed(message: Message) -> Place:
    assert message.error() is None, message.error()
    return message.partition() or 0, message.offset() or 0


class TrueTopic:
    """A topic, its producers and its groups by type. `records`: what consumers can get, in the order of writing;
    `aborted`: what share groups get as well, unless their isolation level says no; `counts`: its partition counts, one
    after the other."""

    def __init__(
        self, config: KafkaConfig, name: str, partitions: int, partitioner: str = "murmur2_random", **configs: str
    ) -> None:
        self.config, self.name, self.counts = config, name, [partitions]
        self.workload = Workload(config)
        self.workload.create_topic(name, partitions, **configs)
        self._tick = itertools.count().__next__
        self.records: list[Written] = []
        self.aborted: list[Written] = []
        self.members: dict[str, Member] = {}
        self._own = {**to_librdkafka(config), "partitioner": partitioner, "log_level": 3}
        self._stale: Producer | None = None

    def group(self, group_type: str) -> str:
        """The id of the group of a type."""
        return f"{group_type}-{self.name}"

    def join(self, group_type: str) -> Member:
        """The member of the group of this type, there from now on."""
        own = {**to_librdkafka(self.config), "group.id": self.group(group_type), "log_level": 3}
        if group_type == "share":
            self.workload.configure_group(self.group(group_type), share_auto_offset_reset="earliest")
            sharing = ShareConsumer({**own, **_SOON, "share.acknowledgement.mode": "explicit"})
            self.members[group_type] = SharingMember(sharing, self.name, self._tick)
        else:
            committing = Consumer({**own, "group.protocol": group_type, "enable.auto.commit": False})
            self.members[group_type] = CommittingMember(committing, self.name, self._tick)
        return self.members[group_type]

    @contextmanager
    def joined(self, group_types: Iterable[str]) -> Iterator[None]:
        """All of them within the block: a consumer that outlives its broker hangs."""
        try:
            for group_type in group_types:
                self.join(group_type)
            yield
        finally:
            for member in self.members.values():
                member.close()

    def write(self, rounds: int = 1, *, stale: bool = False, ends: str = "") -> None:
        """Records of every key, by a producer that just asked for the partitions, or (`stale`) by one that did when it
        first wrote, with the first count, and never again; in a transaction that `ends` by ``commit`` or ``abort``."""
        if stale:
            self._stale = self._stale or Producer({**self._own, **_NEVER})
        known, count = len(self.records), self.counts[0] if stale else self.counts[-1]
        transactional = {"transactional.id": f"{self.name}-{known}"} if ends else {}
        producer = self._stale if stale and self._stale is not None else Producer({**self._own, **transactional})
        if ends:
            producer.init_transactions(60)
            producer.begin_transaction()
        for key in KEYS * rounds:
            producer.produce(self.name, b"", key=key, on_delivery=lambda error, got: self._add(error, got, count))
        assert producer.flush(60) == 0
        if ends:
            getattr(producer, f"{ends}_transaction")(60)
        if ends == "abort":
            self.aborted += self.records[known:]
            del self.records[known:]

    def _add(self, error: Any, message: Message, count: int) -> None:
        assert error is None, error
        key, (partition, offset) = message.key(), _placed(message)
        assert isinstance(key, bytes)
        assert partition < count
        self.records.append(Written(key, partition, offset, count))

    def keep_what_is_there(self) -> None:
        """Forget the records that retention or compaction took."""
        left = {_placed(message) for message in messages_of(to_librdkafka(self.config), self.name)}
        self.records = [record for record in self.records if record.place in left]

    def records_of(self, group_type: str) -> list[Written]:
        """What a group of this type gets."""
        return [*self.records, *(self.aborted if group_type == "share" else ())]

    def places(self, group_type: str, partitions: Iterable[int], share: float = 1) -> set[Place]:
        """The records of a group in these partitions, or the first part of those of each."""
        found: set[Place] = set()
        for partition in partitions:
            own = sorted(each.place for each in self.records_of(group_type) if each.partition == partition)
            found |= {*own[: int(len(own) * share)]}
        return found

    def moved(self, old_count: int, new_count: int) -> dict[bytes, Place]:
        """Keys that moved: from which partition, and to which, as the log shows it."""
        places = {(record.key, record.count): record.partition for record in self.records}
        both = {key: (places.get((key, old_count)), places.get((key, new_count))) for key, _ in places}
        return {key: (a, b) for key, (a, b) in both.items() if a is not None and b is not None and a != b}

    def overtaken(
        self, group_type: str, partition: int, old_count: int, new_count: int, *, or_at_once: bool = False
    ) -> dict[int, list[Written]]:
        """By source, its records from before that the group finished later than it began with one of `partition` that
        was written after, or never; `or_at_once`: or at the same moment. Empty: in order."""
        log, records = self.members[group_type].log, self.records_of(group_type)
        after = [r.place for r in records if r.partition == partition and r.count >= new_count]
        begun = min((log.begun[place] for place in after if place in log.begun), default=None)
        if begun is None:
            return {}
        step, left = gcd(old_count, new_count), defaultdict(list)
        sources = {*range(partition % step, old_count, step)} - {partition}
        for record in records:
            end = log.finished.get(record.place)
            is_left = end is None or end > begun or (or_at_once and end == begun)
            if record.partition in sources and record.count <= old_count and is_left:
                left[record.partition].append(record)
        return left


__all__ = ["commit"]


def commit(admin: AdminClient, group: str, topic: str, *offsets: int) -> None:
    """Commit `offsets` for a group without members, one for each partition from 0 on. The first coordinator of a broker
    loads its state a while."""
    places = [TopicPartition(topic, number, offset) for number, offset in enumerate(offsets)]

    def is_taken() -> bool:
        (done,) = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)]).values()
        return not any(place.error for place in done.result(60).topic_partitions)

    until(is_taken, what=f"the coordinator of {group}")
