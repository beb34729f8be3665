"""``acktrail run export``: share-group state and offsets of a cluster into the tables."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from acktrail.cli.common_options import OfBoth
from acktrail.errors import NotAllAnswered
from acktrail.text_tables import LiveLine

if TYPE_CHECKING:
    from acktrail_connect.export.export_run import ExportGap, ExportSummary
    from acktrail_connect.task_execution import Progress

RunId = Annotated[str | None, typer.Option("--run-id", help="Name of this run in the tables.")]


def export(
    *,
    at: OfBoth,
    state_only: Annotated[
        bool,
        typer.Option("--state-only", help="Export only the state topic, without groups and offsets from the brokers."),
    ] = False,
    observation: Annotated[
        bool,
        typer.Option(
            "--observe/--no-observe",
            help="Query the brokers before and after the export; `acktrail run reconcile` needs both.",
        ),
    ] = True,
    run_id: RunId = None,
    flush_records: Annotated[
        int | None, typer.Option("--flush-records", min=1, help="Commit after this many records.")
    ] = None,
) -> None:
    """Export share-group state and offsets into tables, exactly once.

    The export continues where the tables end. If it is killed at any moment, no record is lost or doubled. Records that
    Kafka pruned before the export are stored as a gap. To export every record, run a worker (`acktrail connect
    standalone`). Nothing in the cluster is changed.

    Example: acktrail run export --bootstrap-server broker-1:9092 --tables /data/acktrail
    """
    kafka, target = at.kafka, at.needed
    from acktrail.activity import stop_on_signals
    from acktrail_connect.export import export_run
    from acktrail_connect.task_execution import FlushPolicy

    policy = FlushPolicy(rows=flush_records) if flush_records else None
    try:
        with LiveLine() as line, stop_on_signals() as stop:
            shown = partial(_shown, line)
            if observation and not state_only:
                summary = export_run.observe(kafka, target, run_id=run_id, stop=stop, policy=policy, progress=shown)
            else:
                summary = export_run.export(
                    kafka, target, run_id=run_id, asks_brokers=not state_only, stop=stop, policy=policy, progress=shown
                )
    except NotAllAnswered as error:
        show_summary(error.summary, as_json=at.as_json)
        raise
    show_summary(summary, as_json=at.as_json)
    if not at.as_json and "group_observations" not in summary.rows:
        from acktrail.tables.delta.store import Tables
        from acktrail.view.cluster_health import no_share_group

        nothing = no_share_group(Tables(target), summary.run_id)
        if nothing is not None:
            typer.echo(nothing)


def show_summary(summary: ExportSummary, *, as_json: bool) -> None:
    """What a run wrote, on stdout."""
    typer.echo(json.dumps(asdict(summary)) if as_json else _export_text(summary))


def _shown(line: LiveLine, progress: Progress) -> None:
    line.show(
        f"{progress.records_read:,} records read, {progress.records_committed:,} committed, "
        f"{progress.partitions_finished}/{progress.partitions} partitions at their end"
    )


def _export_text(summary: ExportSummary) -> str:
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
    from acktrail.model.log_positions import LOG_REPLACED, PRUNED_BEFORE_FIRST_EXPORT

    where = f"state partition {gap.state_partition}"
    if gap.reason == LOG_REPLACED:
        return f"break: {where}, at offset {gap.first_offset}: Kafka's log is another one than the one exported before"
    when = "before the first export" if gap.reason == PRUNED_BEFORE_FIRST_EXPORT else "unexported"
    return f"gap: {where}, offsets {gap.first_offset} to {gap.last_offset} pruned {when}"
