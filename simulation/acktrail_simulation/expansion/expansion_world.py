"""All of it together, one action at a time: which one comes next is given from outside, as a number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from acktrail_expansion.ordering.order import KeyMapping
from acktrail_simulation.expansion.epoch_log import EpochLog
from acktrail_simulation.expansion.expansion_broker import ExpansionBroker
from acktrail_simulation.expansion.expansion_controller import ExpansionController
from acktrail_simulation.expansion.expansion_messages import KeyedRecord
from acktrail_simulation.expansion.gated_member import GatedMember
from acktrail_simulation.expansion.gating import Gating, sources_of
from acktrail_simulation.expansion.position_exchange import PositionExchange
from acktrail_simulation.expansion.stale_producer import StaleProducer

_MOST_PARTITIONS = 12
"""Up to which `ExpansionWorld.step` expands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldShape:
    """How large a world is, and what holds in it."""

    partitions: int
    gating: Gating
    checks_count: bool
    brokers: int = 2
    producers: int = 2
    members: int = 2
    keys: int = 16
    mapping: KeyMapping = KeyMapping.MURMUR2


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A record that a member got, and where from."""

    partition: int
    record: KeyedRecord


@dataclass(slots=True)
class ExpansionWorld:
    """One topic with its controller, brokers, producers and one group; `delivered`: in the order of the application."""

    shape: WorldShape
    controller: ExpansionController = field(init=False)
    brokers: list[ExpansionBroker] = field(init=False)
    producers: list[StaleProducer] = field(init=False)
    members: list[GatedMember] = field(init=False)
    coordinator: PositionExchange = field(init=False)
    delivered: list[Delivery] = field(default_factory=list)
    _named: dict[str, GatedMember] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = self.shape
        self.controller = ExpansionController(topic="topic", broker_count=shape.brokers)
        self.brokers = [ExpansionBroker(checks_count=shape.checks_count) for _ in range(shape.brokers)]
        self.producers = [
            StaleProducer(number=number, topic="topic", mapping=shape.mapping, partition_count=shape.partitions)
            for number in range(shape.producers)
        ]
        self.members = []
        self.coordinator = PositionExchange(topic="topic")
        self.controller.expand(shape.partitions)
        self.deliver_all()
        self.rebalance(shape.members)

    def log(self, partition: int) -> EpochLog:
        """The log of a partition that is there."""
        return self.brokers[partition % len(self.brokers)].logs[partition]

    def position(self, partition: int) -> int:
        """Where the group is."""
        return self._owner(partition).positions[partition]

    def deliver(self, number: int = 0) -> None:
        """One request of the controller reaches its broker, which answers; new partitions are assigned at once."""
        broker, request = self.controller.outbox.pop(number % len(self.controller.outbox))
        self.brokers[broker].leader_and_isr(request)
        self.controller.answered()
        if self.members and not self.controller.is_busy and len(self._there()) > len(self.coordinator.owners):
            self.rebalance(len(self.members))

    def deliver_all(self) -> None:
        """Until the controller has nothing to send."""
        while self.controller.is_busy:
            self.deliver()

    def rebalance(self, members: int) -> None:
        """Members get ranges of partitions, as by Kafka's ``RangeAssignor``, and begin where the ones before were."""
        positions = {at: position for member in self.members for at, position in member.positions.items()}
        names = [f"member-{number}" for number in range(members)]
        there = self._there()
        owners = {at: names[turn * members // len(there)] for turn, at in enumerate(there)}
        self.coordinator.assign(owners)
        self.members = [GatedMember(name=name) for name in names]
        self._named = {member.name: member for member in self.members}
        for member in self.members:
            own = self.coordinator.owned.get(member.name, ())
            member.assign({at: positions.get(at, 0) for at in own}, self.coordinator.generation)

    def fetch(self, member: GatedMember, most: int) -> int:
        """A member fetches from each of its partitions; how many records it delivers."""
        before = len(self.delivered)
        for partition in member.positions:
            found = member.fetch(partition, self.log(partition), most, self.log, self._sources_of)
            self.delivered += [Delivery(partition=partition, record=record) for record in found]
        return len(self.delivered) - before

    def fetch_one(self, partition: int, most: int) -> None:
        """The owner fetches from this partition alone."""
        found = self._owner(partition).fetch(partition, self.log(partition), most, self.log, self._sources_of)
        self.delivered += [Delivery(partition=partition, record=record) for record in found]

    def remove_empty(self) -> None:
        """Partitions that are marked and have no record are gone."""
        for partition in self.controller.marked:
            log = self.log(partition)
            if log.log_start == log.end_offset:
                self.controller.remove(partition)
                del self.brokers[partition % len(self.brokers)].logs[partition]
                self.coordinator.forget(partition)
                for member in self.members:
                    member.forget(partition)
        self.rebalance(len(self.members))

    def drain(self, rounds: int = 200) -> bool:
        """Let everything run to its end, without another change; whether all records were delivered."""
        self.deliver_all()
        for producer in self.producers:
            for _ in range(len(producer.pending) + 2):
                producer.refresh(self.controller.znode.undeleted_partition_count)
                producer.send(self.brokers, 8)
        for _ in range(rounds):
            for member in self.members:
                member.heartbeat(self.coordinator)
                self.fetch(member, 8)
        return all(self.position(at) >= self.log(at).end_offset for at in self._there())

    def step(self, choice: int) -> None:
        """The action that `choice` (not negative) stands for; one that is not possible does nothing."""
        actions = self._actions()
        actions[choice % len(actions)](choice // len(actions))

    def _actions(self) -> Sequence[Callable[[int], None]]:
        return (
            self._produce,
            self._produce,
            self._produce,
            self._fetch,
            self._fetch,
            self._fetch,
            self._heartbeat,
            self._heartbeat,
            self._deliver,
            self._deliver,
            self._refresh,
            self._expand,
            self._mark,
            self._delete_records,
            self._elect,
            self._rebalance,
        )

    def _produce(self, number: int) -> None:
        producer = self.producers[number % len(self.producers)]
        first = number // len(self.producers)
        producer.add([b"key-%d" % ((first + 5 * each) % self.shape.keys) for each in range(1 + first % 3)])
        if not producer.send(self.brokers, 4):
            producer.refresh(self.controller.znode.undeleted_partition_count)

    def _fetch(self, number: int) -> None:
        there = self._assigned()
        self.fetch_one(there[number % len(there)], 1 + number // len(there) % 3)

    def _heartbeat(self, number: int) -> None:
        self.members[number % len(self.members)].heartbeat(self.coordinator)

    def _deliver(self, number: int) -> None:
        if self.controller.is_busy:
            self.deliver(number)

    def _refresh(self, number: int) -> None:
        self.producers[number % len(self.producers)].refresh(self.controller.znode.undeleted_partition_count)

    def _expand(self, number: int) -> None:
        if not self.controller.is_busy and not self.controller.marked and (larger := self._larger()):
            self.controller.expand(larger[number % len(larger)])

    def _mark(self, number: int) -> None:
        if not self.controller.is_busy and (smaller := self._smaller()):
            self.controller.mark_for_deletion(smaller[number % len(smaller)])

    def _delete_records(self, number: int) -> None:
        if self.controller.is_busy or not (marked := self.controller.marked):
            return
        self.log(marked[number % len(marked)]).delete_all()
        self.remove_empty()

    def _elect(self, number: int) -> None:
        if not self.controller.is_busy:
            there = self._there()
            self.controller.elect(there[number % len(there)])
            self.deliver_all()

    def _rebalance(self, number: int) -> None:
        self.rebalance(1 + number % 3)

    def _larger(self) -> list[int]:
        count = self.controller.znode.undeleted_partition_count
        return self._counts(range(count + 1, min(2 * count, _MOST_PARTITIONS) + 1))

    def _smaller(self) -> list[int]:
        return self._counts(range(1, self.controller.znode.undeleted_partition_count))

    def _counts(self, found: Iterable[int]) -> list[int]:
        """With KIP-253's own rule only multiples and divisors: for others it is not enough."""
        count = self.controller.znode.undeleted_partition_count
        is_kips = self.shape.gating is Gating.LOWER_PARTITIONS
        return [each for each in found if not is_kips or each % count == 0 or count % each == 0]

    def _there(self) -> list[int]:
        """Partitions with a leader."""
        return sorted(number for broker in self.brokers for number in broker.logs)

    def _assigned(self) -> list[int]:
        return sorted(self.coordinator.owners)

    def _owner(self, partition: int) -> GatedMember:
        return self._named[self.coordinator.owners[partition]]

    def _sources_of(self, partition: int, epoch: int) -> dict[int, int]:
        return dict(sources_of(self.shape.gating, self.controller, self.shape.mapping, partition, epoch))
