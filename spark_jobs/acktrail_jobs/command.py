"""``acktrail reconcile``, and the call behind it that a DAG makes."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from acktrail.cli.options import AsJson, TablesOptions, TablesRoot
from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError, ConfigurationError
from acktrail_jobs.summary import ReconcileSummary

__all__ = ["app", "reconcile"]

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("reconcile")
def _command(
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    run_id: Annotated[
        str | None, typer.Option("--run-id", help="The observation to reconcile. Default: the newest complete one.")
    ] = None,
    master: Annotated[
        str | None, typer.Option("--master", help="Spark master. Default: what spark-submit says, else local[2].")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replay the exported state with PySpark and compare it with what the cluster said.

    Writes share_partition_states, reconciliations (a verdict a share partition) and findings. Needs an observation:
    `acktrail export --observe`. The same run again changes nothing. Reads no cluster.

    Example: acktrail reconcile --tables /data/acktrail
    """
    summary = reconcile(TablesConfig.from_environment(tables, tables_options), run_id, master)
    typer.echo(json.dumps(asdict(summary)) if as_json else _text(summary))


def reconcile(tables: TablesConfig, run_id: str | None = None, master: str | None = None) -> ReconcileSummary:
    """Reconcile an observation: see ``acktrail_jobs.reconcile.reconcile``.

    Raises:
        AcktrailError: as said there; also where the Spark job fails, with the failure's last line.
    """
    from pyarrow import ArrowException
    from pyspark.errors import PySparkException

    from acktrail_jobs.reconcile import reconcile as run

    try:
        return run(tables, run_id, master)
    except PySparkException as error:
        raise AcktrailError(
            f"the Spark job failed: {_last_line(error)}", hint="Spark's own messages on stderr say more"
        ) from error
    except ArrowException as error:
        raise ConfigurationError(f"the tables cannot be read: {_last_line(error)}", hint="check the files") from error


def _last_line(error: Exception) -> str:
    """The line that names the cause: the end of a worker's traceback, before the JVM's own."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception")) or ".errors." in line]
    return (causes or lines or [type(error).__name__])[-1]


def _text(summary: ReconcileSummary) -> str:
    from acktrail.cli.tabular import printable, table

    counted: list[tuple[str, dict[str, int]]] = [
        ("verdict", summary.verdicts),
        ("finding", summary.findings),
    ]
    rows: list[tuple[Any, ...]] = [(kind, name, count) for kind, counts in counted for name, count in counts.items()]
    head = f"run {printable(summary.run_id)}: {summary.share_partitions} share partitions, {summary.moved} moved"
    return f"{head}\n{table(('', 'name', 'count'), rows)}" if rows else head
