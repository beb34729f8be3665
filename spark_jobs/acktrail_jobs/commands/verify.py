"""``acktrail tables verify``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import typer

from acktrail.cli.common_options import AsJson, TablesOptions, TablesRoot
from acktrail.cli.progress import showing_activity
from acktrail.config import TablesConfig
from acktrail_jobs.commands.job_options import Master

if TYPE_CHECKING:
    from acktrail_jobs.pipeline.verify_tables import VerifySummary


app = typer.Typer(rich_markup_mode=None, add_completion=False)
_DIFFERENT: Final = 6


@app.command("verify")
def _command(
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Prove that what each run saves for the next one follows from the exported records.

    Reconciliation and history read only new records, and continue from what the run before saved. This replays all
    records from the beginning and compares: saved states, every change of the history, the states it continues from.
    Writes nothing. Exit code 6 when something differs: then delete the table named and run `acktrail run reconcile`,
    which writes it again.

    Example: acktrail tables verify --tables /data/acktrail
    """
    with showing_activity():
        summary = verify(TablesConfig.from_environment(tables, tables_options), master)
    typer.echo(json.dumps(asdict(summary)) if as_json else _text(summary))
    if summary.differences:
        raise typer.Exit(_DIFFERENT)


def verify(tables: TablesConfig, master: str | None = None) -> VerifySummary:
    """See ``acktrail_jobs.pipeline.verify_tables.verify``, ``executors_on`` and ``translated``."""
    from acktrail_jobs.commands.engine import executors_on, translated
    from acktrail_jobs.pipeline.verify_tables import verify as run

    with translated():
        return run(tables, executors_on(master))


def _text(summary: VerifySummary) -> str:
    from acktrail.plain_tables import table

    changes = f"{summary.changes:,} changes made by {summary.records:,} records"
    compared = f"{summary.share_partitions:,} share partitions, {changes}"
    if summary.not_compared:
        compared += f" (of {len(summary.not_compared)} state partitions with dropped records only the raw bytes)"
    if not summary.differences:
        return f"{compared}: all as the records say"
    rows = [(each.table, each.state_partition, each.subject, each.detail) for each in summary.differences]
    return f"{compared}: differences\n{table(('TABLE', 'STATE PARTITION', 'SHARE PARTITION', 'DETAIL'), rows)}"
