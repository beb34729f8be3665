"""Keyed records and groups on a real topic, by a log that knows the order of everything: the truth about a verdict.

One thread does one thing after another, so every delivery and every end of a record has a place in one order. Nothing
here asks acktrail for anything.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import gcd
from typing import Any, Final, Protocol

from broker.workload import Workload, until
from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from drivers.whole_topic import messages_of

from acktrail.broker.client.librdkafka import to_librdkafka
from acktrail.config import KafkaConfig

KEYS: Final = tuple(b"key-%02d" % number for number in range(16))
DELIVERIES: Final = 10
"""Kafka archives a record that was released so often (``group.share.delivery.count.limit``)."""
_NEVER: Final = {"topic.metadata.refresh.interval.ms": -1, "metadata.max.age.ms": 86_400_000}
Place = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True, slots=True)
class Written:
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
        for place in [place for place in self.finished if place[0] in {*partitions}]:
            del self.finished[place]


class Member(Protocol):
    """The one member of a group."""

    log: GroupLog

    def take(self, wanted: set[Place]) -> None:
        """Finish these records, and no others."""

    def close(self) -> None:
        """Leave the group."""


class CommittingMember:
    """Of a consumer or a classic group: it commits what it got of a partition before it
    goes on with another, and pauses what it does not want."""

    def __init__(self, config: KafkaConfig, group: str, protocol: str, topic: str, tick: Callable[[], int]) -> None:
        own: dict[str, Any] = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
        own |= {"enable.auto.commit": False, "topic.metadata.refresh.interval.ms": 300, "log_level": 3}
        if protocol == "classic":
            own |= {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 500}
        self.log, self._topic, self._tick = GroupLog(), topic, tick
        self._wanted, self._uncommitted, self._leaves = set[int](), list[Place](), False
        self._consumer = Consumer({**to_librdkafka(config), **own})
        self._consumer.subscribe([topic], on_assign=self._assign)

    def take(self, wanted: set[Place]) -> None:
        """Partition by partition."""
        for partition in sorted({place[0] for place in wanted}):
            left = {place for place in wanted if place[0] == partition} - self.log.finished.keys()
            self._rest({partition})
            until(lambda left=left: not left or self._read(left), what=f"partition {partition}")  # type: ignore[misc]  # the default binds this round's records
            self._rest(set())
            until(lambda: not self._uncommitted or self._committed(), what="a commit")

    def _read(self, left: set[Place]) -> bool:
        """Read some of `left`, no more; whether none is left."""
        found = [_placed(message) for message in self._consumer.consume(min(len(left), 500), 0.05)]
        for place in found:
            self.log.begun.setdefault(place, self._tick())
        left.difference_update(found)
        self._uncommitted += found
        return not left

    def _committed(self) -> bool:
        """A commit that a rebalance refuses is made after it. Everything is paused: nothing comes meanwhile."""
        assert not self._consumer.consume(1, 0.01)
        partition, offset = max(self._uncommitted)
        try:
            self._consumer.commit(offsets=[TopicPartition(self._topic, partition, offset + 1)], asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION):
                raise
            return False
        self.log.finished |= {place: self._tick() for place in self._uncommitted if place not in self.log.finished}
        self._uncommitted = []
        return True

    def close(self) -> None:
        self._leaves = True
        self._consumer.close()

    def _assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """A consumer that leaves while partitions are assigned takes them and has no say in it any more: `close` would
        wait for an answer of this call."""
        if self._leaves:
            return
        consumer.incremental_assign(partitions)
        self._rest(self._wanted)

    def _rest(self, wanted: set[int]) -> None:
        """Pause all but these partitions. Said anew, it makes the client fetch from its position again: only where
        something changes."""
        self._wanted = wanted
        for each in self._consumer.assignment():
            with suppress(KafkaException):  # not assigned any more
                (self._consumer.resume if each.partition in wanted else self._consumer.pause)([each])


class SharingMember:
    """Of a share group: it accepts what it wants, and releases everything else that comes. What it acknowledges in one
    request is begun and finished at once: a first delivery in progress is not seen."""

    def __init__(self, config: KafkaConfig, group: str, topic: str, tick: Callable[[], int]) -> None:
        own = {"group.id": group, "share.acknowledgement.mode": "explicit", "log_level": 3}
        self.log, self._tick, self._released = GroupLog(), tick, Counter[Place]()
        self._consumer = ShareConsumer({**to_librdkafka(config), **own})
        self._consumer.subscribe([topic])

    def take(self, wanted: set[Place]) -> None:
        until(lambda: not self.step(wanted), what=f"{len(wanted)} records for the share group")

    def step(self, wanted: set[Place]) -> set[Place]:
        """What is left of `wanted` after some more records."""
        if left := wanted - self.log.finished.keys():
            ends, got = set(), set()
            for message in self._consumer.poll(0.2) or ():
                place = _placed(message)
                got.add(place)
                self._released[place] += place not in left
                ends |= {place} if place in left or self._released[place] == DELIVERIES else set()
                self._consumer.acknowledge(
                    message, AcknowledgeType.ACCEPT if place in left else AcknowledgeType.RELEASE
                )
            self._consumer.commit_sync()
            at = self._tick()
            self.log.begun = dict.fromkeys(got, at) | self.log.begun
            self.log.finished |= dict.fromkeys(ends, at)
        return left

    def close(self) -> None:
        self._consumer.close()


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
        self._clock = itertools.count()
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
        own = (self.config, self.group(group_type))
        tick = self._clock.__next__
        if group_type == "share":
            self.workload.configure_group(own[1], share_auto_offset_reset="earliest")
            member: Member = SharingMember(*own, self.name, tick)
        else:
            member = CommittingMember(*own, group_type, self.name, tick)
        self.members[group_type] = member
        return member

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

    def write(self, rounds: int = 1, *, stale: bool = False, keys: Iterable[bytes] = KEYS) -> None:
        """Records of every key, by a producer that just asked for the partitions, or (`stale`) by one that did when
        it first wrote, with the first count, and never again."""
        if stale:
            self._stale = self._stale or Producer({**self._own, **_NEVER})
        producer = self._stale if stale and self._stale is not None else Producer(self._own)
        count = self.counts[0] if stale else self.counts[-1]
        for _ in range(rounds):
            for key in keys:
                producer.produce(self.name, b"", key=key, on_delivery=lambda error, got: self._add(error, got, count))
        assert producer.flush(60) == 0

    def _add(self, error: Any, message: Message, count: int) -> None:
        assert error is None, error
        key, (partition, offset) = message.key(), _placed(message)
        assert isinstance(key, bytes)
        assert partition < count
        self.records.append(Written(key, partition, offset, count))

    def transaction(self, rounds: int, *, commits: bool) -> None:
        """Records of every key in a transaction."""
        known = len(self.records)
        producer = Producer({**self._own, "transactional.id": f"{self.name}-{known}"})
        producer.init_transactions(60)
        producer.begin_transaction()
        count = self.counts[-1]
        for key in KEYS * rounds:
            producer.produce(self.name, b"", key=key, on_delivery=lambda error, got: self._add(error, got, count))
        assert producer.flush(60) == 0
        (producer.commit_transaction if commits else producer.abort_transaction)(60)
        if not commits:
            self.aborted += self.records[known:]
            del self.records[known:]

    def has_count(self, count: int) -> bool:
        """Whether the brokers list so many partitions."""
        return len(self.workload.admin.list_topics(self.name).topics[self.name].partitions) == count

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

    def sources(self, partition: int, old_count: int, new_count: int) -> set[int]:
        """The partitions from which keys come to `partition`."""
        step = gcd(old_count, new_count)
        return {each for each in range(partition % step, old_count, step) if each != partition}

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
        sources, left = self.sources(partition, old_count, new_count), defaultdict(list)
        for record in records:
            end = log.finished.get(record.place)
            is_left = end is None or end > begun or (or_at_once and end == begun)
            if record.partition in sources and record.count <= old_count and is_left:
                left[record.partition].append(record)
        return left
