"""The work that ``spark.py`` compares, each way in a process of its own that waits for orders."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pandas as pd
import process_tree
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables

Totals = tuple[int, int, int]
"""Share partitions with a state, the sum of their start offsets, and how many batches they have."""

Way = Callable[[TablesConfig], Totals]
Ways = Callable[[], AbstractContextManager[dict[str, Way]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One piece of work: seconds, those of processors in the process and those below it, what came out, peak memory by
    program."""

    wall_s: float
    cpu_s: float
    totals: Totals
    peaks_mb: dict[str, float] = field(default_factory=dict)


def wait_for_orders(orders: Connection, ways: Ways) -> None:
    """Do what comes in, (way, tables) by (way, tables), until None comes."""
    with ways() as known:
        while (order := orders.recv()) is not None:
            way, uri = order
            gc.collect()
            process_tree.begin()
            began, cpu = time.perf_counter(), process_tree.cpu_s()
            totals = known[way](TablesConfig(uri=uri))
            wall = time.perf_counter() - began
            orders.send(
                Round(wall_s=wall, cpu_s=process_tree.cpu_s() - cpu, totals=totals, peaks_mb=process_tree.peaks_mb())
            )


@contextmanager
def alone() -> Iterator[dict[str, Way]]:
    """One process without Spark."""
    from acktrail.history.replay_resume import states_of_topic, topic_at_time

    def states(config: TablesConfig) -> Totals:
        tables = Tables(config)
        return _totals(states_of_topic(tables, topic_at_time(tables)))

    yield {"alone": states}


@contextmanager
def by_spark() -> Iterator[dict[str, Way]]:
    """A session on two local threads: acktrail's own job, and the usual one."""
    from acktrail_jobs.session import spark_session

    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    with spark_session("local[2]") as session:
        yield {"spark": partial(_states, session), "pandas": partial(_with_pandas, session)}


def _states(session: SparkSession, config: TablesConfig) -> Totals:

    from acktrail.history.replay_resume import topic_at_time
    from acktrail_jobs.frames import JobSession, collected
    from acktrail_jobs.reconcile.frames_of_run import STATES, ReplayedRun, replayed_states

    tables = Tables(config)
    moment = topic_at_time(tables)
    run = ReplayedRun(config=config, observation=moment.observation, coverages=moment.coverages)
    spark = JobSession(lambda: session)
    return _totals(collected(spark, "replay", replayed_states(spark, run), STATES))


def _with_pandas(session: SparkSession, config: TablesConfig) -> Totals:
    from pyspark.sql import functions as f

    records = Tables(config).snapshot("state_records")
    assert records is not None
    paths = [f"{config.uri}/state_records/{file.path}" for file in records.files()]
    raw = session.read.parquet(*paths).select("state_partition", "offset", "key", "value")
    key = ("group_id", "topic_id", "partition", "state_partition")
    decoded = raw.mapInPandas(_decoded, ", ".join((*_KEY, _PAYLOAD)))
    rows = decoded.groupBy(*key).applyInPandas(_folded, "start_offset long, batches long")
    total = rows.agg(f.count("*"), f.sum("start_offset"), f.sum("batches")).first()
    return total[0], total[1], total[2]


_KEY = ("state_partition int", "group_id string", "topic_id string", "partition int")
_PAYLOAD = "offset long, fields binary"


def _decoded(pieces: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Records by struct.unpack, one by one."""
    import pickle

    from plain_decoder import unpack

    for piece in pieces:
        rows = []
        for number, offset, key, value in piece.itertuples(index=False):
            for kind, group_id, topic_id, partition, *fields in unpack([key], [value]):
                rows.append((number, group_id, topic_id, partition, offset, pickle.dumps((kind, fields))))
        yield pd.DataFrame(rows, columns=["state_partition", "group_id", "topic_id", "partition", "offset", "fields"])


def _folded(group: pd.DataFrame) -> pd.DataFrame:
    """One share partition's records, applied one after the other."""
    import pickle

    from acktrail.model.replay import replay

    records = [_record(group, *pickle.loads(fields)) for fields in group.sort_values("offset")["fields"]]
    states = replay(records).values()
    rows = [(state.start_offset or 0, len(state.batches)) for state in states]
    return pd.DataFrame(rows, columns=["start_offset", "batches"])


def _record(group: pd.DataFrame, kind: str, fields: list[Any]) -> Any:
    from acktrail.model.batches import StateBatch
    from acktrail.model.records import ShareSnapshot, ShareUpdate, Tombstone
    from acktrail.model.share_partition import GroupId, SharePartition, TopicId

    head = group.iloc[0]
    key = SharePartition(
        group_id=GroupId(head["group_id"]), topic_id=TopicId(head["topic_id"]), partition=int(head["partition"])
    )
    if kind == "tombstone":
        return Tombstone(key=key)
    *numbers, complete, batches = fields
    made = tuple(
        StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in batches
    )
    _, snapshot_epoch, *others = numbers
    if kind == "update":
        leader_epoch, start = (None if number == -1 else number for number in others)
        return ShareUpdate(
            key=key, snapshot_epoch=snapshot_epoch, leader_epoch=leader_epoch, start_offset=start,
            delivery_complete_count=complete, batches=made,
        )  # fmt: skip
    state_epoch, leader_epoch, start, created, written = others
    return ShareSnapshot(
        key=key, snapshot_epoch=snapshot_epoch, state_epoch=state_epoch, leader_epoch=leader_epoch,
        start_offset=None if start == -1 else start, delivery_complete_count=complete,
        create_timestamp_ms=created, write_timestamp_ms=written, batches=made,
    )  # fmt: skip


def _totals(rows: pa.Table) -> Totals:
    states = rows.filter(pc.is_valid(rows["snapshot_epoch"]))
    starts, batches = pc.sum(states["start_offset"]), pc.sum(pc.list_value_length(states["batches"]))
    return states.num_rows, int(starts.as_py() or 0), int(batches.as_py() or 0)
