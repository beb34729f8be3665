"""``acktrail export``: from the cluster to the tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from acktrail.cli.operations import CONNECTORS, ExportSummary
from acktrail.cli.options import AsJson, BootstrapServer, ClientConfig, TablesOptions, TablesRoot
from acktrail.cli.progress import LiveLine
from acktrail.config import KafkaConfig, TablesConfig

if TYPE_CHECKING:
    from acktrail.connect.worker import Progress

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def export(
    bootstrap_server: BootstrapServer = None,
    client_config: ClientConfig = None,
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
    connector: Annotated[
        list[str] | None, typer.Option("--connector", help="state or offsets; may be repeated. Default: both.")
    ] = None,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Go on until Ctrl-C instead of ending at the topic's present end.")
    ] = False,
    observation: Annotated[
        bool,
        typer.Option(
            "--observe/--no-observe",
            help="Ask the brokers before and after, as `acktrail reconcile` needs it. Not with --connector.",
        ),
    ] = True,
    run_id: Annotated[str | None, typer.Option("--run-id", help="Name of this run in the tables.")] = None,
    flush_records: Annotated[
        int | None, typer.Option("--flush-records", min=1, help="Commit after this many records.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Export share-group state and offsets into Delta tables, exactly once.

    Goes on where the tables end; killed at any moment, it loses nothing and doubles nothing. What Kafka pruned before
    it was exported is recorded as a gap. Reads only: nothing in the cluster is changed.

    Example: acktrail export --bootstrap-server broker-1:9092 --tables /data/acktrail
    """
    from acktrail.cli import operations
    from acktrail.cli.lean_arrow import forgo_pandas

    forgo_pandas()
    from acktrail.connect.stopping import stop_on_signals
    from acktrail.connect.worker import FlushPolicy

    kafka = KafkaConfig.from_environment(bootstrap_server, client_config)
    target = TablesConfig.from_environment(tables, tables_options)
    with LiveLine() as line, stop_on_signals() as stop:
        if observation and not connector and not continuous:
            summary = operations.observe(kafka, target, run_id=run_id, stop=stop, progress=_shown_on(line))
        else:
            summary = operations.export(
                kafka,
                target,
                run_id=run_id,
                connectors=tuple(connector or CONNECTORS),
                bounded=not continuous,
                stop=stop,
                policy=FlushPolicy(rows=flush_records) if flush_records else None,
                progress=_shown_on(line),
            )
    typer.echo(json.dumps(asdict(summary)) if as_json else _text(summary))


def _shown_on(line: LiveLine) -> Callable[[Progress], None]:

    def show(progress: Progress) -> None:
        line.show(
            f"{progress.records_read:,} records read, {progress.records_committed:,} committed, "
            f"{progress.tasks_finished}/{progress.tasks} partitions at their end"
        )

    return show


def _text(summary: ExportSummary) -> str:
    counts = f"{summary.records_read:,} read, {summary.records_decoded:,} decoded"
    lines = [
        f"run {summary.run_id}, cluster {summary.cluster_id}: {summary.status.replace('_', ' ')}",
        f"state records: {counts}, {summary.records_quarantined:,} kept undecoded",
    ]
    lines += [f"{name}: {count:,} rows" for name, count in sorted(summary.rows.items())]
    lines += [
        f"gap: state partition {gap.state_partition}, offsets {gap.first_offset} to {gap.last_offset} pruned unexported"
        for gap in summary.gaps
    ]
    return "\n".join(lines)
