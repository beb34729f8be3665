"""In worlds that know every record nothing is called safe that was overtaken, and nothing broken that was not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from definitions.status_history import change_table
from expansion.simulation.random_histories import SETTLE, World
from expansion.support.seen_looks import Looks, audit, put

from acktrail.executors import InProcess
from acktrail.tables.delta.store import Tables
from acktrail_expansion.audit import audit_run
from acktrail_expansion.law.order import KeyMapping, sources_of

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
        patch.setattr(InProcess, "count", 3)
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
    counts = check(tmp_path, [*range(150), 13_474])
    kinds = {"consumer broken commits", "consumer safe commits", "share broken state_records"}
    assert kinds | {"share safe state_records", "share safe lag", "consumer not_proven expired"} <= counts.keys()


@pytest.mark.full
def test_verdicts_are_true_in_many_worlds(tmp_path: Path) -> None:
    """R003-01: 5,000 more."""
    for first in range(10_000, 15_000, 500):
        check(tmp_path / str(first), range(first, first + 500))
