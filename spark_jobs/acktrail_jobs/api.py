"""The pipeline for a DAG or a program of your own: each function opens a session, does its step and ends it.

from acktrail.config import TablesConfig
from acktrail_jobs.api import reconcile

summary = reconcile(TablesConfig(uri="/data/acktrail"), with_history=True)    # the newest complete observation
summary.verdicts                                                              # {"match": 24}

In a notebook the frames between, of a session of its own; they write nothing:

from acktrail_jobs.api import changes, states, verdicts

verdicts(spark, tables).groupBy("verdict").count().show()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from acktrail.config import TablesConfig
from acktrail_jobs.engine import jobs_on, translated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from acktrail_jobs.frames import JobSession
    from acktrail_jobs.history.history_run import HistorySummary
    from acktrail_jobs.history.verify_tables import VerifySummary
    from acktrail_jobs.reconcile.frames_of_run import ReplayedRun
    from acktrail_jobs.reconcile.reconcile_run import ReconcileSummary


def reconcile(
    tables: TablesConfig,
    run_id: str | None = None,
    master: str | None = None,
    *,
    with_history: bool = False,
    then: Callable[[str, JobSession], object] = lambda _run_id, _spark: None,
) -> ReconcileSummary:
    """Replay the exported state, compare it with the brokers' descriptions, and write verdicts and findings.

    `run_id` None: the newest complete observation. `with_history`: also update ``delivery_history`` and write the
    statuses of queues. `then` is called with the run's id and its session, before the run is complete. Raises as
    ``reconcile_run.reconcile`` and ``jobs_on``."""
    from acktrail.history.observed_run import newest_run
    from acktrail.tables.delta.store import Tables
    from acktrail_jobs.history.history_run import build_history
    from acktrail_jobs.reconcile.reconcile_run import reconcile as run
    from acktrail_jobs.statuses.status_run import write_statuses

    with translated():
        chosen = run_id or newest_run(Tables(tables))
    with jobs_on(master, chosen) as spark:

        def add_history() -> None:
            if with_history and Tables(tables).exists("state_records"):
                build_history(tables, spark)
            if with_history:
                write_statuses(tables, spark, chosen)
            then(chosen, spark)

        return run(tables, spark, chosen, before_done=add_history)


def build_history(tables: TablesConfig, master: str | None = None) -> HistorySummary:
    """Bring ``delivery_history`` up to the end of the export. Raises as ``history_run.build_history``."""
    from acktrail_jobs.history.history_run import build_history as run

    with jobs_on(master) as spark:
        return run(tables, spark)


def verify(tables: TablesConfig, master: str | None = None) -> VerifySummary:
    """Replay all records and compare them with what runs saved. Raises as ``verify_tables.verify``."""
    from acktrail_jobs.history.verify_tables import verify as run

    with jobs_on(master) as spark:
        return run(tables, spark)


def states(spark: SparkSession, tables: TablesConfig, run_id: str | None = None) -> DataFrame:
    """Return the replayed states of an observation: a row for every share partition after all its records, with the
    columns of ``frames_of_run.STATES``. `run_id` None: the newest complete one. Raises as ``reconcile_run.reconcile``.
    """
    from acktrail_jobs.reconcile.frames_of_run import replayed_states

    job, run = _opened(spark, tables, run_id)
    return replayed_states(job, run)


def verdicts(spark: SparkSession, tables: TablesConfig, run_id: str | None = None) -> DataFrame:
    """Compare the states with the brokers' descriptions: a row for every share partition with its verdict, with the
    columns of ``verdict_rules.RECONCILED``. Raises as ``reconcile_run.reconcile``."""
    from acktrail.tables.delta.store import Tables
    from acktrail_jobs.frames import columns_of
    from acktrail_jobs.reconcile.reconcile_run import bucket_judge, cogroup_by_bucket
    from acktrail_jobs.reconcile.verdict_rules import RECONCILED

    job, run = _opened(spark, tables, run_id)
    judge = bucket_judge(Tables(tables), run)
    return cogroup_by_bucket(job, run).applyInArrow(judge.verdicts(), columns_of(job, RECONCILED))


def changes(spark: SparkSession, tables: TablesConfig) -> DataFrame:
    """Every change of a record's status, made again from all state records: rows of ``delivery_history``. Raises
    ConfigurationError (nothing was exported)."""
    from acktrail.tables.delta.store import Tables
    from acktrail_jobs.frames import JobSession
    from acktrail_jobs.history.history_run import all_changes

    return all_changes(JobSession(lambda: spark), Tables(tables))


def _opened(spark: SparkSession, tables: TablesConfig, run_id: str | None) -> tuple[JobSession, ReplayedRun]:
    from acktrail.history.observed_run import newest_run, read_observation
    from acktrail.history.replay_resume import ReplayResume
    from acktrail.tables.delta.store import Tables
    from acktrail_jobs.frames import JobSession
    from acktrail_jobs.reconcile.reconcile_run import replayed_run

    stored = Tables(tables)
    observation = read_observation(stored, run_id or newest_run(stored))
    run = replayed_run(stored, observation, ReplayResume(stored, observation))
    return JobSession(lambda: spark, observation.run_id), run
