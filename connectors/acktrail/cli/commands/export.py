"""``acktrail run export``, ``import`` and ``repair``: records of a cluster, or of copied logs, into the tables."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from acktrail.cli.commands.copied_logs import (
    DialectName,
    Files,
    StatePartition,
    report_damage,
    report_left_out,
)
from acktrail.cli.common_options import OfBoth, OfTables
from acktrail.cli.progress import table_progress
from acktrail.errors import ConfigurationError, InputError, NotAllAnswered
from acktrail.plain_tables import LiveLine, printable

if TYPE_CHECKING:
    from acktrail.connect.runtime.task_execution import Progress
    from acktrail.export.export_run import ExportGap, ExportSummary
    from acktrail.export.import_run import ImportSummary
    from acktrail.export.repair_run import RepairPreview
    from acktrail.tables.exported.continuity import LostOffsets

RunId = Annotated[str | None, typer.Option("--run-id", help="Name of this run in the tables.")]
_ACTIONS: Final = {
    "remade": "the table is removed; the next `acktrail run reconcile` builds it again",
    "left_out": "it is left out of the table and kept beside it; its records are exported again where Kafka has them",
    "none": "restore it from the storage's own versions or a backup",
}


def export(
    *,
    at: OfBoth,
    state_only: Annotated[bool, typer.Option("--state-only", help="Ask no broker for groups and offsets.")] = False,
    observation: Annotated[
        bool,
        typer.Option(
            "--observe/--no-observe",
            help="Ask the brokers before and after, as `acktrail run reconcile` needs it.",
        ),
    ] = True,
    run_id: RunId = None,
    flush_records: Annotated[
        int | None, typer.Option("--flush-records", min=1, help="Commit after this many records.")
    ] = None,
) -> None:
    """Export share-group state and offsets into Delta tables, exactly once.

    Continues where the tables end; killed at any moment, it loses nothing and doubles nothing. Records that Kafka
    pruned before their export are recorded as a gap: to have every record, run a worker (`acktrail connect
    standalone`). Nothing in the cluster is changed.

    Example: acktrail run export --bootstrap-server broker-1:9092 --tables /data/acktrail
    """
    kafka, target = at.kafka, at.needed
    from acktrail.connect.activity import stop_on_signals
    from acktrail.connect.runtime.task_execution import FlushPolicy
    from acktrail.export import export_run

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
    from acktrail.connect.source_batches import LOG_REPLACED, PRUNED_BEFORE_FIRST_EXPORT

    where = f"state partition {gap.state_partition}"
    if gap.reason == LOG_REPLACED:
        return f"break: {where}, at offset {gap.first_offset}: Kafka's log is another one than the one exported before"
    when = "before the first export" if gap.reason == PRUNED_BEFORE_FIRST_EXPORT else "unexported"
    return f"gap: {where}, offsets {gap.first_offset} to {gap.last_offset} pruned {when}"


def import_files(
    files: Files,
    cluster: Annotated[str, typer.Option("--cluster", help="Id of the cluster that the records are from.")],
    *,
    at: OfTables,
    dialect: DialectName = "auto",
    state_partition: StatePartition = None,
    topic_id: Annotated[
        str | None,
        typer.Option(
            "--topic-id",
            help="Id of the state topic, where no partition.metadata beside a segment has it. Needed for tables that "
            "an export wrote.",
        ),
    ] = None,
    allow_gaps: Annotated[
        bool,
        typer.Option("--allow-gaps", help="Record as lost the offsets between the tables' end and the first record."),
    ] = False,
    run_id: RunId = None,
) -> None:
    """Import copied records of __share_group_state into the tables, exactly once.

    Tables grow in the order of the log, as with an export: records that they have already are compared and skipped, so
    a file may be imported again. Every commit names the files, their SHA-256 and the dialect in export_ranges.

    Example: acktrail tables import __share_group_state-*/*.log --tables /data/copy --cluster 4L6g3nShT-eMCtK--X86sw
    """
    target = at.needed
    from acktrail.export import import_run
    from acktrail.offline.log_segment import ReadReport
    from acktrail.times import new_run_id

    reading = ReadReport(state_partition=state_partition, on_damage=report_damage)
    plan = import_run.ImportPlan(
        files=tuple(files),
        cluster_id=cluster,
        dialect=dialect,
        run_id=run_id or new_run_id(),
        topic_id=_checked(topic_id),
        allow_gaps=allow_gaps,
    )
    summary = import_run.import_files(plan, target, reading)
    report_left_out(reading)
    typer.echo(json.dumps(asdict(summary)) if at.as_json else _import_text(summary))


def _checked(topic_id: str | None) -> str | None:
    from acktrail.model.share_partition import TopicId, topic_id_bytes

    if topic_id is not None:
        try:
            topic_id_bytes(TopicId(topic_id))
        except ValueError as error:
            hint = "a topic id has 22 characters: letters, digits, - and _"
            raise InputError(f"--topic-id {topic_id!r} is no topic id", hint=hint) from error
    return topic_id


def _import_text(summary: ImportSummary) -> str:
    topic = summary.state_topic_id or "not known"
    new, known = summary.records_new, summary.records_known
    lines = [
        f"run {summary.run_id}, cluster {printable(summary.cluster_id)}, state topic {topic}",
        f"dialect {summary.dialect}",
        f"{summary.files} files, {summary.records_in_files:,} records: {new:,} new, {known:,} known already",
        f"new records: {summary.records_decoded:,} decoded, {summary.records_quarantined:,} kept undecoded",
    ]
    lines += [f"{name}: {count:,} rows" for name, count in sorted(summary.rows.items())]
    lines += [
        f"gap: state partition {partition}, offsets {first} to {last} are in no file"
        for partition, first, last in summary.gaps
    ]
    return "\n".join(lines)


def repair(
    *,
    at: OfBoth,
    execute: Annotated[
        bool, typer.Option("--execute", help="Repair the tables; without it nothing is changed.")
    ] = False,
    run_id: RunId = None,
) -> None:
    """Show what is wrong with the tables, and repair it with --execute.

    Finds lost commits, missing and unreadable files, and records that are missing, stored twice or in no range. Records
    that Kafka still has are exported again; the others are recorded as a gap. Tables that are derived from the records
    are built again. The cluster is only read; where it cannot be asked, the tables are shown without it, with the exit
    code of that error. Exit code 3 when something is wrong and nothing was repaired.

    Example: acktrail tables repair --bootstrap-server broker-1:9092 --tables /data/acktrail
    """
    target = at.needed
    from acktrail.export import repair_run
    from acktrail.times import new_run_id

    with table_progress() as progress:
        if execute:
            found = repair_run.repair(at.kafka, target, run_id=run_id or new_run_id(), progress=progress)
        else:
            found = repair_run.preview(lambda: at.kafka, target, progress)
    typer.echo(
        json.dumps(_repair_json(found, executed=execute)) if at.as_json else _repair_text(found, executed=execute)
    )
    if not execute and not found.report.is_sound:
        if not at.as_json:
            typer.echo("nothing was changed; to repair the tables: --execute", err=True)
        raise typer.Exit(ConfigurationError.exit_code)
    if found.unasked is not None:
        raise typer.Exit(found.unasked.exit_code)


def _repair_json(found: RepairPreview, *, executed: bool) -> dict[str, Any]:
    return {
        "executed": executed,
        "is_sound": found.report.is_sound,
        "damages": [asdict(each) for each in found.report.damages],
        "other_faults": found.report.other_faults(),
        "exported_again" if executed else "available": _stretches(found.available),
        "gone": _stretches(found.gone),
        "lost": _stretches(found.report.lost),
        "unasked": found.unasked and found.unasked.with_hint,
    }


def _stretches(lost: Iterable[LostOffsets] | None) -> list[dict[str, int]] | None:
    return None if lost is None else [asdict(each) for each in lost]


def _repair_text(found: RepairPreview, *, executed: bool) -> str:
    if found.report.is_sound:
        sound = "nothing is wrong: every table can be read, and every exported record is there"
        return sound if found.unasked is None else f"{sound}\nnot compared with Kafka: {found.unasked.with_hint}"
    files = [(each, _ACTIONS[each.mending]) for each in found.report.damages]
    lines = [f"{each.table}: {each.file} {each.cause}: {action}" for each, action in files]
    if found.unasked is not None:
        lines += [f"{each} ({each.records:,}): lost; Kafka was not asked for them" for each in found.report.lost or ()]
        return "\n".join([*lines, *found.report.other_faults(), f"not compared with Kafka: {found.unasked.with_hint}"])
    if found.available is None or found.gone is None:
        lines.append("lost records are known after the log is repaired")
        return "\n".join(lines)
    again = "exported again" if executed else "Kafka still has them"
    gone = "lost; recorded as a gap" if executed else "lost: Kafka does not have them any more"
    lines += [f"{each} ({each.records:,}): {again}" for each in found.available]
    lines += [f"{each} ({each.records:,}): {gone}" for each in found.gone]
    return "\n".join(lines + found.report.other_faults())
