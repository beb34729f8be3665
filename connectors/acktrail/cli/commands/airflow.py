"""``acktrail airflow``: what Airflow needs to know of acktrail."""

from __future__ import annotations

import typer

app = typer.Typer(
    help="What Airflow needs to know of acktrail.", rich_markup_mode=None, add_completion=False, no_args_is_help=True
)


@app.callback()
def _root() -> None:
    """What Airflow needs to know of acktrail."""


@app.command()
def dags() -> None:
    """Print the folder of acktrail's DAG files.

    Set Airflow's dags_folder to it, or add it as a DAG bundle.

    Example: export AIRFLOW__CORE__DAGS_FOLDER="$(acktrail airflow dags)"
    """
    from acktrail.embedded.airflow.airflow_settings import dags_folder

    typer.echo(dags_folder())
