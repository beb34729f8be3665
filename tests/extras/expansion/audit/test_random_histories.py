"""In worlds that know every record nothing is called safe that was overtaken, and nothing broken that was not.

The worlds are small: producers with old metadata, groups of two kinds, and what looks see of them. Times are steps.
Keys are hashes; each has one producer, so that its records have an order. Consumers commit what they process at once.
Share groups write a state record with each acknowledgement, with the lazy start offset of Kafka.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from definitions.status_history import History, change_table
from extras.expansion.support.rows import BEGIN, Looks, audit, put
from jobs.world import batch, snapshot, update

from acktrail.model.batches import StateBatch
from acktrail.model.offset_changes import StatusChange
from acktrail.model.records import StateRecord, Tombstone
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail.tables.delta.store import Tables
from acktrail_expansion.audit import audit_run
from acktrail_expansion.ordering.order import KeyMapping, sources_of

EXPORTS: list[dict[str, Any]] = [
    *({}, {}, {"pruned": 5}, {"pruned": 20}, {"gap": range(10, 20)}, {"pruned": 3, "gap": range(30, 31)}),
]
"""What of the state topic was exported."""
Row = dict[str, Any]


def single_steps(world: World) -> set[tuple[str, int, int]]:
    """The changes of the count that looks show as they were."""
    seen = sorted({row["partition_count"] for row in world.seen.observations})
    return {(world.seen.topic_id, *pair) for pair in {*pairwise(seen)} & {*pairwise(world.counts)}}


def audited(folder: Path, worlds: Sequence[World]) -> Tables:
    """One audit of them all, each a topic: files follow each other in time, and topics are divided."""
    seen = Looks(
        observations=[row for world in worlds for row in world.seen.observations],
        positions=[row for world in worlds for row in world.seen.positions],
    )
    config = seen.filled(folder, [change for world in worlds for change in single_steps(world)])
    changes = [change for world in worlds for change in world.exported(**world.chance.choice(EXPORTS))]
    put(Tables(config), "delivery_history", change_table(changes).to_pylist())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit_run, "_PIECE", 1)
        patch.setattr(audit_run, "_PARTITIONS", 1)
        audit(config, "crc32", f"{SETTLE}s")
    return Tables(config)


def overtaken(world: World, row: Row, event: Row) -> list[tuple[Any, ...]]:
    """Records by an earlier count that were not finished when a later record of the destination, by the new count, was
    delivered: any of its sources, and those of the same key anywhere else."""
    group = next(each for each in world.groups if each.name == row["group_id"])
    to, count = row["partition"], event["new_count"]
    sources = sources_of(to, event["old_count"], count, KeyMapping.CRC32)
    later = [
        (record, min(group.delivered[to, offset]))
        for offset, record in enumerate(world.logs[to])
        if record is not None and record.count == count and group.delivered[to, offset]
    ]
    return [
        (source, offset, begun)
        for source, log in enumerate(world.logs)
        for offset, record in enumerate(log)
        if source != to and record is not None and record.count < count
        for other, begun in later
        if (source in sources or other.key == record.key) and record.step <= min(begun, other.step)
        if group.is_open(source, offset, begun)
    ]


def was_open(world: World, row: Row, event: Row) -> bool:
    """Whether a record of the source below the low fence was open when some record of the destination from after the
    expansion was delivered. A group that was reset, and was ahead again at the next look, is not seen to be; and
    of the destination an offset is taken for a record."""
    group = next(each for each in world.groups if each.name == row["group_id"])
    to, source = row["partition"], row["source_partition"]
    steps = [
        step
        for offset, record in enumerate(world.logs[to])
        if record is None or record.count > event["old_count"]
        for step in group.ever[to, offset]
    ]
    records = [n for n, record in enumerate(world.logs[source][: row["fence_low"]]) if record is not None]
    return any(group.is_open(source, offset, step) for offset in records for step in steps)


def check(folder: Path, seeds: Iterable[int]) -> Counter[str]:
    """Judge worlds; gives how many verdicts of each kind there were."""
    worlds = {world.seen.topic_id: world for world in map(World, seeds)}
    tables = audited(folder, [*worlds.values()])
    events = {row["event_id"]: row for row in tables.rows("partition_expansions")}
    for row in tables.rows("expansion_fences"):
        ends = row["fence_low"], row["fence_high"]
        assert (row["reason"] is None) == (None not in ends), row
        assert row["reason"] or ends[0] <= ends[1], row
    counts: Counter[str] = Counter()
    for row in tables.rows("expansion_verdicts"):
        world, event = worlds[row["topic_id"]], events[row["event_id"]]
        counts[f"{row['group_type']} {row['verdict']} {row['reason'] or row['evidence']}"] += 1
        if row["verdict"] == "safe":
            assert not overtaken(world, row, event), row
        if row["verdict"] == "broken":
            assert was_open(world, row, event), row
    return counts


def test_verdicts_are_true(tmp_path: Path) -> None:
    """R003-01, R003-02, R003-11: some worlds, one whose last fence has no high end yet and a low end above all
    others; each proof occurs."""
    counts = check(tmp_path, [*range(100), 13_474])
    kinds = {"consumer broken commits", "consumer safe commits", "share broken state_records"}
    assert kinds | {"share safe state_records", "share safe lag", "consumer not_proven expired"} <= counts.keys()


@pytest.mark.full
def test_verdicts_are_true_in_many_worlds(tmp_path: Path) -> None:
    """R003-01: 5,000 more."""
    for first in range(10_000, 15_000, 500):
        check(tmp_path / str(first), range(first, first + 500))


SETTLE: Final = 40
"""Steps that a producer may use the old count: seconds."""
ACKED, AVAILABLE = 2, 0
Offset = tuple[int, int]
"""A partition, and an offset in it."""


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
    """`closed`: the steps at which the group could get a record again (False) or had finished it (True); `delivered`:
    the steps of deliveries since the last restart, `ever` of all."""

    kind: str
    name: str
    taste: str
    positions: dict[int, int] = field(default_factory=dict)
    shares: dict[int, ShareState] = field(default_factory=dict)
    closed: dict[Offset, list[tuple[int, bool]]] = field(default_factory=lambda: defaultdict(list))
    delivered: dict[Offset, list[int]] = field(default_factory=lambda: defaultdict(list))
    ever: dict[Offset, list[int]] = field(default_factory=lambda: defaultdict(list))

    def deliver(self, partition: int, offset: int, step: int) -> None:
        self.delivered[partition, offset].append(step)
        self.ever[partition, offset].append(step)

    def close(self, partition: int, offsets: Iterable[int], step: int, *, is_closed: bool = True) -> None:
        for offset in offsets:
            self.closed[partition, offset].append((step, is_closed))

    def is_open(self, partition: int, offset: int, step: int) -> bool:
        """Whether a record was not finished right before a step."""
        events = [is_closed for at, is_closed in self.closed[partition, offset] if at < step]
        return not (events and events[-1])


class World:
    """The life of one topic that gains partitions once or twice, and what was seen of it."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = Random(seed)
        count = chance.randint(1, 3)
        self.seen, self.step, self.counts, self.starts = Looks(f"topic-{seed}"), 0, [count], [0] * count
        self.logs: list[list[Written | None]] = [[] for _ in range(count)]
        self.groups = [
            Group(kind, f"g{number}-{kind}", chance.choice(("any", "low", "high")))
            for number, kind in enumerate(chance.choices(("consumer", "share"), k=2))
        ]
        self.known, self.stale_since = [count, count], [-1, -1]
        self.is_gapless, self.pace = chance.random() < 0.7, chance.choice(((1, 1, 4), (1, 3, 12)))
        self.state_log: list[list[tuple[int, StateRecord]]] = [[], []]
        self.skew = [chance.randint(-2, 2), chance.randint(-2, 2)]
        self._live(steps=160)

    def _live(self, steps: int) -> None:
        chance = self.chance
        expands, every = chance.sample(range(20, 110), chance.randint(1, 2)), chance.choice((3, 7, 15))
        for self.step in range(1, steps):
            if self.step in expands:
                self._expand()
            self._produce()
            for group in self.groups:
                if chance.random() < 0.6:
                    self._consume(group)
            if chance.random() < 0.02:
                self._restart(chance.choice(self.groups))
                self._look(most_silent=0)  # a group that is ahead again at the next look is not seen to have been reset
            if chance.random() < 0.02:
                self._retain()
            if chance.random() < 1 / every:
                self._look()
        self._look()

    def _expand(self) -> None:
        more = self.chance.choice((1, 2, len(self.logs)))
        self.logs += [[] for _ in range(more)]
        self.starts += [0] * more
        self.counts.append(len(self.logs))
        self.stale_since = [at if at >= 0 else self.step for at in self.stale_since]

    def _produce(self) -> None:
        chance = self.chance
        for number, since in enumerate(self.stale_since):
            if since >= 0 and (chance.random() < 0.1 or self.step - since >= SETTLE - 2):
                self.known[number], self.stale_since[number] = len(self.logs), -1
        for _ in range(chance.choice((0, 1, 2))):
            number = chance.randrange(2)
            key = 2 * chance.randrange(8) + number
            log = self.logs[key % self.known[number]]
            log.append(Written(self.step, key, self.known[number]))
            if not self.is_gapless and chance.random() < 0.2:
                log.append(None)

    def _consume(self, group: Group) -> None:
        chance, count = self.chance, len(self.logs)
        partition = chance.randrange(count)
        if group.taste != "any" and chance.random() < 0.8:
            left = [each for each in range(count) if self._left(group, each)]
            partition = (min if group.taste == "low" else max)(left, default=partition)
        (self._acknowledge if group.kind == "share" else self._commit)(group, partition)

    def _left(self, group: Group, partition: int) -> list[int]:
        """The offsets that a group can get."""
        if group.kind != "share":
            begin = max(group.positions.get(partition, 0), self.starts[partition])
            return [*range(begin, len(self.logs[partition]))]
        own = group.shares.get(partition, ShareState())
        begin = max(own.start or 0, self.starts[partition])
        return [each for each in range(begin, len(self.logs[partition])) if own.states.get(each) != ACKED]

    def _placed(self, group: Group, partition: int) -> int:
        """Where a group begins that never was in a partition."""
        start = len(self.logs[partition]) if self.chance.random() < 0.15 else self.starts[partition]
        group.close(partition, range(start), self.step)
        return start

    def _commit(self, group: Group, partition: int) -> None:
        if partition not in group.positions:
            group.positions[partition] = self._placed(group, partition)
            return
        some = self._left(group, partition)[: self.chance.choice(self.pace)]
        for offset in some:
            group.deliver(partition, offset, self.step)
        group.close(partition, some, self.step)
        group.positions[partition] = max([group.positions[partition], self.starts[partition], *(n + 1 for n in some)])

    def _acknowledge(self, group: Group, partition: int) -> None:
        chance, own = self.chance, group.shares.setdefault(partition, ShareState())
        if not own.generation:
            own.generation = 1
            self._write(group, partition, is_snapshot=True)
            return
        own.start = self._placed(group, partition) if own.start is None else own.start
        left = self._left(group, partition)
        first = chance.randrange(len(left)) if left and chance.random() < 0.3 else 0
        some = left[first : first + chance.choice(self.pace)]
        for offset in some:
            group.deliver(partition, offset, self.step)
            own.states[offset] = AVAILABLE if self.logs[partition][offset] and chance.random() < 0.1 else ACKED
        group.close(partition, (each for each in some if own.states[each] == ACKED), self.step)
        if some:
            batches = (batch(each, each, own.states[each]) for each in some)
            self._write(group, partition, *batches, is_snapshot=chance.random() < 0.15)
        while own.states.get(own.start) == ACKED or own.start < self.starts[partition]:
            own.start += 1

    def _write(self, group: Group, partition: int, *batches: StateBatch, is_snapshot: bool = False) -> None:
        own, number = group.shares.get(partition), (partition + len(group.name)) % 2
        key = SharePartition(group_id=GroupId(group.name), topic_id=TopicId(self.seen.topic_id), partition=partition)
        record: StateRecord = update(key, own.start or 0, 0, batches) if own else Tombstone(key=key)
        if own and is_snapshot:
            every = tuple(batch(at, at, own.states[at]) for at in sorted(own.states) if at >= (own.start or 0))
            epochs = {"snapshot_epoch": own.epoch, "state_epoch": own.generation, "leader_epoch": len(every)}
            record = snapshot(key, own.start, every, **epochs, write_timestamp_ms=1_000 + len(every))
            own.epoch += 1
        at = int(BEGIN.timestamp()) + self.step + self.skew[number]
        self.state_log[number].append((at * 1_000, record))

    def _restart(self, group: Group) -> None:
        """Back to somewhere before, or its state is deleted."""
        partition = self.chance.randrange(len(self.logs))
        own = group.shares.get(partition, ShareState())
        end = own.start if group.kind == "share" else group.positions.get(partition)
        if end is None:
            return
        is_deleted = group.kind == "share" and self.chance.random() < 0.2
        target = 0 if is_deleted else self.chance.randint(0, end)
        if group.kind == "share":
            end, own.start, own.states = max([end, *(each + 1 for each in own.states)]), target, {}
            own.generation += 1
            if is_deleted:
                del group.shares[partition]
            self._write(group, partition, is_snapshot=True)
        else:
            group.positions[partition] = target
        for offset in range(target, end):
            group.delivered[partition, offset].clear()
        group.close(partition, range(max(target, self.starts[partition]), end), self.step, is_closed=False)

    def _retain(self) -> None:
        partition = self.chance.randrange(len(self.logs))
        old = self.starts[partition]
        self.starts[partition] = self.chance.randint(old, len(self.logs[partition]))
        for group in self.groups:
            group.close(partition, range(old, self.starts[partition]), self.step)

    def _look(self, most_silent: float = 0.05) -> None:
        said = "straddles" if self.chance.random() < 0.03 else "consistent"
        minute, ends = self.step / 60, [len(log) for log in self.logs]
        self.seen.look(minute, ends, {}, starts=self.starts, consistency=said, is_gapless=self.is_gapless)
        for reading in (1, 2, 3):
            for group in self.groups:
                if (reading != 2) == (group.kind == "share") and self.chance.random() >= most_silent:
                    self.seen.place(minute + reading / 6_000, group.name, group.kind, self._positions(group))

    def _positions(self, group: Group) -> Iterator[dict[str, Any]]:
        for partition, position in group.positions.items():
            yield {"partition": partition, "position": position}
        for partition, own in group.shares.items():
            lag = None if own.start is None else len(self._left(group, partition))
            yield {"partition": partition, "position": own.start, "lag": lag}

    def exported(self, *, pruned: int = 0, gap: range = range(0)) -> list[StatusChange]:
        """The changes of each share group. The first `pruned` records of each state partition were never exported, nor
        those at the places of `gap`."""
        found: list[StatusChange] = []
        for number, log in enumerate(self.state_log):
            history = History(number, {})
            for offset, (at, record) in enumerate(log[pruned:], start=pruned):
                if offset in gap:
                    found += history.gap(offset) if offset == gap[0] else ()
                else:
                    found += history.record(record, offset=offset, timestamp_ms=at)
        return found
