"""What the DAGs tell each other through."""

from __future__ import annotations

from typing import Final

from airflow.sdk import Asset

__all__ = ["EXPORTED", "REPORTED"]

EXPORTED: Final = Asset(name="acktrail_exported", group="acktrail")
"""The state topic was exported. Extra: ``run_id``, ``kafka_conn_id``, ``tables_uri``, ``counts``."""

REPORTED: Final = Asset(name="acktrail_reported", group="acktrail")
"""A reconciliation passed the gate and its report is written. Extra: the export's, ``report``, ``summary``."""
