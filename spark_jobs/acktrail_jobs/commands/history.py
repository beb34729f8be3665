"""``acktrail run history``, and the call behind it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from acktrail.cli.common_options import AsJson, TablesOptions, TablesRoot
from acktrail.cli.progress import showing_activity
from acktrail.config import TablesConfig
from acktrail_jobs.commands.job_options import Master

if TYPE_CHECKING:
    from acktrail_jobs.pipeline.history_run import HistorySummary


app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("history")
def _command(
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Bring the history of every record up to the end of the export, with PySpark.

    Reads the state records that came since the last time, and writes delivery_history: what `acktrail record show`,
    `acktrail record archived` and `acktrail record rates` answer from. `acktrail run reconcile` does it too. Reads no
    cluster.

    Example: acktrail run history --tables /data/acktrail
    """
    with showing_activity():
        summary = build_history(TablesConfig.from_environment(tables, tables_options), master)
    typer.echo(json.dumps(asdict(summary)) if as_json else _text(summary))


def build_history(tables: TablesConfig, master: str | None = None) -> HistorySummary:
    """See ``acktrail_jobs.pipeline.history_run.build_history``, ``executors_on`` and ``translated``."""
    from acktrail_jobs.commands.engine import executors_on, translated
    from acktrail_jobs.pipeline.history_run import build_history as run

    with translated():
        return run(tables, executors_on(master))


def _text(summary: HistorySummary) -> str:
    if not summary.records:
        return "no new records"
    return (
        f"{summary.records:,} new records on {summary.state_partitions} state partitions made "
        f"{summary.changes:,} changes in {summary.steps} commit(s)"
    )
