"""Marks of many looks at once are those of the definition, look by look, however the looks are divided."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail_expansion.audit import position_marks
from acktrail_expansion.audit.position_marks import Lanes, gathered, mark_rows
from acktrail_expansion.law.order import NEVER, Marks

SCHEMA = TABLES["group_positions"]
MARKS = ("restarted_at", "idle_until", "begun_at", "finished_at", "below_at", "below")
COUNTS = {"t": [(2, 4), (4, 5)], "u": [(1, 2)]}
"""The expansions of each topic."""


def lanes(chance: Random) -> Lanes:
    """Limits at random; a partition that was added begins at 0, and is the source of nothing."""
    begins, ends = np.zeros((2, 2), np.int64), np.zeros((2, 2), np.int64)
    columns: list[tuple[int, ...]] = []
    for topic, expansions in enumerate(COUNTS.values()):
        for place, (old, new) in enumerate(expansions):
            begins[place, topic] = len(columns)
            for partition in range(new):
                low, high, reached = [*sorted(chance.choices(range(9), k=2)), chance.randint(0, 40)]
                limits = (low, high, low, high) if partition < old else (0, 0, 0, NEVER)
                columns.append((*limits, reached))
            ends[place, topic] = len(columns)
    return Lanes(tuple(COUNTS), begins, ends, np.array([3, 0]), *np.array(columns, np.int64).T)


def looks(chance: Random) -> list[dict[str, Any]]:
    """Positions that mostly grow, with everything that a look can fail to see."""
    rows = []
    now: dict[tuple[str, str, int], int | None] = {}
    for at in sorted(chance.sample(range(50), 14)):
        for group, kind in (("a", "consumer"), ("a", "share"), ("b", "classic")):
            for topic, partitions in (("t", 5), ("u", 2), ("other", 1)):
                if chance.random() < 0.1:
                    continue
                for partition in range(partitions):
                    key = (group + kind, topic, partition)
                    before = now.get(key)
                    step = chance.choice((0, 0, 1, 2, 3)) if chance.random() < 0.9 else chance.randint(-4, 0)
                    now[key] = None if chance.random() < 0.1 else max(0, (before or 0) + step)
                    if chance.random() < 0.1:
                        continue
                    names = {"group_id": group, "group_type": kind, "topic_id": topic, "partition": partition}
                    lag = chance.choice((0, 1, None)) if kind == "share" else None
                    error = 5 if chance.random() < 0.05 else 0
                    rows.append({**names, "observed_at": at, "position": now[key], "lag": lag, "error_code": error})
        rows.append({"group_id": "b", "group_type": "classic", "observed_at": at, "error_code": 15})
    return rows


def batches(rows: Sequence[dict[str, Any]]) -> list[pa.RecordBatch]:
    return pa.Table.from_pylist([{n: row.get(n) for n in SCHEMA.names} for row in rows], schema=SCHEMA).to_batches()


def plain(rows: Sequence[dict[str, Any]], own: Lanes, topic: int, place: int, partition: int, *, share: bool) -> Marks:
    """The definition. `rows`: those of one group in one topic, in time."""
    lane = own.begins[place, topic] + partition
    idle, begun, low, high, reached = (
        int(column[lane]) for column in (own.idle, own.begun, own.low, own.high, own.reached_at)
    )
    found, first, last = Marks(), None, (False, -2)
    for at in sorted({row["observed_at"] for row in rows if row["observed_at"] >= own.since[topic]}):
        row = next((each for each in rows if (each["observed_at"], each["partition"]) == (at, partition)), None)
        if row is not None and row["error_code"]:
            continue
        position = -1 if row is None or row["position"] is None else row["position"]
        is_done = row is not None and row["lag"] == 0
        if (is_done, position) < last:
            found, first = Marks(restarted_at=at), None
        last, first = (is_done, position), position if first is None and position >= 0 else first
        marks = {name: getattr(found, name) for name in MARKS}
        if position <= (-1 if share else idle):
            marks["idle_until"] = at
        if first is not None and position > max(begun, first):
            marks["begun_at"] = min(marks["begun_at"], at)
        if position >= high or (is_done and at >= reached):
            marks["finished_at"] = min(marks["finished_at"], at)
        if 0 <= position < low:
            marks |= {"below_at": at, "below": position}
        found = Marks(**marks)
    return found


@pytest.mark.parametrize("seed", range(30))
def test_any_division_of_looks_gives_the_marks_of_the_definition(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """R003-01: pieces, and shares of pieces, of any size."""
    chance = Random(seed)
    own, rows = lanes(chance), looks(chance)
    monkeypatch.setattr(position_marks, "_CELLS", chance.choice((1, 60, 10_000)))
    cuts = [0, *sorted(chance.sample(range(50), chance.randint(0, 6))), 50]
    pieces = [
        batches([row for row in rows if begin <= row["observed_at"] < end]) for begin, end in itertools.pairwise(cuts)
    ]
    first = chance.randint(0, len(pieces))
    shares = [mark_rows(own, 0, pieces[:first]), mark_rows(own, 1, pieces[first:])]
    found = gathered(pa.concat_tables(shares[:: chance.choice((1, -1))]), own)
    for (group, kind), marks in found.items():
        for topic, (name, expansions) in enumerate(COUNTS.items()):
            of_group = [
                row for row in rows if (row["group_id"], row["group_type"], row.get("topic_id")) == (group, kind, name)
            ]
            for place, (_, new) in enumerate(expansions):
                for partition in range(new):
                    expected = plain(of_group, own, topic, place, partition, share=kind == "share")
                    values = marks[int(own.begins[place, topic]) + partition]
                    assert values == expected
    assert {*found} == {("a", "consumer"), ("a", "share"), ("b", "classic")}
