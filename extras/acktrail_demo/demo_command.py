"""``acktrail demo``: the main job, end to end, on this machine."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated, NoReturn

import typer

_DEFAULT_VERSION = "4.3.1"
_DEFAULT_FOLDER = Path(".demo")


def demo(
    serve: Annotated[bool, typer.Option("--serve", help="Keep the broker and Airflow running until Ctrl-C.")] = False,
    with_faults: Annotated[
        bool, typer.Option("--with-faults", help="Then inject known faults, and compare them with the findings.")
    ] = False,
    version: Annotated[str, typer.Option(help="Kafka release: 4.2.1, 4.3.1 or 4.4.0.")] = _DEFAULT_VERSION,
    out: Annotated[
        Path, typer.Option(help="Folder for tables and reports. Files of an earlier demo in it are deleted.")
    ] = _DEFAULT_FOLDER,
) -> None:
    """Run share groups on real servers, then export and reconcile. The servers are Kafka and Airflow. A report shows
    the history of every record.

    Everything runs on loopback. All processes end when the command ends, even if it is killed. The summary goes to
    stdout, the steps to stderr. Tables and reports stay in the folder. With --with-faults, the demo then writes known
    faults into the state topic and runs the pipeline a second time. The validation of that run must fail, and it must
    find exactly these faults (else exit code 1).

    Example: acktrail demo --serve, then open the addresses it prints.
    """
    from acktrail.text_tables import StepLines
    from acktrail_demo.demo import running_demo
    from acktrail_demo.faults.library import faults_on, found_faults_text

    signal.signal(signal.SIGTERM, _interrupt)
    is_exact = True
    with StepLines() as steps, running_demo(out, version=version, say=steps.say, progress=steps.count) as running:
        faults = faults_on(version) if with_faults else ()
        found = running.run(fault_partitions=len(faults))
        _show_report("--tables", found["tables_uri"], "--run-id", found["run_id"])
        typer.echo(f"\nReport: {found['report']}\nTables: {found['tables_uri']}\nRan on: {found['ran_on']}")
        if faults:
            faulty = running.inject(faults, found)
            out_file = str(Path(found["report"]).with_name("faults.html"))
            _show_report("--tables", found["tables_uri"], "--run-id", faulty.run_id, "--out", out_file)
            typer.echo(f"\n{found_faults_text(faulty.found, faulty.statuses, faulty.stopped)}\n\nReport: {out_file}")
            is_exact = faulty.is_exact
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
    if not is_exact:
        raise typer.Exit(1)


def _show_report(*arguments: str) -> None:
    """``acktrail dashboard report``, in this process."""
    from acktrail.cli.main import app

    typer.main.get_command(app)(args=["dashboard", "report", *arguments], standalone_mode=False)


def _interrupt(*_: object) -> NoReturn:
    """SIGTERM ends a demo as Ctrl-C does: in order."""
    raise KeyboardInterrupt
