"""Tables of a ledger with as many looks as a quarter has, written straight into Delta: one file a day."""

from __future__ import annotations

import datetime as dt
import json
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.store import Tables

CLUSTER = "benchmark"
_BEGAN_AT = np.datetime64("2026-05-01T00:00:00", "us")
_HOUR_US = 3_600_000_000
_KINDS = ("consumer", "classic", "consumer", "share")
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerShape:
    """Topics that all gain partitions once, and groups that each read some of them. A quarter of the groups are share
    groups, which each look reads twice."""

    topics: int = 1_000
    old_count: int = 40
    new_count: int = 50
    days: int = 90
    looks_a_day: int = 24
    groups: int = 100
    topics_of_a_group: int = 10


@dataclass(slots=True, kw_only=True)
class LedgerRows:
    """How many rows were written."""

    observations: int = 0
    positions: int = 0


@dataclass(slots=True)
class _World:
    """Rates and lags by topic and group; the look of each topic's expansion."""

    shape: LedgerShape
    base: _Ints = field(init=False)
    rate: _Ints = field(init=False)
    expands_at: _Ints = field(init=False)
    pair_topic: _Ints = field(init=False)
    lag: _Ints = field(init=False)
    delay: _Ints = field(init=False)

    def __post_init__(self) -> None:
        shape, chance = self.shape, np.random.default_rng(13)
        looks = shape.days * shape.looks_a_day
        size = (shape.topics, shape.new_count)
        self.base, self.rate = chance.integers(0, 10**6, size), chance.integers(0, 5_000, size)
        self.expands_at = chance.integers(1, max(2, looks // 3), shape.topics)
        pairs = (shape.groups, shape.topics_of_a_group)
        self.pair_topic = chance.integers(0, shape.topics, pairs)
        self.lag, self.delay = chance.integers(0, 20_000, pairs), chance.integers(0, 6, pairs)

    def ends(self, look: int) -> _Ints:
        """Log ends by topic and partition; -1: there is no such partition yet."""
        since = np.where(np.arange(self.shape.new_count) < self.shape.old_count, 0, self.expands_at[:, None])
        base = np.where(since > 0, 0, self.base)
        return np.where(look < since, -1, base + self.rate * (look - since))


def write_ledger(tables: Tables, shape: LedgerShape) -> LedgerRows:
    """Fill ``partition_observations`` and ``group_positions``."""
    world, written = _World(shape), LedgerRows()
    for day in range(shape.days):
        looks = range(day * shape.looks_a_day, (day + 1) * shape.looks_a_day)
        written.observations += _commit(
            tables, "partition_observations", [_observations(world, each) for each in looks]
        )
        written.positions += _commit(tables, "group_positions", [_positions(world, each) for each in looks])
    return written


def _commit(tables: Tables, name: str, pieces: list[pa.Table]) -> int:
    rows = pa.concat_tables(pieces).unify_dictionaries().combine_chunks()
    snapshot = tables.create(name, properties={"cluster_id": CLUSTER})
    path = f"part-00000-{uuid.uuid4()}-c000.zstd.parquet"
    file = Path(tables.config.uri, name, path)
    pq.write_table(rows, file, compression="zstd", compression_level=1, store_schema=False, row_group_size=131_072)
    action = AddAction(
        path=path,
        size=file.stat().st_size,
        partition_values={},
        modification_time=time.time_ns() // 1_000_000,
        data_change=True,
        stats=json.dumps(_statistics(rows)),
    )
    snapshot.delta.create_write_transaction([action], "append", snapshot.delta.schema())
    return rows.num_rows


def _statistics(rows: pa.Table) -> dict[str, object]:
    """Bounds of all columns: delta-rs takes an absent one for one that no value satisfies."""
    least, greatest = dict[str, object](), dict[str, object]()
    for name in rows.column_names:
        column = rows[name]
        if column.null_count == rows.num_rows:
            continue
        if pa.types.is_dictionary(column.type):
            column = column.chunk(0).dictionary
        for bounds, value in zip((least, greatest), pc.min_max(column).as_py().values(), strict=True):
            bounds[name] = value.isoformat().replace("+00:00", "Z") if isinstance(value, dt.datetime) else value
    nulls = {name: rows[name].null_count for name in rows.column_names}
    return {"numRecords": rows.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _observations(world: _World, look: int) -> pa.Table:
    ends = world.ends(look)
    topic, partition = np.nonzero(ends >= 0)
    end, count = ends[topic, partition], (ends >= 0).sum(axis=1)[topic]
    return _table(
        "partition_observations",
        len(topic),
        {
            **_run(look, len(topic), 0),
            "topic_id": _named("topic-id-", topic),
            "topic": _named("topic-", topic),
            "partition": partition,
            "partition_count": count,
            "consistency": _constant("consistent", len(topic)),
            "leader_id": partition % 3,
            "leader_epoch": np.zeros_like(topic),
            "log_start_offset": np.zeros_like(topic),
            "is_gapless": np.ones(len(topic), np.bool_),
            "log_end_offset": end,
            "error_code": np.zeros_like(topic),
        },
    )


def _positions(world: _World, look: int) -> pa.Table:
    ends = world.ends(look)
    share = np.arange(world.shape.groups) % len(_KINDS) == _KINDS.index("share")
    readings = ((1, share), (2, ~share), (3, share))
    return pa.concat_tables([_reading(world, look, ends, seconds, np.flatnonzero(own)) for seconds, own in readings])


def _reading(world: _World, look: int, ends: _Ints, seconds: int, groups: _Ints) -> pa.Table:
    shape, topics = world.shape, world.pair_topic[groups]
    own = ends[topics]  # by group, topic and partition
    is_new = np.arange(shape.new_count) >= shape.old_count
    begun = (world.expands_at[topics] + world.delay[groups])[..., None]
    is_there = (own >= 0) & (~is_new | (look >= begun))
    group, number, partition = np.nonzero(is_there)
    position = np.maximum(own[group, number, partition] - world.lag[groups][group, number], 0)
    return _table(
        "group_positions",
        len(group),
        {
            **_run(look, len(group), seconds),
            "group_id": _named("group-", groups[group]),
            "group_type": pa.DictionaryArray.from_arrays(
                pa.array(groups[group] % len(_KINDS), pa.int32()), pa.array(_KINDS)
            ),
            "topic_id": _named("topic-id-", topics[group, number]),
            "topic": _named("topic-", topics[group, number]),
            "partition": partition,
            "position": position,
            "lag": own[group, number, partition] - position,
            "error_code": np.zeros_like(group),
        },
    )


def _run(look: int, size: int, seconds: int) -> dict[str, pa.Array]:
    at = _BEGAN_AT + np.timedelta64(look * _HOUR_US + seconds * 1_000_000, "us")
    run_id = f"{at.astype(dt.datetime):%Y%m%dT%H}0000Z-benchmark"
    return {
        "cluster_id": _constant(CLUSTER, size),
        "run_id": _constant(run_id, size),
        "observed_at": pa.repeat(pa.scalar(at.astype(np.int64).item(), pa.timestamp("us", tz="UTC")), size),
    }


def _constant(text: str, size: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(size, np.int32)), pa.array([text]))


def _named(prefix: str, numbers: _Ints) -> pa.Array:
    names = pa.array([f"{prefix}{number:05d}" for number in range(int(numbers.max(initial=0)) + 1)])
    return pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32()), names)


def _table(name: str, size: int, columns: dict[str, object]) -> pa.Table:
    arrays = []
    for own in TABLES[name]:
        column = columns.get(own.name)
        if column is None:
            column = pa.nulls(size, own.type)
        elif not isinstance(column, pa.Array):
            column = pa.array(column, own.type)
        arrays.append(column)
    return pa.table(arrays, TABLES[name].names)
