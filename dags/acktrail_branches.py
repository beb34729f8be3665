"""The DAGs of branches: packages beside the trunk, each of which names its DAG modules (`acktrail.branches`).

A module's `make(profile)` makes its DAG, for Airflow to find here. Without branches there is none.
"""

from __future__ import annotations

from importlib import import_module

from airflow.sdk import DAG  # noqa: F401  # Airflow only parses files that contain the word "airflow"

from acktrail.branches import branches
from acktrail_dags.parameters import dag_profiles

for _branch in branches():
    for _module in _branch.dags:
        for _profile in dag_profiles():
            import_module(_module).make(_profile)
