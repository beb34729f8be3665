"""The pipeline for a DAG or a program of your own: each function opens its executors, does its step and ends them.

from acktrail.config import TablesConfig
from acktrail_jobs.api import reconcile

summary = reconcile(TablesConfig(uri="/data/acktrail"), with_history=True)    # the newest complete observation
summary.verdicts                                                              # {"match": 24}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from acktrail.config import TablesConfig
from acktrail_jobs.engine import executors_on, translated

if TYPE_CHECKING:
    from acktrail.executors import Executors
    from acktrail_jobs.history.history_run import HistorySummary
    from acktrail_jobs.history.verify_tables import VerifySummary
    from acktrail_jobs.reconcile.reconcile_run import ReconcileSummary


def reconcile(
    tables: TablesConfig,
    run_id: str | None = None,
    master: str | None = None,
    *,
    with_history: bool = False,
    then: Callable[[str, Executors], object] = lambda _run_id, _executors: None,
) -> ReconcileSummary:
    """Replay the exported state, compare it with what brokers said, and write verdicts and findings.

    `run_id` None: the newest complete observation. `with_history`: also update ``delivery_history`` and write the
    statuses of queues. `then` is called with the run's id and its executors, before the run is complete. Raises as
    ``reconcile_run.reconcile`` and ``executors_on``."""
    from acktrail.history.observed_run import newest_run
    from acktrail.tables.delta.store import Tables
    from acktrail_jobs.history.history_run import build_history
    from acktrail_jobs.reconcile.reconcile_run import reconcile as run
    from acktrail_jobs.statuses.status_run import write_statuses

    with translated():
        chosen = run_id or newest_run(Tables(tables))
    with executors_on(master, chosen) as executors:

        def add_history() -> None:
            if with_history and Tables(tables).exists("state_records"):
                build_history(tables, executors)
            if with_history:
                write_statuses(tables, executors, chosen)
            then(chosen, executors)

        return run(tables, executors, chosen, before_done=add_history)


def build_history(tables: TablesConfig, master: str | None = None) -> HistorySummary:
    """Bring ``delivery_history`` up to the end of the export. Raises as ``history_run.build_history``."""
    from acktrail_jobs.history.history_run import build_history as run

    with executors_on(master) as executors:
        return run(tables, executors)


def verify(tables: TablesConfig, master: str | None = None) -> VerifySummary:
    """Replay all records and compare them with what runs saved. Raises as ``verify_tables.verify``."""
    from acktrail_jobs.history.verify_tables import verify as run

    with executors_on(master) as executors:
        return run(tables, executors)
