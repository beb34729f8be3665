"""``acktrail export``: from the cluster to the tables."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from acktrail.cli.common_options import AsJson, BootstrapServer, ClientConfig, TablesOptions, TablesRoot
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import NotAllAnswered
from acktrail.stderr_lines import LiveLine

if TYPE_CHECKING:
    from acktrail.connect.worker import Progress
    from acktrail.export.export_run import ExportGap, ExportSummary


def export(
    bootstrap_server: BootstrapServer = None,
    client_config: ClientConfig = None,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    connector: Annotated[
        list[str] | None, typer.Option("--connector", help="state or offsets; may be repeated. Default: both.")
    ] = None,
    continuous: Annotated[
        bool,
        typer.Option(
            "--continuous", help="Run until Ctrl-C, over outages too, instead of ending at the topic's present end."
        ),
    ] = False,
    observation: Annotated[
        bool,
        typer.Option(
            "--observe/--no-observe",
            help="Ask the brokers before and after, as `acktrail reconcile` needs it. Not with --connector.",
        ),
    ] = True,
    run_id: Annotated[str | None, typer.Option("--run-id", help="Name of this run in the tables.")] = None,
    observe_every: Annotated[
        float, typer.Option("--observe-every", min=1, help="With --continuous: seconds between two observations.")
    ] = 300.0,
    flush_records: Annotated[
        int | None, typer.Option("--flush-records", min=1, help="Commit after this many records.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Export share-group state and offsets into Delta tables, exactly once.

    Continues where the tables end; killed at any moment, it loses nothing and doubles nothing. Records that were pruned
    before their export are recorded as a gap. Nothing in the cluster is changed.

    Example: acktrail export --bootstrap-server broker-1:9092 --tables /data/acktrail
    """
    from acktrail.cli.arrow_without_pandas import forgo_pandas

    forgo_pandas()
    from acktrail.connect.signals import stop_on_signals
    from acktrail.connect.worker import FlushPolicy
    from acktrail.export import export_run
    from acktrail.export.continuous_export import export_continuously

    kafka = KafkaConfig.from_environment(bootstrap_server, client_config)
    target = TablesConfig.from_environment(tables, tables_options)
    chosen = tuple(connector or export_run.CONNECTORS)
    policy = FlushPolicy(rows=flush_records) if flush_records else None
    try:
        with LiveLine() as line, stop_on_signals() as stop:
            shown = partial(_shown, line)
            if continuous:
                summary = export_continuously(
                    kafka,
                    target,
                    run_id=run_id,
                    connectors=chosen,
                    observe_every_s=observe_every if observation else None,
                    stop=stop,
                    policy=policy,
                    progress=shown,
                    notice=partial(_notice, line),
                )
            elif observation and not connector:
                summary = export_run.observe(kafka, target, run_id=run_id, stop=stop, policy=policy, progress=shown)
            else:
                summary = export_run.export(
                    kafka, target, run_id=run_id, connectors=chosen, stop=stop, policy=policy, progress=shown
                )
    except NotAllAnswered as error:
        _show(error.summary, as_json=as_json)
        raise
    _show(summary, as_json=as_json)


def _show(summary: ExportSummary, *, as_json: bool) -> None:
    typer.echo(json.dumps(asdict(summary)) if as_json else _text(summary))


def _notice(line: LiveLine, text: str) -> None:
    """One line on stderr, with the local time, on a line of its own."""
    line.clear()
    typer.echo(f"{time.strftime('%H:%M:%S')} {text}", err=True)


def _shown(line: LiveLine, progress: Progress) -> None:
    line.show(
        f"{progress.records_read:,} records read, {progress.records_committed:,} committed, "
        f"{progress.tasks_finished}/{progress.tasks} partitions at their end"
    )


def _text(summary: ExportSummary) -> str:
    counts = f"{summary.records_read:,} read, {summary.records_decoded:,} decoded"
    lines = [
        f"run {summary.run_id}, cluster {summary.cluster_id}: {summary.status.replace('_', ' ')}",
        f"state records: {counts}, {summary.records_quarantined:,} kept undecoded",
    ]
    lines += [f"{name}: {count:,} rows" for name, count in sorted(summary.rows.items())]
    lines += [_gap(gap) for gap in summary.gaps]
    lines += [f"unknown: {reason}" for reason in summary.unanswered]
    return "\n".join(lines)


def _gap(gap: ExportGap) -> str:
    from acktrail.connect.contract import LOG_REPLACED, PRUNED_BEFORE_FIRST_EXPORT

    where = f"state partition {gap.state_partition}"
    if gap.reason == LOG_REPLACED:
        return f"break: {where}, at offset {gap.first_offset}: Kafka's log is another one than the one exported before"
    when = "before the first export" if gap.reason == PRUNED_BEFORE_FIRST_EXPORT else "unexported"
    return f"gap: {where}, offsets {gap.first_offset} to {gap.last_offset} pruned {when}"
