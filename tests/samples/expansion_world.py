"""Random worlds of topics that gain partitions and groups that read them, as rows of the ledger's tables."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

BEGIN: Final = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
MS: Final = dt.timedelta(milliseconds=1)
MINUTE: Final = dt.timedelta(minutes=1)
CLUSTER: Final = "c"
_LISTS: Final = (0 * MS, 5 * MS, 900 * MS)
"""How long brokers take to list a topic."""


@dataclass
class _Topic:
    topic_id: str
    name: str
    ends: list[int]
    starts: list[int]
    epochs: dict[int, dict[int, int]] = field(default_factory=dict)
    """Where the records of each leader epoch begin, by partition."""

    def elect(self, partition: int) -> None:
        """Another leader, with the records that there are."""
        begins = self.epochs.setdefault(partition, {1: 0})
        end, epoch = self.ends[partition], max(begins) + 1
        self.epochs[partition] = {each: begin for each, begin in begins.items() if begin < end} | {epoch: end}

    def leader(self, partition: int) -> dict[str, int | None]:
        """What the leader of a partition says of its epochs."""
        begins = sorted(self.epochs.get(partition, {1: 0}).items())
        ended, begin = (begins[-2][0], begins[-1][1]) if len(begins) > 1 else (begins[-1][0] - 1, begins[-1][1])
        return {"leader_epoch": begins[-1][0], "ended_epoch": ended, "epoch_end_offset": begin}


@dataclass
class _Group:
    group_id: str
    group_type: str
    positions: dict[tuple[str, int], int | None] = field(default_factory=dict)


@dataclass
class ExpansionRows:
    """Rows of ``partition_observations`` and of ``group_positions``."""

    observations: list[dict[str, Any]] = field(default_factory=list)
    positions: list[dict[str, Any]] = field(default_factory=list)


def look(
    rows: ExpansionRows,
    minute: int,
    ends: list[int],
    positions: dict[int, int | None],
    *,
    starts: list[int] | None = None,
    group: tuple[str, str] = ("g", "consumer"),
) -> None:
    """One look at one topic and one group."""
    own = {"cluster_id": CLUSTER, "run_id": f"run-{minute:03}", "observed_at": BEGIN + minute * MINUTE}
    topic = {**own, "topic_id": "t", "topic": "topic", "error_code": 0}
    for partition, end in enumerate(ends):
        start = 0 if starts is None else starts[partition]
        rows.observations.append(
            {
                **topic,
                "partition": partition,
                "partition_count": len(ends),
                "consistency": "consistent",
                "leader_epoch": 3,
                "log_start_offset": start,
                "is_gapless": True,
                "log_end_offset": end,
            }
        )
    for partition, position in positions.items():
        row = {**topic, "group_id": group[0], "group_type": group[1], "partition": partition, "position": position}
        rows.positions.append(row)


def random_world(chance: Random, *, runs: int = 14, is_bad: bool = True) -> ExpansionRows:
    """A world in which everything happens that tables can hold: several expansions, resets, deleted offsets, groups
    that come and go, topics that are made again. `is_bad`: also counts that fall, clocks that go back, doubled and
    missing rows, logs that lose records, looks that straddle a change, groups and logs that do not answer."""
    found = ExpansionRows()
    topics = [_topic(chance, number) for number in range(chance.randint(1, 2))]
    kinds = ("consumer", "classic", "share")
    groups = [_Group(f"g{number}", chance.choice(kinds)) for number in range(chance.randint(1, 3))]
    now, used = 0, set[int]()
    for number in range(runs):
        _live(chance, topics, groups, is_bad=is_bad)
        now += chance.choice((100, 400, 1_000, 5_000))
        if is_bad and chance.random() < 0.06:
            now -= chance.choice((50, 700, 3_000))
        while now in used:  # rows of two runs at one instant would be one reading
            now += 10
        used.add(now)
        own = ExpansionRows()
        _observe(chance, own, topics, groups, f"run-{number:03}", now, is_bad=is_bad)
        found.observations += own.observations
        found.positions += own.positions
        if is_bad and chance.random() < 0.1:
            found.observations += own.observations
            found.positions += own.positions
    if is_bad:
        chance.shuffle(found.observations)
        chance.shuffle(found.positions)
    return found


def _topic(chance: Random, number: int) -> _Topic:
    count = chance.randint(1, 4)
    return _Topic(f"id-{number}", f"topic-{number}", [chance.randint(0, 5) for _ in range(count)], [0] * count)


def _live(chance: Random, topics: list[_Topic], groups: list[_Group], *, is_bad: bool) -> None:
    for topic in topics:
        if chance.random() < 0.2 and len(topic.ends) < 12:
            more = chance.randint(1, 3)
            topic.ends += [chance.randint(0, 2) for _ in range(more)]
            topic.starts += [0] * more
        _write(chance, topic, is_bad=is_bad)
        if chance.random() < 0.03:
            topic.topic_id += "+"
            topic.epochs = {}
    for group in groups:
        _read(chance, group, topics)


def _write(chance: Random, topic: _Topic, *, is_bad: bool) -> None:
    for partition in range(len(topic.ends)):
        topic.ends[partition] += chance.choice((0, 0, 1, 3))
        if chance.random() < 0.05:
            topic.starts[partition] = chance.randint(topic.starts[partition], topic.ends[partition])
        if chance.random() < 0.1:
            topic.elect(partition)
    if is_bad and chance.random() < 0.04:
        lost = chance.randrange(len(topic.ends))
        topic.ends[lost] = max(topic.starts[lost], topic.ends[lost] - 4)
        if chance.random() < 0.8:
            topic.elect(lost)
            topic.ends[lost] += chance.randint(0, 8)


def _read(chance: Random, group: _Group, topics: list[_Topic]) -> None:
    joins = chance.random() < 0.3
    for topic in topics:
        for partition, end in enumerate(topic.ends):
            key = (topic.topic_id, partition)
            at = group.positions.get(key)
            if at is None:
                if joins or chance.random() < 0.1:
                    group.positions[key] = chance.choice((0, topic.starts[partition], end))
                continue
            event = chance.random()
            if event < 0.02:
                group.positions[key] = None
            elif event < 0.05:
                group.positions[key] = chance.randint(0, max(0, at))
            else:
                group.positions[key] = max(at, min(end, at + chance.choice((0, 0, 1, 2, 6))))
    if chance.random() < 0.02:
        group.positions.clear()


def _observe(
    chance: Random,
    found: ExpansionRows,
    topics: list[_Topic],
    groups: list[_Group],
    run_id: str,
    now: int,
    *,
    is_bad: bool,
) -> None:
    at = BEGIN + now * MS
    seen = {}
    for topic in topics:
        own = {"cluster_id": CLUSTER, "run_id": run_id, "observed_at": at, "topic": topic.name}
        if is_bad and chance.random() < 0.08:
            found.observations.append({**own, "topic_id": None, "partition": None, "error_code": 5, "error": "x"})
            continue
        count = len(topic.ends)
        if is_bad and chance.random() < 0.05:
            count = chance.randint(1, count)
        seen[topic.topic_id] = topic
        own |= {"topic_id": topic.topic_id, "listed_at": None if chance.random() < 0.2 else at + chance.choice(_LISTS)}
        found.observations += _topic_rows(chance, own, topic, count, is_bad=is_bad)
    shares = [group for group in groups if group.group_type == "share"]
    others = [group for group in groups if group.group_type != "share"]
    for after, read in ((1, shares), (2, others), (3, shares)):
        for group in read:
            found.positions += _group_rows(chance, group, seen, run_id, at + after * MS, is_bad=is_bad)
            _read(chance, group, topics)


def _topic_rows(
    chance: Random, own: dict[str, Any], topic: _Topic, count: int, *, is_bad: bool
) -> list[dict[str, Any]]:
    silent = {each for each in range(count) if is_bad and chance.random() < 0.05}
    consistency = "partial" if silent else "consistent"
    if is_bad and chance.random() < 0.08:
        consistency = "straddles"
    is_gapless = chance.choice((*(True,) * 40, False, None)) if is_bad else True
    return [
        {
            **own,
            "is_gapless": is_gapless,
            "partition": each,
            "partition_count": count,
            "consistency": consistency,
            **({"leader_epoch": None} if is_bad and chance.random() < 0.02 else topic.leader(each)),
            "log_start_offset": None if each in silent else topic.starts[each],
            "log_end_offset": None if each in silent else topic.ends[each],
            "error_code": 7 if each in silent else 0,
        }
        for each in range(count)
        if each == 0 or not is_bad or chance.random() > 0.01
    ]


def _group_rows(
    chance: Random, group: _Group, seen: dict[str, _Topic], run_id: str, at: dt.datetime, *, is_bad: bool
) -> list[dict[str, Any]]:
    own = {
        "cluster_id": CLUSTER,
        "run_id": run_id,
        "observed_at": at,
        "group_id": group.group_id,
        "group_type": group.group_type,
    }
    rows: list[dict[str, Any]] = []
    if is_bad and chance.random() < 0.06:
        return [{**own, "error_code": 15, "error": "silent"}]
    for (topic_id, partition), position in group.positions.items():
        if topic_id not in seen or (position is None and chance.random() < 0.5):
            continue
        error = 3 if is_bad and chance.random() < 0.03 else 0
        rows.append(
            {
                **own,
                "topic_id": topic_id,
                "topic": seen[topic_id].name,
                "partition": partition,
                "position": None if error else position,
                "error_code": error,
            }
        )
    return rows
