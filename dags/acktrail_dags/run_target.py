"""What one DAG run works on: which cluster, which tables, under which run id."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypedDict

from airflow.sdk import Context

from acktrail.config import TablesConfig, reports_folder
from acktrail.errors import ConfigurationError
from acktrail_dags.parameters import DEFAULT_KAFKA_CONN_ID
from acktrail_dags.run_id import table_run_id

__all__ = ["Target", "export_target", "followed_export", "reconcile_target", "tables_of"]

_log: Final = logging.getLogger("acktrail.dags")
_FROM_EXPORT: Final = ("kafka_conn_id", "tables_uri")
_BY_ASSET: Final = "asset_triggered"


class Target(TypedDict):
    """Goes from task to task: names and places only, never a secret."""

    run_id: str
    kafka_conn_id: str
    tables_uri: str


class ReconcileTarget(Target):
    """`report_folder`: where the report goes; `spark_master`: where PySpark runs."""

    report_folder: str
    spark_master: str


def export_target(context: Context) -> Target:
    """What this try of an export works on. Raises ConfigurationError: no tables named anywhere."""
    return _target(context, context["params"])


def reconcile_target(context: Context) -> ReconcileTarget:
    """What this try of a reconciliation works on: its parameters, else what the newest export it follows worked on.

    Raises ConfigurationError: no tables or no report folder named anywhere.
    """
    params: Mapping[str, Any] = context["params"]
    exported = _newest(context["triggering_asset_events"])
    chosen = {**exported, **{name: params[name] for name in _FROM_EXPORT if params[name] is not None}}
    folder = params["report_folder"] or reports_folder()
    if folder is None:
        raise ConfigurationError("no folder for the report", hint="set the parameter report_folder or ACKTRAIL_REPORTS")
    target = _target(context, chosen)
    return ReconcileTarget(**target, report_folder=str(folder), spark_master=params["spark_master"])


def followed_export(context: Context) -> str | None:
    """The run id of the newest export that an automatic run follows.

    None where a person wants the run whatever has changed: triggered by hand, or cleared; and in a later try of a run
    that was found due before.
    """
    if context["dag_run"].run_type != _BY_ASSET or context["ti"].try_number > 1:
        return None
    events = sorted(_flat(context["triggering_asset_events"].values()), key=lambda event: event.timestamp)
    found: str | None = events[-1].extra.get("run_id") if events else None
    return found


def tables_of(target: Target) -> TablesConfig:
    """Where the target's tables are, with the storage options the worker has."""
    return TablesConfig.from_environment(target["tables_uri"])


def _target(context: Context, chosen: Mapping[str, Any]) -> Target:
    task = context["ti"]
    try:
        tables = TablesConfig.from_environment(chosen.get("tables_uri"))
    except ConfigurationError as error:
        raise ConfigurationError(error.message, hint="set the parameter tables_uri or ACKTRAIL_TABLES") from error
    return Target(
        run_id=table_run_id(task.dag_id, task.run_id, task.try_number),
        kafka_conn_id=chosen.get("kafka_conn_id") or DEFAULT_KAFKA_CONN_ID,
        tables_uri=tables.uri,
    )


def _newest(events: Mapping[Any, Sequence[Any]]) -> dict[str, Any]:
    """What the newest of the exports worked on; exports of something else in the same run are named in the log."""
    extras = [event.extra for event in sorted(_flat(events.values()), key=lambda event: event.timestamp)]
    if not extras:
        return {}
    newest, *others = ({name: extra.get(name) for name in _FROM_EXPORT} for extra in reversed(extras))
    for other in others:
        if other != newest:
            _log.warning("not reconciled here, trigger this DAG for it: %s (this run: %s)", other, newest)
    return newest


def _flat(groups: Iterable[Sequence[Any]]) -> list[Any]:
    return [event for group in groups for event in group]
