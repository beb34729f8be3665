"""``acktrail config dags``: what Airflow needs to know of acktrail."""

from __future__ import annotations

import typer


def dags() -> None:
    """Print the folder of acktrail's DAG files.

    Set Airflow's dags_folder to it, or add it as a DAG bundle.

    Example: export AIRFLOW__CORE__DAGS_FOLDER="$(acktrail config dags)"
    """
    from acktrail.embedded.airflow.airflow_standalone import dags_folder

    typer.echo(dags_folder())
