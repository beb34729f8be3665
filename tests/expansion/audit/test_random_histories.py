"""In a world that knows every record nothing is called safe that was overtaken, and nothing broken that was not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from expansion.support.random_histories import SETTLE, STEP_US, TOPIC, World, exported, position_batches, random_world

from acktrail_expansion.audit.found_expansions import TopicExpansion, as_expansions, find_expansions, with_stored
from acktrail_expansion.audit.position_marks import gathered, mark_rows
from acktrail_expansion.audit.share_evidence import judged_group
from acktrail_expansion.audit.topic_looks import Logs, LookPlace, TopicLooks
from acktrail_expansion.audit.verdict_rows import check_log_starts, lanes_of, verdict_rows
from acktrail_expansion.law.dependencies import sources_of
from acktrail_expansion.law.key_mapping import KeyMapping


def single_steps(world: World) -> set[tuple[int, int]]:
    """The changes of the count that looks show as they were."""
    seen, true = sorted({len(each["ends"]) for each in world.looks}), [count for _, count in world.counts]
    return {*pairwise(seen)} & {*pairwise(true)}


def audited(world: World, export: dict[str, Any]) -> tuple[list[TopicExpansion], list[dict[str, Any]]]:
    """The expansions that the looks show, and the verdicts. `export`: what of the state topic was exported."""
    seen = world.looks
    at, every = np.array([each["at"] for each in seen]), np.ones(len(seen), np.bool_)
    count = np.array([len(each["ends"]) for each in seen])
    own = TopicLooks("topic", "run", at, at, count, every, every, is_gapless=world.is_gapless)
    looks = {TOPIC: own}
    logs = {(TOPIC, each["at"]): _logs(each) for each in seen}

    def read(wanted: Collection[LookPlace]) -> Mapping[LookPlace, Logs]:
        return {each: logs[each] for each in wanted}

    asked = {(TOPIC, *pair) for pair in single_steps(world)}
    found = find_expansions("c", looks, read, SETTLE * STEP_US, asked)
    newest = {TOPIC: logs[TOPIC, int(at[-1])]}
    expansions = as_expansions(with_stored("c", looks, found, newest, {}), looks, "run", lambda _: KeyMapping.CRC32)
    by_topic = {TOPIC: expansions} if expansions else {}
    if not by_topic:
        return [], []
    lanes = lanes_of(by_topic)
    marks = gathered(mark_rows(lanes, 0, position_batches(world, 3)), lanes)
    changes = exported(world, **export)
    evidence = {
        (name, row["event_id"], row["partition"]): row
        for name, own_changes in changes.items()
        for row in judged_group(expansions, own_changes)
    }
    rows = list(verdict_rows(by_topic, lanes, marks, evidence))
    check_log_starts(rows, by_topic, looks, newest, read)
    return expansions, rows


_EXPORTS: list[dict[str, Any]] = [
    {},
    {},
    {"pruned": 5},
    {"pruned": 20},
    {"gap": (10, 20)},
    {"pruned": 3, "gap": (30, 31)},
]


def _logs(look: dict[str, Any]) -> Logs:
    ends = enumerate(zip(look["starts"], look["ends"], strict=True))
    return {
        number: {"log_start_offset": start, "log_end_offset": end, "leader_epoch": 1} for number, (start, end) in ends
    }


def overtaken(world: World, row: dict[str, Any], own: TopicExpansion) -> list[tuple[Any, ...]]:
    """Records by an earlier count that were not finished when a later record of the destination, by the new count, was
    delivered: any of its sources, and those of the same key anywhere else."""
    group = next(each for each in world.groups if each.name == row["group_id"])
    to, count = row["partition"], own.new_count
    sources = sources_of(to, own.old_count, count, own.mapping)
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


def was_open(world: World, row: dict[str, Any], own: TopicExpansion) -> bool:
    """Whether a record of the source below the low fence was open when some record of the destination from after the
    expansion was delivered. A group that was reset, and was ahead again at the next look, is not seen to be; and
    of the destination an offset is taken for a record."""
    group = next(each for each in world.groups if each.name == row["group_id"])
    to, source = row["partition"], row["source_partition"]
    steps = [
        step
        for offset, record in enumerate(world.logs[to])
        if record is None or record.count > own.old_count
        for step in group.ever[to, offset]
    ]
    records = [n for n, record in enumerate(world.logs[source][: row["fence_low"]]) if record is not None]
    return any(group.is_open(source, offset, step) for offset in records for step in steps)


def check(seeds: range) -> Counter[str]:
    """Judge worlds; gives how many verdicts of each kind there were."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        world = random_world(seed)
        expansions, rows = audited(world, world.chance.choice(_EXPORTS))
        by_event = {each.row["event_id"]: each for each in expansions}
        for row in rows:
            own = by_event[row["event_id"]]
            counts[f"{row['group_type']} {row['verdict']} {row['reason'] or row['evidence']}"] += 1
            if row["verdict"] == "safe":
                assert not overtaken(world, row, own), (seed, row)
            if row["verdict"] == "broken":
                assert was_open(world, row, own), (seed, row)
    return counts


def test_verdicts_are_true() -> None:
    """Some hundred worlds; each proof occurs."""
    counts = check(range(300))
    kinds = {name.rpartition(" ")[0] for name in counts}
    assert {"consumer safe", "consumer broken", "share safe", "share broken"} <= kinds


@pytest.mark.full
def test_verdicts_are_true_in_many_worlds() -> None:
    """R003-01: 5,000 more."""
    check(range(10_000, 15_000))
