"""What gates cost: how long new partitions wait for their first delivery in simulated time, and what members ask."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from acktrail_simulation.clock import SimulatedClock
from acktrail_simulation.expansion.expansion_world import ExpansionWorld, WorldShape
from acktrail_simulation.expansion.key_order import inversions


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPace:
    """How fast a group works: each member fetches at most `records` of each partition every `fetch_ms`, and sends its
    heartbeat every `heartbeat_ms` (a multiple), members in turn over that time."""

    fetch_ms: int = 500
    heartbeat_ms: int = 3_000
    records: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class GatingCost:
    """Of one expansion. Waits in milliseconds from its end to the first delivery of a new partition that has records;
    `drained_ms`: until the last partition that was there before reached its fence. `entries`: positions and questions
    in all heartbeats. `inverted`: records that another one of their key and producer overtook."""

    delivered: int
    median_wait_ms: int
    longest_wait_ms: int
    drained_ms: int
    entries: int
    inverted: int


def measure_expansion(
    shape: WorldShape, new_count: int, *, records_a_key: int = 3, pace: GroupPace | None = None
) -> GatingCost:
    """Expand a topic to `new_count` partitions when the group has read nothing of `records_a_key` records of each key
    yet; one more record of each key follows at once. Ends when all are delivered.

    Raises:
        RuntimeError: the group waits for good.
    """
    pace = pace or GroupPace()
    world = ExpansionWorld(shape)
    _produce(world, records_a_key)
    fences = {at: world.log(at).end_offset for at in range(shape.partitions)}
    world.controller.expand(new_count)
    world.deliver_all()
    for producer in world.producers:
        producer.refresh(new_count)
    _produce(world, 1)
    waiting = {at for at in range(shape.partitions, new_count) if world.log(at).end_offset}
    clock, waits, drained = SimulatedClock(now_ms=0), [], 0
    while any(world.position(at) < world.log(at).end_offset for at in range(new_count)):
        clock.advance(pace.fetch_ms)
        _tick(world, pace, clock.now_ms)
        begun = {at for at in waiting if world.position(at)}
        waits += [clock.now_ms] * len(begun)
        waiting -= begun
        if not drained and all(world.position(at) >= end for at, end in fences.items()):
            drained = clock.now_ms
        if clock.now_ms > 1_000 * pace.heartbeat_ms:
            raise RuntimeError(f"{len(waiting)} partitions wait for good")
    return GatingCost(
        delivered=len(world.delivered),
        median_wait_ms=int(median(waits)),
        longest_wait_ms=max(waits),
        drained_ms=drained,
        entries=world.coordinator.entries,
        inverted=len(inversions(world.delivered)),
    )


def _produce(world: ExpansionWorld, times: int) -> None:
    keys = [b"key-%d" % number for number in range(world.shape.keys)]
    for number, producer in enumerate(world.producers):
        for _ in range(times):
            producer.add(keys[number :: len(world.producers)])
        while producer.pending:
            producer.send(world.brokers, 10_000)


def _tick(world: ExpansionWorld, pace: GroupPace, now_ms: int) -> None:
    turns = pace.heartbeat_ms // pace.fetch_ms
    for member in world.members[now_ms // pace.fetch_ms % turns :: turns]:
        member.heartbeat(world.coordinator)
    # The members with the newest partitions first: without gates that is when keys are overtaken.
    for member in reversed(world.members):
        world.fetch(member, pace.records)
