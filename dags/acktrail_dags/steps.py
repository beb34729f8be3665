"""What the tasks do: each step calls one command of acktrail, with its errors turned into Airflow's."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from acktrail_dags.airflow_errors import advised
from acktrail_dags.connection import kafka_config
from acktrail_dags.run_target import (
    ReconcileTarget,
    Target,
    export_target,
    followed_export,
    reconcile_target,
    tables_of,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["export", "observe", "publish", "reconcile", "validate"]


def export(context: Context) -> dict[str, Any]:
    """Export to the end of the state topic; the extra of the asset event."""
    from acktrail.export.use_cases import export as run_export

    with advised(can_run_again=True):
        target = export_target(context)
        summary = run_export(kafka_config(target["kafka_conn_id"]), tables_of(target), run_id=target["run_id"])
    return {**target, "counts": dataclasses.asdict(summary)}


def observe(context: Context) -> ReconcileTarget:
    """One observation: admin answers before, the export, admin answers after.

    Skips the run where none is due (``reconcile_due``), and where there is nothing to observe yet: neither a share
    group nor their state topic.
    """
    from acktrail.export.use_cases import observe as run_observation

    with advised(can_run_again=True):
        target = reconcile_target(context)
        exported = followed_export(context)
        if exported is not None:
            _skip_unless_due(target, exported)
        seen = run_observation(kafka_config(target["kafka_conn_id"]), tables_of(target), run_id=target["run_id"])
    if not any(seen.rows.get(table) for table in ("group_observations", "offset_observations")):
        raise AirflowSkipException(f"cluster {seen.cluster_id} has no share group and never had one")
    return target


def _skip_unless_due(target: ReconcileTarget, exported_run_id: str) -> None:
    from acktrail.reconcile.schedule.reconcile_checks import check
    from acktrail.reconcile.schedule.reconcile_due import Decision

    decided = check(tables_of(target), exported_run_id, target["run_id"])
    if decided.decision is not Decision.RUN:
        raise AirflowSkipException(f"no reconciliation: {decided.reason}")


def reconcile(target: ReconcileTarget) -> None:
    """Replay with PySpark and compare with the observation; bring the history of every record up to date."""
    from acktrail_jobs.commands.reconcile import reconcile as run_reconciliation

    with advised():
        run_reconciliation(tables_of(target), target["run_id"], target["spark_master"], with_history=True)


def validate(target: ReconcileTarget) -> None:
    """The gate: a critical expectation that fails stops the DAG here."""
    from acktrail_expectations.command import validate as run_suites

    with advised():
        run_suites(tables_of(target), target["run_id"])


def publish(target: ReconcileTarget) -> dict[str, Any]:
    """Write the HTML report; the extra of the asset event."""
    from acktrail_dashboard.command import report, summary

    with advised():
        tables, run_id = tables_of(target), target["run_id"]
        address = kafka_config(target["kafka_conn_id"]).bootstrap_servers
        written = report(tables, run_id, Path(target["report_folder"]) / "acktrail-report.html", broker=address)
        totals = summary(tables, run_id).totals
    return {**_place(target), "report": str(written), "summary": dataclasses.asdict(totals)}


def _place(target: Target) -> Target:
    return Target(run_id=target["run_id"], kafka_conn_id=target["kafka_conn_id"], tables_uri=target["tables_uri"])
