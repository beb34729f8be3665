"""The newest row of the audit, as Airflow's own database remembers it: each run of a change notes it as XCom, and the
next run compares. Who may write the tables, and not Airflow's database, cannot rewrite both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from airflow.sdk import Context

from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, NoTables
from acktrail_dags.allowed_places import is_same

AUDIT: Final = "audit"
"""The XCom key: ``tables_uri``, and of the newest row ``sequence`` and ``row_hash``, noted by ``run_id``."""
_XCOMS: Final = f"the XComs `{AUDIT}` of this DAG"
_NOTING: Final = ("plan", "note_decision", "verify")
"""The tasks that note; a failed execution is followed by `verify`."""


def note_audit(context: Context, tables: TablesConfig) -> None:
    """Hand the newest row of the audit to the next runs."""
    from acktrail.view.audit_integrity import compared_audit

    newest = compared_audit(tables, ())
    if newest is not None:
        row = {"sequence": newest.sequence, "row_hash": newest.row_hash}
        value = {"tables_uri": tables.uri, **row, "run_id": str(context["ti"].run_id)}
        context["ti"].xcom_push(key=AUDIT, value=value)


def compare_audit(context: Context, tables: TablesConfig) -> None:
    """Compare the audit with the rows that this run, or else the last run of this DAG, noted. Raises
    ConfigurationError: it has another row in the place of one of them, or none."""
    from acktrail.view.audit_integrity import compared_audit

    pulled = context["ti"].xcom_pull(task_ids=_NOTING, key=AUDIT, map_indexes=-1, include_prior_dates=True)
    noted = [(of["sequence"], of["row_hash"], _where(of)) for of in pulled or () if _is_about(of, tables)]
    if not noted:
        return
    try:
        compared_audit(tables, noted)
    except ConfigurationError as error:
        if isinstance(error, NoTables):
            error.message += f", and {noted[0][2]} has noted a row of their audit"
        error.hint = f"compare with a copy of the tables; if they were set back on purpose, delete {_XCOMS}"
        raise


def _is_about(value: Any, tables: TablesConfig) -> bool:
    return isinstance(value, Mapping) and is_same(str(value.get("tables_uri")), tables.uri)


def _where(noted: Mapping[str, Any]) -> str:
    return f"the XCom `{AUDIT}` of run {noted['run_id']}"
