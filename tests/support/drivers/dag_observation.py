"""The task of the DAG that observes a cluster, called without a scheduler."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from drivers.airflow_home import Late

from acktrail.config import KafkaConfig, TablesConfig

pipeline_steps = Late("acktrail_dags.pipeline_steps")


def observe_by_task(kafka: KafkaConfig, tables: TablesConfig) -> None:
    """What a run of `acktrail_reconcile` exports."""
    context: dict[str, Any] = {
        "params": {"kafka_conn_id": "own", "tables_uri": tables.uri, "report_folder": f"{tables.uri}/reports"},
        "ti": SimpleNamespace(dag_id="d", run_id=uuid4().hex, try_number=1, xcom_push=lambda **_: None),
        "dag_run": SimpleNamespace(run_type="manual"),
        "triggering_asset_events": {},
    }
    connection = {"conn_type": "generic", "extra": {"bootstrap.servers": kafka.bootstrap_servers}}
    root = logging.getLogger()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AIRFLOW_CONN_OWN", json.dumps(connection))
        patched.setenv("ACKTRAIL_DAG_PLACES", f"own={tables.uri}")
        patched.setenv("ACKTRAIL_DAG_FOLDERS", tables.uri)
        patched.setattr(root, "handlers", [*root.handlers])  # Airflow would log to stdout, which others read
        pipeline_steps.observe.function(**context)
