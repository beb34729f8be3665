"""Names of Airflow that have another place in Airflow 3.1: `airflow.sdk` has them from 3.2 on."""

from __future__ import annotations

try:
    from airflow.sdk import CronTriggerTimetable
    from airflow.sdk.exceptions import (
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSensorTimeout,
        AirflowSkipException,
    )
except ImportError:  # 3.1
    from airflow.exceptions import (  # type: ignore[no-redef, attr-defined]
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSensorTimeout,
        AirflowSkipException,
    )
    from airflow.timetables.trigger import CronTriggerTimetable  # type: ignore[assignment]

__all__ = [
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "CronTriggerTimetable",
]
