"""The cluster, the tables and the run id that one DAG run works with."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping
from typing import Any, Final, TypedDict

from airflow.sdk import Context

from acktrail.config import TablesConfig, reports_folder
from acktrail.errors import ConfigurationError
from acktrail_dags.parameters import DEFAULT_KAFKA_CONN_ID

_log: Final = logging.getLogger("acktrail.dags")
_FROM_EXPORT: Final = ("kafka_conn_id", "tables_uri")
_BY_ASSET: Final = "asset_triggered"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9]+")
_LONGEST: Final = 60


class Target(TypedDict):
    """Passed from task to task: names and places only, never a secret."""

    run_id: str
    kafka_conn_id: str
    tables_uri: str


class ReconcileTarget(Target):
    """`report_folder`: where the report is written; `spark_master`: where PySpark runs."""

    report_folder: str
    spark_master: str


def export_target(context: Context) -> Target:
    """What this try of an export works with. Raises ConfigurationError: no tables are named."""
    return _target(context, context["params"])


def reconcile_target(context: Context) -> ReconcileTarget:
    """What this try of a reconciliation works with: its parameters, else what the newest export that it follows used.

    Raises:
        ConfigurationError: no tables or no report folder are named.
    """
    params: Mapping[str, Any] = context["params"]
    chosen = {**_newest_export(context), **{name: params[name] for name in _FROM_EXPORT if params[name] is not None}}
    folder = params["report_folder"] or reports_folder()
    if folder is None:
        raise ConfigurationError("no folder for the report", hint="set the parameter report_folder or ACKTRAIL_REPORTS")
    target = _target(context, chosen)
    return ReconcileTarget(**target, report_folder=str(folder), spark_master=params["spark_master"])


def followed_export(context: Context) -> str | None:
    """The run id of the newest export that an automatic run follows.

    None where the run is wanted in any case: triggered by hand, cleared, or a later try of a run that was due before.
    """
    if context["dag_run"].run_type != _BY_ASSET or context["ti"].try_number > 1:
        return None
    exports = _exports(context)
    return exports[-1].get("run_id") if exports else None


def table_run_id(dag_id: str, dag_run_id: str, try_number: int) -> str:
    """The run id in the tables of one try of one DAG run: letters, digits and ``-``, at most 80 long.

    Different arguments give different ids: a digest separates names that look alike once they are cleaned. A second
    try gets its own id: its observation must not mix with what the first one left.
    """
    digest = hashlib.sha256(f"{dag_id}\0{dag_run_id}\0{try_number}".encode()).hexdigest()[:12]
    readable = _UNSAFE.sub("-", dag_run_id).strip("-")[:_LONGEST].strip("-")
    return f"{readable}-{digest}" if readable else digest


def tables_config(uri: str | None) -> TablesConfig:
    """The tables at `uri`, else those of the worker's environment, with the worker's storage options.

    Raises:
        ConfigurationError: neither is named.
    """
    try:
        return TablesConfig.from_environment(uri)
    except ConfigurationError as error:
        raise ConfigurationError(error.message, hint="set the parameter tables_uri or ACKTRAIL_TABLES") from error


def _target(context: Context, chosen: Mapping[str, Any]) -> Target:
    task = context["ti"]
    return Target(
        run_id=table_run_id(task.dag_id, task.run_id, task.try_number),
        kafka_conn_id=chosen.get("kafka_conn_id") or DEFAULT_KAFKA_CONN_ID,
        tables_uri=tables_config(chosen.get("tables_uri")).uri,
    )


def _newest_export(context: Context) -> dict[str, Any]:
    """Connection and tables of the newest export; exports of others in the same run are named in the log."""
    exports = [{name: extra.get(name) for name in _FROM_EXPORT} for extra in _exports(context)]
    if not exports:
        return {}
    *others, newest = exports
    for other in others:
        if other != newest:
            _log.warning("not reconciled here, trigger this DAG for it: %s (this run: %s)", other, newest)
    return newest


def _exports(context: Context) -> list[Mapping[str, Any]]:
    """The extras of the asset events that triggered the run, oldest first."""
    events = [event for group in context["triggering_asset_events"].values() for event in group]
    return [event.extra for event in sorted(events, key=lambda event: event.timestamp)]
