"""``acktrail airflow``: what Airflow needs to know of acktrail."""

from __future__ import annotations

import typer

from acktrail.cli.common_options import command_group

app = command_group("What Airflow needs to know of acktrail.")


@app.command()
def dags() -> None:
    """Print the folder of acktrail's DAG files.

    Set Airflow's dags_folder to it, or add it as a DAG bundle.

    Example: export AIRFLOW__CORE__DAGS_FOLDER="$(acktrail airflow dags)"
    """
    from acktrail.embedded.airflow.airflow_settings import dags_folder

    typer.echo(dags_folder())
