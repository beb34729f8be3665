"""A simulated share-partition leader with three members who come at will, and how what it holds is told."""

from __future__ import annotations

from typing import Any

from simulation.leader_random_walk import KEY

from acktrail.model.batches import StateBatch
from acktrail_simulation.clock import SimulatedClock
from acktrail_simulation.coordinator.share_coordinator import ShareCoordinator
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.leader.acknowledgement_batches import AcknowledgementBatch
from acktrail_simulation.leader.acquisition import FetchLimits
from acktrail_simulation.leader.group_settings import ShareGroupSettings
from acktrail_simulation.leader.partition_log import UserPartitionLog
from acktrail_simulation.leader.share_partition_cache import SharePartitionCache
from acktrail_simulation.leader.share_partition_leader import SharePartitionLeader
from acktrail_simulation.messages.persister_messages import StateInitialize

__all__ = ["LeaderFixture", "held", "spread"]


class LeaderFixture:
    """A leader over a log of batches, with three members who come at will."""

    def __init__(self, *sizes: int, start: int = 0, **settings: Any) -> None:
        self.clock = SimulatedClock()
        self.log = UserPartitionLog(start_offset=start, end_offset=start)
        for size in sizes:
            self.log.append(size)
        self.coordinator = ShareCoordinator(partition_counts={KEY.topic_id: 1}, clock=self.clock)
        self.coordinator.answer(StateInitialize(key=KEY, state_epoch=1, start_offset=start))
        self.settings = ShareGroupSettings(**settings)
        self.leader = self.led(0)

    def led(self, epoch: int) -> SharePartitionLeader:
        """A new leader."""
        self.leader = SharePartitionLeader(
            KEY,
            leader_epoch=epoch,
            log=self.log,
            persister=self.coordinator.answer,
            clock=self.clock,
            settings=self.settings,
        )
        assert self.leader.load() is ErrorCode.NONE
        return self.leader

    def fetch(self, member: str = "m", most: int = 500, **limits: Any) -> list[tuple[int, int, int]]:
        """First and last offset and delivery count of what a member gets."""
        found = self.leader.fetch(
            FetchLimits(
                member_id=member, most_records=most, **{"batch_size": 500, "now_ms": self.clock.now_ms, **limits}
            ),
            max_bytes=10_000,
        )
        return [(part.first_offset, part.last_offset, part.delivery_count) for part in found]

    def say(self, first: int, last: int, *types: int, member: str = "m") -> ErrorCode:
        """Acknowledge, by one type or one an offset."""
        return self.leader.acknowledge(
            member, (AcknowledgementBatch(first_offset=first, last_offset=last, types=types),)
        )

    def wait(self, milliseconds: int) -> int:
        """Time passes; how many locks end."""
        self.clock.advance(milliseconds)
        return self.leader.end_locks()

    def durable(self) -> list[tuple[int, int, int, int]]:
        """The batches that the coordinator holds."""
        state = self.coordinator.memory.states[KEY]
        return [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in state.batches]


def held(cache: SharePartitionCache) -> list[StateBatch]:
    """What a leader has in memory at or above its start offset."""
    return [
        StateBatch(first_offset=first, last_offset=last, delivery_state=part.state, delivery_count=part.delivery_count)
        for batch in cache.batches
        for first, last, part in batch.parts()
        if last >= cache.start_offset
    ]


def spread(found: list[tuple[int, int, int, int]]) -> list[StateBatch]:
    """Batches of first and last offset, state and count."""
    return [
        StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in found
    ]
