"""Exceptions of Airflow that have another place in Airflow 3.1: `airflow.sdk` has them from 3.2 on."""

from __future__ import annotations

try:
    from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException, AirflowSensorTimeout
except ImportError:  # 3.1
    from airflow.exceptions import (  # type: ignore[no-redef, attr-defined]
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSensorTimeout,
    )

__all__ = ["AirflowFailException", "AirflowNotFoundException", "AirflowSensorTimeout"]
