"""``acktrail run reconcile``, and the call behind it that a DAG makes."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acktrail.cli.common_options import AsJson, TablesOptions, TablesRoot
from acktrail.cli.progress import showing_activity
from acktrail.config import TablesConfig
from acktrail_jobs.commands.job_options import Master

if TYPE_CHECKING:
    from acktrail.executors import Executors
    from acktrail_jobs.pipeline.reconcile_run import ReconcileSummary


app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("reconcile")
def _command(
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    run_id: Annotated[
        str | None, typer.Option("--run-id", help="The observation to reconcile. Default: the newest complete one.")
    ] = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Replay the exported state with PySpark and compare it with what the cluster said.

    Writes share_partition_states, reconciliations (a verdict a share partition) and findings, brings delivery_history
    up to date (see `acktrail run history`), and judges every queue: queue_statuses, status_changes, queue_trends and
    run_totals. Needs an observation: `acktrail run export` makes one. The same run again changes nothing. Reads no
    cluster.

    Example: acktrail run reconcile --tables /data/acktrail
    """
    config = TablesConfig.from_environment(tables, tables_options)
    with showing_activity():
        summary = reconcile(config, run_id, master, with_history=True)
    typer.echo(json.dumps(asdict(summary)) if as_json else _text(config, summary))


def reconcile(
    tables: TablesConfig,
    run_id: str | None = None,
    master: str | None = None,
    *,
    with_history: bool = False,
    then: Callable[[str, Executors], object] = lambda _run_id, _executors: None,
) -> ReconcileSummary:
    """See ``reconcile_run.reconcile``, ``executors_on``, ``translated`` and ``show_results``. `with_history`: bring
    ``delivery_history`` up to date and write the statuses of queues with the same executors, which `then` gets too."""
    from acktrail.tables.delta.store import Tables
    from acktrail_jobs.commands.engine import executors_on, show_results, translated
    from acktrail_jobs.pipeline.history_run import build_history
    from acktrail_jobs.pipeline.reconcile_run import reconcile as run
    from acktrail_jobs.pipeline.status_run import write_statuses

    def add_history(reconciled: str, executors: Executors) -> None:
        if with_history and Tables(tables).exists("state_records"):
            build_history(tables, lambda _run_id: nullcontext(executors))
        if with_history:
            write_statuses(tables, lambda _run_id: nullcontext(executors), reconciled)
        then(reconciled, executors)

    with translated():
        done = run(tables, executors_on(master), run_id, before_done=add_history)
        show_results(tables, done.run_id)
    return done


def _text(tables: TablesConfig, summary: ReconcileSummary) -> str:
    from acktrail.plain_tables import printable, table
    from acktrail.tables.cluster_overview import no_share_group
    from acktrail.tables.delta.store import Tables

    nothing = None if summary.share_partitions else no_share_group(Tables(tables), summary.run_id)
    if nothing is not None:
        return f"run {printable(summary.run_id)}: {nothing}"
    counted = (("verdict", summary.verdicts), ("finding", summary.findings))
    rows: list[tuple[Any, ...]] = [(kind, name, count) for kind, counts in counted for name, count in counts.items()]
    replay = f"all records were replayed: {printable(summary.replayed_all or '')}"
    if summary.went_on_from is not None:
        replay = f"replay continued from run {printable(summary.went_on_from)}"
    counts = f"{summary.share_partitions} share partitions, {summary.moved} moved"
    where = f"; on {printable(summary.ran_on)}" if summary.ran_on else ""
    head = f"run {printable(summary.run_id)}: {counts}; {replay}{where}"
    return f"{head}\n{table(('', 'name', 'count'), rows)}" if rows else head
