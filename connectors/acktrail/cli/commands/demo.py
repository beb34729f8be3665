"""``acktrail demo``: the main job, end to end, on this machine; ``acktrail airflow``: what Airflow needs to know."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from acktrail.cli.common_options import command_group

airflow = command_group("What Airflow needs to know of acktrail.")

_DEFAULT_VERSION = "4.3.1"
_DEFAULT_FOLDER = Path(".demo")


def demo(
    serve: Annotated[bool, typer.Option("--serve", help="Keep broker and Airflow up until Ctrl-C.")] = False,
    version: Annotated[str, typer.Option(help="Kafka release: 4.2.1, 4.3.1 or 4.4.0.")] = _DEFAULT_VERSION,
    out: Annotated[
        Path, typer.Option(help="Folder for tables and reports; what a demo left in it goes.")
    ] = _DEFAULT_FOLDER,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the servers' folders too: logs, metadata, data.")] = False,
    dags: Annotated[Path | None, typer.Option(help="The DAG folder. Default: acktrail's own.")] = None,
) -> None:
    """Start Kafka and Airflow, let share groups work, export, reconcile, and show what became of every record.

    Everything runs on loopback and ends with this command: no process is left behind, however it ends.
    The summary goes to stdout, the steps to stderr. Tables and reports stay in the folder.

    Example: acktrail demo --serve, then open the addresses it prints.
    """
    from acktrail.cli.main import app as acktrail
    from acktrail.embedded.demo import running_demo
    from acktrail.stderr_lines import StepLines

    signal.signal(signal.SIGTERM, _interrupt)
    with (
        StepLines() as steps,
        running_demo(out, version=version, dags=dags, keep=keep, say=steps.say, progress=steps.count) as running,
    ):
        found = running.run()
        arguments = ["report", "--tables", found["tables_uri"], "--run-id", found["run_id"]]
        typer.main.get_command(acktrail)(args=arguments, standalone_mode=False)
        typer.echo(f"\nReport: {found['report']}\nTables: {found['tables_uri']}")
        if serve:  # exporting every minute; Ctrl-C is the way out and no error
            running.resume()
            typer.echo(f"Kafka:   {running.broker.bootstrap_servers}")
            account = f"user {running.airflow.user}, password {running.airflow.password}"
            typer.echo(f"Airflow: {running.airflow.url} ({account})")
            typer.echo("Ctrl-C ends both.", err=True)
            try:
                running.broker.wait()
            except KeyboardInterrupt:
                typer.echo("", err=True)
        steps.say("broker and Airflow end")


def _interrupt(*_: object) -> NoReturn:
    """SIGTERM ends a demo as Ctrl-C does: in order."""
    raise KeyboardInterrupt


@airflow.command()
def dags() -> None:
    """Print the folder of acktrail's DAG files.

    Set Airflow's dags_folder to it, or add it as a DAG bundle.

    Example: export AIRFLOW__CORE__DAGS_FOLDER="$(acktrail airflow dags)"
    """
    from acktrail.embedded.airflow.airflow_standalone import dags_folder

    typer.echo(dags_folder())
