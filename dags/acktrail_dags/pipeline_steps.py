"""The tasks of export and reconciliation: each calls one use case of acktrail. Airflow passes its context by name."""

from __future__ import annotations

import dataclasses
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Unpack
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias, Context

from acktrail.config import reports_kept
from acktrail.errors import AcktrailError
from acktrail.text_tables import printable
from acktrail_dags import task_inputs, task_reports
from acktrail_dags.parameters import DagProfile
from acktrail_dags.task_inputs import cluster_at, spark_master, tables_at
from acktrail_dags.task_reports import step
from acktrail_provider import assets
from acktrail_provider.airflow_names import AirflowSkipException

if TYPE_CHECKING:
    from acktrail.config import TablesConfig
    from acktrail.view.run_summary import Summary
    from acktrail_jobs.reconcile.reconcile_due import DueCheck


_log: Final = logging.getLogger("acktrail.dags")
_GROUP: Final = "acktrail"


def exported(profile: DagProfile) -> Asset:
    """The state topic was exported. Extra: ``run_id``, ``kafka_conn_id``, ``tables_uri``, ``counts``."""
    return _asset(profile, "exported")


def reported(profile: DagProfile) -> Asset:
    """A reconciliation passed the gate and its report is written. Extra: the export's, ``report``, ``summary``."""
    return _asset(profile, "reported")


def _asset(profile: DagProfile, what: str) -> Asset:
    uri = f"acktrail://{quote(profile.name or 'default', safe='')}/{what}"
    return Asset(name=profile.named(f"acktrail_{what}"), uri=uri, group=_GROUP)


def tables_written(profile: DagProfile) -> AssetAlias:
    """The tables that a run wrote, by their addresses: ``s3://bucket/acktrail/state_records``."""
    return AssetAlias(name=profile.named("acktrail_tables"), group=_GROUP)


@step(20)
def export(**context: Unpack[Context]) -> dict[str, Any]:
    """Append the new records of the state topic, and describe the groups as they are now."""
    from acktrail_connect.export import export_run

    target = task_inputs.export_target(context)
    kafka, tables = cluster_at(target), tables_at(target)
    summary = export_run.export(kafka, tables, run_id=target["run_id"])
    counts = dataclasses.asdict(summary)
    context["outlet_events"][_outlet(context)].extra = {**_place(target), "counts": counts}
    assets.publish(context, assets.table_assets(tables, ["state_records"]))
    return task_reports.hand_over(context, target["run_id"], counts)


@step(20, retries=4)
def observe(**context: Unpack[Context]) -> task_inputs.ReconcileTarget:
    """Observe the cluster, export to the end, observe again. Skips where no reconciliation is due (``reconcile_due``),
    and where neither a share group nor the state topic exists. Fails where none is due and the gate stopped the newest
    one."""
    from acktrail_connect.export import export_run
    from acktrail_jobs.reconcile.reconcile_due import CheckDecision, check_due

    target = task_inputs.reconcile_target(context)
    tables, followed = tables_at(target), task_inputs.followed_export(context)
    if followed is not None:
        decided = check_due(tables, followed, target["run_id"])
        if decided.decision is not CheckDecision.RUN:
            _fail_while_stopped(tables, decided)
            raise AirflowSkipException(f"nothing was reconciled: {decided.reason}")
    observed = export_run.observe(cluster_at(target), tables, run_id=target["run_id"])
    if observed.status == "state_topic_absent" and not observed.rows.get("group_observations"):
        raise AirflowSkipException(f"cluster {observed.cluster_id} has no share groups and never had any")
    task_reports.hand_over(context, target["run_id"], dataclasses.asdict(observed))
    return target


def _fail_while_stopped(tables: TablesConfig, skipped: DueCheck) -> None:
    """Raise QualityGateFailed where the gate stopped the newest reconciliation: a run that is skipped after it would
    look as if all was well."""
    from acktrail.tables.delta.store import Tables
    from acktrail_expectations.gate import pass_gate
    from acktrail_expectations.rule_results import recorded

    newest = recorded(Tables(tables), skipped.run_id) if skipped.run_id else None
    if newest is not None:
        pass_gate(newest, f"no reconciliation is due ({skipped.reason}), and the gate still stops run {newest.run_id}")


@step(60)
def reconcile(target: task_inputs.ReconcileTarget, **context: Unpack[Context]) -> dict[str, Any]:
    """Replay with PySpark, compare with the observation, update the history of every record. The same Spark evaluates
    the rules of the gate, which only decides."""
    from acktrail.tables.delta.store import Tables
    from acktrail_expectations.gate import validate_run
    from acktrail_jobs import api

    check = partial(validate_run, Tables(tables_at(target)))
    master = spark_master(context["params"].get("spark_conn_id"))
    done = api.reconcile(tables_at(target), target["run_id"], master, with_history=True, then=check)
    counts = dataclasses.asdict(done)
    ran_on = counts.pop("ran_on")
    _log.info("ran on %s", printable(ran_on or "nothing: all was done"))
    return task_reports.hand_over(context, target["run_id"], counts, ran_on=ran_on)


@step(30)
def validate(target: task_inputs.ReconcileTarget, **context: Unpack[Context]) -> dict[str, Any]:
    """The gate, on the results that the task before recorded: a critical expectation that fails stops the DAG here,
    after the report of the stopped run is written. The log says which, where and what to do."""
    from acktrail.tables.delta.store import Tables
    from acktrail_expectations import gate

    store, run_id = Tables(tables_at(target)), target["run_id"]
    summary = gate.recorded_run(store, run_id) or gate.validate_run(store, run_id)  # the second where it has grown
    gate.log_summary(summary)
    links = _report_of_stopped(target) if summary.critical_failures else {}
    result = task_reports.hand_over_validation(context, run_id, summary, links)
    gate.pass_gate(summary)
    return result


@step(20)
def publish(target: task_inputs.ReconcileTarget, **context: Unpack[Context]) -> dict[str, Any]:
    """Write the report of the run, its data and its evidence. The log has who is in trouble."""
    summary, links, digest = _write_report(target)
    totals = dataclasses.asdict(summary.totals)
    assets.publish(context, assets.table_assets(tables_at(target), ["reconciliations"]))
    context["outlet_events"][_outlet(context)].extra = {
        **_place(target),
        "report": links["report"],
        "summary": totals,
        "ran_on": (context["ti"].xcom_pull(task_ids="reconcile", key=task_reports.RESULT) or {}).get("ran_on"),
    }
    counts = {name: dict(found) if isinstance(found, list | tuple) else found for name, found in totals.items()}
    return task_reports.hand_over(context, target["run_id"], counts, links=links, evidence_sha256=digest)


def _report_of_stopped(target: task_inputs.ReconcileTarget) -> dict[str, str]:
    """Links to the report of a run that the gate stops: an older one would say what is not true any more. Why the run
    is stopped is never hidden by a report that cannot be written."""
    try:
        return _write_report(target)[1]
    except AcktrailError as error:
        _log.warning("no report of the stopped run: %s", error.message)
        return {}


def _write_report(target: task_inputs.ReconcileTarget) -> tuple[Summary, dict[str, str], str]:
    """Report, data and evidence of the run: its summary, where they are, the hash of the evidence."""
    from acktrail_dashboard.evidence import write_evidence
    from acktrail_dashboard.report import publish as publish_report

    tables, run_id, brokers = tables_at(target), target["run_id"], cluster_at(target).bootstrap_servers
    folder, kept = task_inputs.report_folder(target["report_folder"], target["profile"]), reports_kept()
    published = publish_report(tables, run_id, folder, kept=kept, broker=brokers)
    task_reports.show_trouble(published.summary)
    evidence, pack = write_evidence(tables, run_id, folder, kept=kept, broker=brokers)
    links = {"report": str(published.page), "report_data": str(published.data), "evidence": str(evidence)}
    return published.summary, links, pack["sha256"]


@step(300)
def maintain(**context: Unpack[Context]) -> dict[str, Any]:
    """Upkeep of the tables: what it did is in the log."""
    from acktrail.tables.upkeep.maintenance import MaintenancePolicy
    from acktrail.tables.upkeep.maintenance import maintain as maintain_tables
    from acktrail.times import duration_ms

    params = context["params"]
    keep = params["keep"]
    policy = MaintenancePolicy(keep_ms=None if keep is None else duration_ms("keep", keep))
    tables = task_inputs.maintained_tables(params)
    report = maintain_tables(tables, policy)
    headers = ("TABLE", "ROWS", "FILES", "FILES AFTER", "ROWS DROPPED", "ROWS MERGED", "FILES REMOVED")
    rows = [
        (of.table, of.rows, of.files, of.files_after, of.rows_dropped, of.rows_merged, of.unneeded_files)
        for of in report.tables
    ]
    task_reports.show("; ".join(("maintained", *report.notes)), headers, rows)
    return {"tables": [dataclasses.asdict(of) for of in report.tables]}


def _outlet(context: Context) -> Asset:
    """The asset that the task publishes: its profile's."""
    (asset,) = (each for each in context["task"].outlets if isinstance(each, Asset))
    return asset


def _place(target: task_inputs.Target) -> dict[str, str]:
    return {name: target[name] for name in ("run_id", "kafka_conn_id", "tables_uri")}
