"""A small world that knows every record: producers with old metadata, groups of two kinds, and what looks see of them.

Times are steps. Keys are hashes; each has one producer, so that its records have an order. Consumers commit what they
process at once. Share groups write a state record with each acknowledgement, with the lazy start offset of Kafka.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any, Final

import pyarrow as pa

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.model.delivery import StateBatch
from acktrail.model.offset_history.status_changes import History, StatusChange
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord
from acktrail.model.share_partition import GroupId, SharePartition, TopicId

TOPIC: Final = "t"
STEP_US: Final = 1_000_000
SETTLE: Final = 40
"""Steps that a producer may use the old count."""
ACKED, AVAILABLE = 2, 0


@dataclass(frozen=True)
class Written:
    """A record: when, which key, and by which partition count."""

    step: int
    key: int
    count: int


@dataclass
class ShareState:
    """One share partition in memory: `start` as it is written, states by offset, records since the last snapshot."""

    start: int | None = None
    states: dict[int, int] = field(default_factory=dict)
    epoch: int = 0
    generation: int = 0


@dataclass
class Group:
    """By partition and offset, `closed`: the steps at which the group could get a record again (False) or had finished
    it (True); `delivered`: the steps of deliveries since the last restart, `ever` of all."""

    name: str
    kind: str
    positions: dict[int, int] = field(default_factory=dict)
    shares: dict[int, ShareState] = field(default_factory=dict)
    closed: dict[tuple[int, int], list[tuple[int, bool]]] = field(default_factory=lambda: defaultdict(list))
    delivered: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    ever: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))

    def deliver(self, partition: int, offset: int, step: int) -> None:
        self.delivered[partition, offset].append(step)
        self.ever[partition, offset].append(step)

    def is_open(self, partition: int, offset: int, step: int) -> bool:
        """Whether a record was not finished right before a step."""
        events = [is_closed for at, is_closed in self.closed[partition, offset] if at < step]
        return not (events and events[-1])


@dataclass
class World:
    """Everything, and what was seen of it."""

    chance: Random
    counts: list[tuple[int, int]]
    logs: list[list[Written | None]]
    starts: list[int]
    known: list[int]
    groups: list[Group]
    is_gapless: bool
    pace: tuple[int, ...]
    step: int = 0
    stale_since: list[int] = field(default_factory=list)
    state_log: list[list[tuple[int, StateRecord]]] = field(default_factory=lambda: [[], []])
    skew: tuple[int, int] = (0, 0)
    looks: list[dict[str, Any]] = field(default_factory=list)
    positions: list[dict[str, Any]] = field(default_factory=list)

    @property
    def now(self) -> int:
        """The instant, in microseconds."""
        return (1_000 + self.step) * STEP_US


def random_world(seed: int, steps: int = 160) -> World:
    """A life of one topic that gains partitions once or twice."""
    chance = Random(seed)
    count = chance.randint(1, 3)
    kinds = [chance.choice(("consumer", "share")) for _ in range(2)]
    world = World(
        chance=chance,
        counts=[(0, count)],
        logs=[[] for _ in range(count)],
        starts=[0] * count,
        known=[count, count],
        groups=[Group(f"g{number}-{kind}", kind) for number, kind in enumerate(kinds)],
        is_gapless=chance.random() < 0.7,
        pace=chance.choice(((1, 1, 4), (1, 3, 12))),
        stale_since=[-1, -1],
        skew=(chance.randint(-2, 2), chance.randint(-2, 2)),
    )
    expands = sorted(chance.sample(range(20, 110), chance.randint(1, 2)))
    taste = {group.name: chance.choice(("any", "low", "high")) for group in world.groups}
    every = chance.choice((3, 7, 15))
    for _ in range(steps):
        world.step += 1
        if world.step in expands and len(world.logs) < 9:
            _expand(world)
        _produce(world)
        for group in world.groups:
            if chance.random() < 0.6:
                _consume(world, group, taste[group.name])
        if chance.random() < 0.02:
            _restart(world, chance.choice(world.groups))
            _look(world, most_silent=0)  # a group that is ahead again at the next look is not seen to have been reset
        if chance.random() < 0.01:
            _retain(world)
        if chance.random() < 1 / every:
            _look(world)
    _look(world)
    return world


def _expand(world: World) -> None:
    more = world.chance.randint(1, 3)
    world.logs += [[] for _ in range(more)]
    world.starts += [0] * more
    world.counts.append((world.step, len(world.logs)))
    world.stale_since = [at if at >= 0 else world.step for at in world.stale_since]


def _produce(world: World) -> None:
    chance = world.chance
    for number, since in enumerate(world.stale_since):
        if since >= 0 and (chance.random() < 0.1 or world.step - since >= SETTLE - 2):
            world.known[number], world.stale_since[number] = len(world.logs), -1
    for _ in range(chance.choice((0, 1, 2))):
        number = chance.randrange(2)
        key = 2 * chance.randrange(8) + number
        log = world.logs[key % world.known[number]]
        log.append(Written(world.step, key, world.known[number]))
        if not world.is_gapless and chance.random() < 0.2:
            log.append(None)


def _consume(world: World, group: Group, taste: str) -> None:
    chance, count = world.chance, len(world.logs)
    partition = chance.randrange(count)
    if taste != "any" and chance.random() < 0.8:
        left = [each for each in range(count) if _next(world, group, each) < len(world.logs[each])]
        partition = (min if taste == "low" else max)(left, default=partition)
    if group.kind == "share":
        _acknowledge(world, group, partition)
    else:
        _commit(world, group, partition)


def _next(world: World, group: Group, partition: int) -> int:
    if group.kind == "share":
        own = group.shares.get(partition, ShareState())
        offsets = range(own.start or world.starts[partition], len(world.logs[partition]) + 1)
        return next(each for each in offsets if own.states.get(each) != ACKED)
    return group.positions.get(partition, 0)


def _commit(world: World, group: Group, partition: int) -> None:
    log = world.logs[partition]
    if partition not in group.positions:
        is_latest = world.chance.random() < 0.15
        group.positions[partition] = len(log) if is_latest else world.starts[partition]
        for offset in range(group.positions[partition]):
            group.closed[partition, offset].append((world.step, True))
        return
    at = max(group.positions[partition], world.starts[partition])
    for offset in range(at, min(len(log), at + world.chance.choice(world.pace))):
        group.deliver(partition, offset, world.step)
        group.closed[partition, offset].append((world.step, True))
        at = offset + 1
    group.positions[partition] = at


def _acknowledge(world: World, group: Group, partition: int) -> None:
    log, chance = world.logs[partition], world.chance
    own = group.shares.setdefault(partition, ShareState())
    if not own.generation:
        own.generation = 1
        _write(world, group, partition, own, (), is_snapshot=True)
        return
    if own.start is None:
        own.start = len(log) if chance.random() < 0.15 else world.starts[partition]
        for offset in range(own.start):
            group.closed[partition, offset].append((world.step, True))
    before = own.start
    left = [each for each in range(max(before, world.starts[partition]), len(log)) if own.states.get(each) != ACKED]
    first = chance.randrange(len(left)) if left and chance.random() < 0.3 else 0
    batches = []
    for offset in left[first : first + chance.choice(world.pace)]:
        state = AVAILABLE if log[offset] and chance.random() < 0.1 else ACKED
        own.states[offset] = state
        group.deliver(partition, offset, world.step)
        if state == ACKED:
            group.closed[partition, offset].append((world.step, True))
        batches.append(StateBatch(first_offset=offset, last_offset=offset, delivery_state=state, delivery_count=1))
    if batches:
        _write(world, group, partition, own, tuple(batches), is_snapshot=chance.random() < 0.15)
    while own.states.get(own.start) == ACKED or own.start < world.starts[partition]:
        own.start += 1


def _write(
    world: World, group: Group, partition: int, own: ShareState, batches: tuple[StateBatch, ...], *, is_snapshot: bool
) -> None:
    key = SharePartition(group_id=GroupId(group.name), topic_id=TopicId(TOPIC), partition=partition)
    number = (partition + len(group.name)) % 2
    record: StateRecord
    common: dict[str, Any] = {"key": key, "start_offset": own.start, "delivery_complete_count": None}
    if is_snapshot:
        every = tuple(
            StateBatch(first_offset=offset, last_offset=offset, delivery_state=state, delivery_count=1)
            for offset, state in sorted(own.states.items())
            if offset >= (own.start or 0)
        )
        is_reset = not every
        record = ShareSnapshot(
            **common,
            snapshot_epoch=own.epoch,
            state_epoch=own.generation,
            leader_epoch=0 if is_reset else 1,
            create_timestamp_ms=1,
            write_timestamp_ms=1 if is_reset else 2,
            batches=every,
        )
        own.epoch += 1
    else:
        record = ShareUpdate(**common, snapshot_epoch=own.epoch - 1, leader_epoch=1, batches=batches)
    world.state_log[number].append((world.now // 1_000 + 1_000 * world.skew[number], record))


def _restart(world: World, group: Group) -> None:
    """Back to somewhere before."""
    partition = world.chance.randrange(len(world.logs))
    if group.kind == "share":
        own = group.shares.get(partition)
        if own is None or own.start is None:
            return
        end = own.start
        own.start = target = world.chance.randint(0, end)
        end, own.states = max([end, *(each + 1 for each in own.states)]), {}
        own.generation += 1
        _write(world, group, partition, own, (), is_snapshot=True)
    else:
        if partition not in group.positions:
            return
        end = group.positions[partition]
        group.positions[partition] = target = world.chance.randint(0, end)
    for offset in range(target, end):
        group.delivered[partition, offset].clear()
        if offset >= world.starts[partition]:
            group.closed[partition, offset].append((world.step, False))


def _retain(world: World) -> None:
    partition = world.chance.randrange(len(world.logs))
    old = world.starts[partition]
    world.starts[partition] = world.chance.randint(old, len(world.logs[partition]))
    for group in world.groups:
        for offset in range(old, world.starts[partition]):
            group.closed[partition, offset].append((world.step, True))


def _look(world: World, most_silent: float = 0.05) -> None:
    run = {"cluster_id": "c", "run_id": f"run-{world.step:04}", "topic_id": TOPIC, "topic": "topic", "error_code": 0}
    ends = [len(log) for log in world.logs]
    world.looks.append({"at": world.now, "ends": ends, "starts": [*world.starts]})
    for reading in (1, 2, 3):
        for group in world.groups:
            is_read = (reading != 2) == (group.kind == "share") and world.chance.random() >= most_silent
            own = {**run, "observed_at": world.now + reading, "group_id": group.name, "group_type": group.kind}
            world.positions += [{**own, **each} for each in _seen(world, group) if is_read]


def _seen(world: World, group: Group) -> list[dict[str, Any]]:
    if group.kind != "share":
        return [{"partition": each, "position": at} for each, at in group.positions.items()]
    found = []
    for partition, own in group.shares.items():
        end = len(world.logs[partition])
        finished = sum(1 for each, state in own.states.items() if state == ACKED and each >= (own.start or 0))
        lag = None if own.start is None else end - own.start - finished
        found.append({"partition": partition, "position": own.start, "lag": lag})
    return found


def position_batches(world: World, pieces: int) -> list[list[pa.RecordBatch]]:
    """Rows of ``group_positions`` in pieces of whole instants that follow each other in time."""
    schema = TABLES["group_positions"]
    ordered = sorted(world.positions, key=lambda row: row["observed_at"])
    cuts = sorted(world.chance.sample(range(len(world.looks) + 1), min(pieces, len(world.looks) + 1)))
    edges = [0, *(world.looks[cut]["at"] if cut < len(world.looks) else world.now + 99 for cut in cuts), 2**62]
    found = []
    for begin, end in pairwise(edges):
        rows = [row for row in ordered if begin <= row["observed_at"] < end]
        whole = [{name: row.get(name) for name in schema.names} for row in rows]
        found.append(pa.Table.from_pylist(whole, schema=schema).to_batches())
    return found


def exported(world: World, *, pruned: int = 0, gap: tuple[int, int] | None = None) -> dict[str, list[StatusChange]]:
    """The changes of each share group, by partition and in log order. The first `pruned` records of each state
    partition were never exported, nor those between the two places of `gap`."""
    found: dict[str, list[StatusChange]] = defaultdict(list)
    for number, log in enumerate(world.state_log):
        history = History(number, {})
        for offset, (at, record) in enumerate(log):
            if offset < pruned or (gap and gap[0] <= offset < gap[1]):
                if gap and offset == gap[0] and offset >= pruned:
                    for change in history.gap(offset):
                        found[change.key.group_id].append(change)
                continue
            for change in history.record(record, offset=offset, timestamp_ms=at):
                found[change.key.group_id].append(change)
    return {name: sorted(changes, key=_log_order) for name, changes in found.items()}


def _log_order(change: Any) -> tuple[int, ...]:
    return change.key.partition, change.at.state_partition, change.at.offset, change.first_offset
