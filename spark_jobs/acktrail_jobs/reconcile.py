"""The reconciliation job: replay from the tables, compare with what the cluster said, write what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from acktrail.columnar.schemas import FINDINGS, RECONCILIATIONS, SHARE_PARTITION_STATES
from acktrail.config import TablesConfig
from acktrail.tables.store import Tables
from acktrail_jobs import schemas
from acktrail_jobs.coverage import Coverage
from acktrail_jobs.evidence import chosen_states, joined_evidence, with_topics
from acktrail_jobs.findings import share_partition_findings, state_partition_findings
from acktrail_jobs.history import build_history
from acktrail_jobs.observation import Observation, newest_run, read_observation
from acktrail_jobs.recollection import Recollection
from acktrail_jobs.replay_frames import remembered, replayed
from acktrail_jobs.session import spark_session
from acktrail_jobs.sources import group_samples, offset_samples, topic_statuses
from acktrail_jobs.summary import ReconcileSummary
from acktrail_jobs.verdicts import Judge

__all__ = ["reconcile"]

_ROWS_AT_ONCE: Final = 50_000
"""Rows that the driver holds at a time; each such piece is one commit."""


def reconcile(
    tables: TablesConfig, run_id: str | None = None, master: str | None = None, *, with_history: bool = False
) -> ReconcileSummary:
    """Reconcile observation `run_id` (None: the newest complete one) and write ``share_partition_states``,
    ``reconciliations`` and ``findings``; `with_history`, bring ``delivery_history`` up to date in the same session.

    Replays the records that came since the last reconciliation, from the states that it left (``replay_memory``); or
    all of them, where these cannot be used or are of later records. The same run again changes nothing: a run that was
    stopped half-way is completed. `master` None: what ``spark-submit`` says, else two local threads.

    Raises:
        ConfigurationError: no complete observation, or tables that cannot be read or written.
        UnknownName, InputError: `run_id` observed nothing, or its observation is not complete.
        ConcurrentCommit: the same run is being reconciled elsewhere.
    """
    stored = Tables(tables)
    observation = read_observation(stored, run_id or newest_run(stored))
    recollection = Recollection(stored, observation)
    coverages = recollection.coverages
    with spark_session(master) as spark:
        _reconcile(spark, stored, observation, coverages, recollection)
        if with_history and stored.exists("state_records"):
            build_history(tables, master)
    found = _summary(stored, observation.run_id)
    return replace(found, went_on_from=recollection.run_id, replayed_all=recollection.doubt)


def _reconcile(
    spark: SparkSession,
    stored: Tables,
    observation: Observation,
    coverages: dict[int, Coverage],
    recollection: Recollection,
) -> None:
    config = stored.config
    topics = topic_statuses(spark, config)
    frame = replayed(spark, config, observation, coverages, recollection.recall())
    frame = frame.persist(StorageLevel.MEMORY_AND_DISK)
    found = chosen_states(frame.where("memory IS NULL").drop("memory"))
    states = with_topics(found, topics).persist(StorageLevel.MEMORY_AND_DISK)
    offsets = offset_samples(spark, config, observation.run_id).persist(StorageLevel.MEMORY_AND_DISK)
    groups = group_samples(spark, config, observation.run_id)
    judge = Judge(observation=observation, coverages=coverages)
    judged = joined_evidence(states, offsets, groups, topics).mapInArrow(judge, schemas.JUDGED)
    judged = judged.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        _write_states(stored, observation, states)
        _write_findings(
            stored, observation, "state partitions", state_partition_findings(coverages.values(), observation)
        )
        _write_judged(stored, observation, judged)
        recollection.keep(partial(remembered, frame))
    finally:
        for persisted in (judged, offsets, states, frame):
            persisted.unpersist()


def _write_states(stored: Tables, observation: Observation, states: DataFrame) -> None:
    for number, rows in _pieces(states.select(schemas.SHARE_PARTITION_STATES.names)):
        _append_once(stored, "share_partition_states", rows.cast(SHARE_PARTITION_STATES), observation, number)


def _write_judged(stored: Tables, observation: Observation, judged: DataFrame) -> None:
    for number, rows in _pieces(judged):
        _write_findings(stored, observation, str(number), share_partition_findings(rows.to_pylist(), observation))
        verdicts = rows.select(RECONCILIATIONS.names).cast(RECONCILIATIONS)
        _append_once(stored, "reconciliations", verdicts, observation, number)


def _pieces(frame: DataFrame) -> Iterator[tuple[int, pa.Table]]:
    """The rows in numbered pieces that are the same whenever the rows are, in whatever order they come."""
    count = -(-frame.count() // _ROWS_AT_ONCE)
    place = f.pmod(f.xxhash64("group_id", "topic_id", "partition"), f.lit(count or 1))
    for number in range(count):
        yield number, (frame if count == 1 else frame.where(place == number)).toArrow()


def _append_once(stored: Tables, table: str, rows: pa.Table, observation: Observation, number: int) -> None:
    _once(
        stored,
        table,
        _app_id(observation, str(number)),
        lambda app_id: stored.append(table, rows, transactions={app_id: 1}, expected={app_id: None}),
    )


def _write_findings(stored: Tables, observation: Observation, piece: str, rows: Iterator[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(list(rows), schema=FINDINGS)
    _once(
        stored,
        "findings",
        _app_id(observation, piece),
        lambda app_id: stored.upsert("findings", table, transactions={app_id: 1}),
    )


def _app_id(observation: Observation, piece: str) -> str:
    return f"acktrail.reconcile/{observation.cluster_id}/{observation.run_id}/{piece}"


def _once(stored: Tables, table: str, app_id: str, commit: Callable[[str], object]) -> None:
    if stored.transaction_version(table, app_id) is None:
        commit(app_id)


def _summary(stored: Tables, run_id: str) -> ReconcileSummary:
    own = pc.field("run_id") == run_id
    verdicts = stored.read("reconciliations", columns=["verdict", "moved"], where=own)
    findings = stored.read("findings", columns=["rule", "severity"], where=own)
    return ReconcileSummary(
        run_id=run_id,
        share_partitions=verdicts.num_rows,
        moved=pc.sum(pc.cast(verdicts["moved"], pa.int64())).as_py() or 0,
        verdicts=_counts(verdicts["verdict"]),
        findings=_counts(findings["rule"]),
        severities=_counts(findings["severity"]),
    )


def _counts(values: pa.ChunkedArray) -> dict[str, int]:
    found = {row["values"]: row["counts"] for row in pc.value_counts(values).to_pylist()}
    return dict(sorted(found.items()))
