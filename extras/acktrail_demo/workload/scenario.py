"""What the demo workload is going to do, decided from a seed before anything runs. Pure."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from acktrail.model.queue_status import QueueStatus

HOSTILE_GROUP: Final = 'Zahlung "prüfen": 💸 <b>eilig</b> ../a\'b; --'
"""Names that users really give to groups: quotes, umlauts, an emoji, colons, markup, a path and a piece of SQL."""

DELIVERY_COUNT_LIMIT: Final = 3
"""What the group with poison records asks for where a group can ask (Kafka 4.3 and later)."""

ALWAYS: Final = 1_000_000
"""Releases of a record that the broker archives at the delivery count limit."""

FAULT_GROUP: Final = "stock-keeping"
"""The group that a demo's faults happen to."""
FAULT_TOPIC: Final = "stock-moves"
FAULT_RECORDS: Final = 100
"""Records of each partition of that topic."""

MISBEHAVING: Final = MappingProxyType(
    {"label-printing": QueueStatus.LOSS_UNSEEN, "invoice-archive": QueueStatus.UNATTENDED}
)
"""Groups whose consumers reject, or release, every record that they get, and leave; the status that remains."""

_FROM_THE_BEGINNING: Final = {"share.auto.offset.reset": "earliest"}
_FEW: Final = 3
_MOST_EXHAUSTED: Final = 8
"""In a partition: a broker hands out records that are about to be archived one at a time."""


class Action(StrEnum):
    """An acknowledgement."""

    ACCEPT = "accept"
    RELEASE = "release"
    REJECT = "reject"


class GroupScript(StrEnum):
    """What happens to a group."""

    CONSUME = "consume"
    STOP_AND_LAG = "stop and lag"
    NEVER_START = "never start"
    DELETE_GROUP = "delete group"
    DELETE_TOPIC = "delete topic"
    RECREATE_TOPIC = "recreate topic"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PartitionLog:
    """One partition of one incarnation of a topic; incarnations count from 1."""

    topic: str
    incarnation: int = 1
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRecord:
    """A record to produce, with the offset it gets in a topic that has no other producer."""

    partition: int
    offset: int
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """One incarnation of a topic; each wave is a batch of records, in order."""

    name: str
    incarnation: int = 1
    partitions: int
    waves: tuple[tuple[DemoRecord, ...], ...] = ()

    @property
    def logs(self) -> tuple[PartitionLog, ...]:
        return tuple(
            PartitionLog(topic=self.name, incarnation=self.incarnation, partition=p) for p in range(self.partitions)
        )

    def end_offset(self, partition: int, *, waves: int | None = None) -> int:
        """The partition's end offset after the first `waves` waves (all of them without it)."""
        return sum(record.partition == partition for wave in self.waves[:waves] for record in wave)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPlan:
    """What a consumer does with a record: release it `releases` times, then `final`; a final release is the last thing
    that the consumer does."""

    releases: int = 0
    final: Action = Action.ACCEPT


RecordPlans = Mapping[tuple[PartitionLog, int], RecordPlan]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """A share group. Records without a plan are accepted at once. `configs` are GROUP configs."""

    group_id: str
    script: GroupScript
    topics: tuple[TopicPlan, ...]
    members: int = 1
    configs: Mapping[str, str] = field(default_factory=lambda: _FROM_THE_BEGINNING)
    record_plans: RecordPlans = field(default_factory=dict)

    def record_plan(self, log: PartitionLog, offset: int) -> RecordPlan:
        return self.record_plans.get((log, offset), RecordPlan())

    @property
    def deleted_topics(self) -> tuple[TopicPlan, ...]:
        """The incarnations of topics that are deleted when the script ends."""
        gone = {GroupScript.DELETE_TOPIC: self.topics[-1:], GroupScript.RECREATE_TOPIC: self.topics[:1]}
        return gone.get(self.script, ())

    @property
    def records_to_settle(self) -> int:
        """How many records the group settles in all."""
        if self.script is GroupScript.NEVER_START:
            return 0
        waves = 2 if self.script is GroupScript.STOP_AND_LAG else None
        return sum(len(wave) for topic in self.topics for wave in topic.waves[:waves])


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything that is going to happen. Equal seeds and scales give equal scenarios."""

    topics: tuple[TopicPlan, ...]
    groups: tuple[GroupPlan, ...]


def plan_scenario(*, seed: int, scale: float = 1.0, fault_partitions: int = 0) -> Scenario:
    """Topics, records and what each group does with each record. `scale` multiplies the number of records (about
    4,300); `fault_partitions`: how many partitions there are for faults to happen to.
    """
    planner = _Planner(seed=seed, scale=scale)
    topics = planner.topics()
    plain = Scenario(topics=tuple(topics.values()), groups=planner.groups(topics))
    return planner.with_faults(plain, fault_partitions) if fault_partitions else plain


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planner:
    seed: int
    scale: float

    def topics(self) -> dict[str, TopicPlan]:
        return {
            "orders": self._topic("orders", 4, 1200, 16, 400, last_of_one=1),
            "payments": self._topic("payments", 3, 900),
            "shipments": self._topic("shipments", 2, 500),
            "returns": self._topic("returns", 2, 300),
            "returns-2025": self._topic("returns-2025", 2, 300),
            "price-changes": self._topic("price-changes", 3, 360),
            "price-changes again": self._topic("price-changes", 2, 300, incarnation=2),
            "newsletters": self._topic("newsletters", 2),
        }

    def groups(self, topics: Mapping[str, TopicPlan]) -> tuple[GroupPlan, ...]:
        payments, orders, shipments = topics["payments"], topics["orders"], topics["shipments"]
        changes, again = topics["price-changes"], topics["price-changes again"]
        limited = {**_FROM_THE_BEGINNING, "share.delivery.count.limit": str(DELIVERY_COUNT_LIMIT)}
        latest = {"share.auto.offset.reset": "latest"}
        script = GroupScript
        return (
            self._group("order-fulfilment", script.CONSUME, orders, members=2),
            self._group(HOSTILE_GROUP, script.CONSUME, payments, record_plans=self._retries(payments)),
            self._group(
                "fraud-scoring", script.CONSUME, payments, record_plans=self._poison(payments), configs=limited
            ),
            self._group("order-analytics", script.STOP_AND_LAG, orders, record_plans=self._left(orders)),
            self._group("shipment-tracking", script.CONSUME, shipments, topics["newsletters"]),
            self._group("churn-model", script.NEVER_START, shipments, configs=latest),
            self._group("spring-campaign", script.DELETE_GROUP, shipments),
            self._group("returns-desk", script.DELETE_TOPIC, topics["returns"], topics["returns-2025"]),
            self._group("price-watch", script.RECREATE_TOPIC, changes, again, record_plans=self._rejections(again)),
        )

    def with_faults(self, plain: Scenario, partitions: int) -> Scenario:
        """A group more that finishes every record of a topic with as many `partitions`, and those that misbehaved."""
        name, ends = FAULT_TOPIC, [0] * partitions
        chance = self._random(FAULT_TOPIC)
        wave = [r for p in range(partitions) for r in _records(name, chance, ends, FAULT_RECORDS, partition=p)]
        topic = TopicPlan(name=name, partitions=partitions, waves=(tuple(wave),))
        group = self._group(FAULT_GROUP, GroupScript.CONSUME, topic)
        shipments = next(each for each in plain.topics if each.name == "shipments")
        finals = {QueueStatus.LOSS_UNSEEN: Action.REJECT, QueueStatus.UNATTENDED: Action.RELEASE}
        misbehaving = (
            self._group(name, GroupScript.CONSUME, shipments, record_plans=_always(shipments, finals[status]))
            for name, status in MISBEHAVING.items()
        )
        return Scenario(topics=(*plain.topics, topic), groups=(*plain.groups, group, *misbehaving))

    def _random(self, *subject: object) -> random.Random:
        return random.Random(f"{self.seed}:{subject}")  # noqa: S311  # a plan to repeat, no secret

    def _topic(
        self, name: str, partitions: int, *counts: int, incarnation: int = 1, last_of_one: int | None = None
    ) -> TopicPlan:
        """A topic with waves of about `counts` records; all of wave `last_of_one` goes to one partition, unscaled."""
        chance = self._random(name, incarnation)
        ends = [0] * partitions
        waves = []
        for number, count in enumerate(counts):
            is_one = number == last_of_one
            scaled = count if is_one else max(16, round(count * self.scale))
            waves.append(tuple(_records(name, chance, ends, scaled, partition=0 if is_one else None)))
        return TopicPlan(name=name, incarnation=incarnation, partitions=partitions, waves=tuple(waves))

    def _group(self, name: str, script: GroupScript, *topics: TopicPlan, **more: object) -> GroupPlan:
        return GroupPlan(group_id=name, script=script, topics=topics, **more)  # type: ignore[arg-type]  # its fields

    def _retries(self, topic: TopicPlan) -> RecordPlans:
        """A tenth of the records is accepted only at the second delivery, some at the third."""
        chance = self._random("retries")
        return {
            (log, offset): RecordPlan(releases=chance.choice((1, 1, 1, 2)))
            for log, offsets in _some(chance, topic, share=0.1)
            for offset in offsets
        }

    def _poison(self, topic: TopicPlan) -> RecordPlans:
        """Some records are rejected at their first or second delivery, some never succeed."""
        chance = self._random("poison")
        found = {}
        for log, offsets in _some(chance, topic, share=0.06):
            exhausted = min(_MOST_EXHAUSTED, (len(offsets) + 1) // 2)
            for offset in offsets[:exhausted]:
                found[log, offset] = RecordPlan(releases=ALWAYS)
            for offset in offsets[exhausted:]:
                found[log, offset] = RecordPlan(releases=chance.choice((0, 0, 1)), final=Action.REJECT)
        return found

    def _rejections(self, topic: TopicPlan) -> RecordPlans:
        places = _some(self._random("rejections"), topic, share=0.03)
        return {(log, offset): RecordPlan(final=Action.REJECT) for log, offsets in places for offset in offsets}

    def _left(self, topic: TopicPlan) -> RecordPlans:
        """The first record of the second wave and some others are released as the consumer stops, some rejected."""
        first, *others = topic.waves[1]
        chosen = self._random("left").sample(others, 2 * _FEW)
        finals = [Action.RELEASE] * (_FEW + 1) + [Action.REJECT] * _FEW
        return {
            (topic.logs[record.partition], record.offset): RecordPlan(final=final)
            for record, final in zip([first, *chosen], finals, strict=True)
        }


def _always(topic: TopicPlan, final: Action) -> RecordPlans:
    """The same for every record of a topic."""
    return {
        (log, offset): RecordPlan(final=final)
        for log in topic.logs
        for offset in range(topic.end_offset(log.partition))
    }


def _some(chance: random.Random, topic: TopicPlan, *, share: float) -> Iterator[tuple[PartitionLog, list[int]]]:
    """Of each log at least one of its offsets, in random order; none of an empty log."""
    for log in topic.logs:
        end_offset = topic.end_offset(log.partition)
        yield log, chance.sample(range(end_offset), min(end_offset, max(1, round(end_offset * share))))


def _records(
    topic: str, chance: random.Random, ends: list[int], count: int, *, partition: int | None = None
) -> Iterator[DemoRecord]:
    """Records of customers, each to its key's partition, or to `partition`; advances `ends`."""
    for _ in range(count):
        number = sum(ends)
        key = f"customer-{chance.randrange(200):03d}".encode()
        where = zlib.crc32(key) % len(ends) if partition is None else partition
        body = {"id": f"{topic}-{number:06d}", "amount_cents": chance.randrange(100, 50_000)}
        yield DemoRecord(partition=where, offset=ends[where], key=key, value=json.dumps(body).encode())
        ends[where] += 1
