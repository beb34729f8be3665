"""A member of a group that holds records back until what they wait for is finished."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from acktrail_simulation.expansion.epoch_log import EpochLog
from acktrail_simulation.expansion.expansion_messages import (
    UNKNOWN_POSITION,
    HeartbeatPartition,
    HeartbeatRequest,
    HeartbeatTopic,
    KeyedRecord,
)
from acktrail_simulation.expansion.position_exchange import PositionExchange

LogOf = Callable[[int], EpochLog]
SourcesOf = Callable[[int, int], Mapping[int, int]]
"""From a partition and the leader epoch of its next record to what it waits for."""


@dataclass(slots=True, kw_only=True)
class GatedMember:
    """`positions`: of the partitions that it owns. `gates`: by partition and leader epoch the offsets to be reached in
    other partitions; empty when open. `known`: the group's positions elsewhere, as the coordinator answered."""

    name: str
    generation: int = 0
    positions: dict[int, int] = field(default_factory=dict)
    gates: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)
    known: dict[int, int] = field(default_factory=dict)
    asked: tuple[int, ...] = ()

    def assign(self, positions: dict[int, int], generation: int) -> None:
        """Begin with other partitions; what was known of others may be theirs no more."""
        self.positions, self.generation = positions, generation
        self.gates, self.known, self.asked = {}, {}, ()

    def fetch(
        self, partition: int, log: EpochLog, most: int, log_of: LogOf, sources_of: SourcesOf
    ) -> list[KeyedRecord]:
        """Deliver at most `most` records of `partition`, up to the next gate. Those that retention took are
        skipped."""
        position = max(self.positions[partition], log.log_start)
        delivered: list[KeyedRecord] = []
        while position < log.end_offset and len(delivered) < most:
            if not self._is_open(partition, log.epoch_at(position), log_of, sources_of):
                break
            end = log.end_of_run(position, most - len(delivered))
            delivered += log.records[position:end]
            position = end
        self.positions[partition] = position
        return delivered

    def heartbeat(self, coordinator: PositionExchange) -> None:
        """Send the positions that were asked for, ask for those that gates wait for, and take the answer."""
        own = [
            HeartbeatPartition(partition=partition, need_position=False, position=self.positions[partition])
            for partition in self.asked
            if partition in self.positions
        ]
        questions = [HeartbeatPartition(partition=source, need_position=True) for source in self._waited_for()]
        partitions = tuple(own + questions)
        answer = coordinator.heartbeat(
            HeartbeatRequest(
                group_id="group",
                generation_id=self.generation,
                member_id=self.name,
                topics=(HeartbeatTopic(topic=coordinator.topic, partitions=partitions),) if partitions else (),
            )
        )
        answered = [each for topic in answer.topics for each in topic.partitions]
        self.asked = tuple(each.partition for each in answered if each.need_position)
        self.known.update(
            (each.partition, each.position)
            for each in answered
            if not each.need_position and each.position != UNKNOWN_POSITION
        )

    def forget(self, partition: int) -> None:
        """The partition is gone: nothing of it counts, for a later one of the same number neither."""
        self.positions.pop(partition, None)
        self.known.pop(partition, None)
        self.gates = {at: gate for at, gate in self.gates.items() if at[0] != partition}
        for gate in self.gates.values():
            gate.pop(partition, None)

    def _is_open(self, partition: int, epoch: int, log_of: LogOf, sources_of: SourcesOf) -> bool:
        gate = self.gates.get((partition, epoch))
        if gate is None:
            sources = sources_of(partition, epoch)
            ends = {source: log_of(source).end_of_epoch(at - 1) for source, at in sources.items()}
            gate = self.gates[partition, epoch] = {source: end for source, end in ends.items() if end}
        while gate:
            source, end = next(iter(gate.items()))
            if self._position(source) < end:
                return False
            del gate[source]
        return True

    def _waited_for(self) -> list[int]:
        """The partitions of others that gates wait for; what was reached is waited for no more."""
        for gate in self.gates.values():
            for source in [each for each, end in gate.items() if self._position(each) >= end]:
                del gate[source]
        return sorted({source for gate in self.gates.values() for source in gate if source not in self.positions})

    def _position(self, partition: int) -> int:
        own = self.positions.get(partition)
        return self.known.get(partition, UNKNOWN_POSITION) if own is None else own
