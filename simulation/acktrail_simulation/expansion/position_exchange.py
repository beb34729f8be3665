"""The coordinator of a group: members learn through heartbeats where the others are."""

from __future__ import annotations

from dataclasses import dataclass, field

from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.expansion.expansion_messages import (
    UNKNOWN_POSITION,
    HeartbeatPartition,
    HeartbeatRequest,
    HeartbeatResponse,
    HeartbeatTopic,
)


@dataclass(slots=True, kw_only=True)
class PositionExchange:
    """`positions`: the group's, by partition, as reported last. `wanted`: partitions that a member asked for since
    their owner's last report. `owners`: the member of each partition. `entries`: how many positions and questions
    travelled, both ways."""

    topic: str
    generation: int = 0
    owners: dict[int, str] = field(default_factory=dict)
    owned: dict[str, list[int]] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)
    wanted: set[int] = field(default_factory=set)
    entries: int = 0

    def assign(self, owners: dict[int, str]) -> None:
        """Begin a generation."""
        self.generation += 1
        self.owners, self.owned = dict(owners), {}
        for partition, owner in owners.items():
            self.owned.setdefault(owner, []).append(partition)

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Take the positions, answer the questions with what is known, and ask the member for what others want.

        A partition that no member reported is answered with -1. A member of an older generation is refused
        (INVALID_REQUEST stands for Kafka's ILLEGAL_GENERATION).
        """
        if request.generation_id != self.generation:
            return HeartbeatResponse(throttle_time_ms=0, topics=(), error_code=ErrorCode.INVALID_REQUEST)
        told: list[HeartbeatPartition] = []
        for topic in request.topics:
            for each in topic.partitions:
                self.entries += 1
                if each.need_position:
                    self.wanted.add(each.partition)
                    known = self.positions.get(each.partition, UNKNOWN_POSITION)
                    told.append(HeartbeatPartition(partition=each.partition, need_position=False, position=known))
                else:
                    self.positions[each.partition] = max(each.position, self.positions.get(each.partition, 0))
                    self.wanted.discard(each.partition)
        asked = self.wanted.intersection(self.owned.get(request.member_id, ()))
        told += [HeartbeatPartition(partition=partition, need_position=True) for partition in sorted(asked)]
        self.entries += len(told)
        topics = (HeartbeatTopic(topic=self.topic, partitions=tuple(told)),) if told else ()
        return HeartbeatResponse(throttle_time_ms=0, topics=topics, error_code=ErrorCode.NONE)

    def forget(self, partition: int) -> None:
        """The partition is gone."""
        self.positions.pop(partition, None)
        self.wanted.discard(partition)
