"""``acktrail import``: copied records into the tables."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from acktrail.cli.commands.copied_logs import DialectName, Files, StatePartition, report_damage, report_left_out
from acktrail.cli.common_options import AsJson, TablesOptions, TablesRoot
from acktrail.config import TablesConfig
from acktrail.plain_tables import printable

if TYPE_CHECKING:
    from acktrail.export.import_run import ImportSummary


def import_files(
    files: Files,
    cluster: Annotated[str, typer.Option("--cluster", help="Id of the cluster that the records are from.")],
    tables: TablesRoot = None,
    tables_options: TablesOptions = None,
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
    run_id: Annotated[str | None, typer.Option("--run-id", help="Name of this run in the tables.")] = None,
    as_json: AsJson = False,
) -> None:
    """Import copied records of __share_group_state into the tables, exactly once.

    Tables grow in the order of the log, as with an export: records that they have already are compared and skipped, so
    a file may be imported again. Every commit names the files, their SHA-256 and the dialect in export_ranges.

    Example: acktrail import __share_group_state-*/*.log --tables /data/forensics --cluster 4L6g3nShT-eMCtK--X86sw
    """
    from acktrail.cli.arrow_without_pandas import forgo_pandas

    forgo_pandas()
    from acktrail.export import import_run
    from acktrail.offline.read.read_report import ReadReport
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
    summary = import_run.import_files(plan, TablesConfig.from_environment(tables, tables_options), reading)
    report_left_out(reading)
    typer.echo(json.dumps(asdict(summary)) if as_json else _text(summary))


def _checked(topic_id: str | None) -> str | None:
    from acktrail.errors import InputError
    from acktrail.model.share_partition import TopicId, topic_id_bytes

    if topic_id is not None:
        try:
            topic_id_bytes(TopicId(topic_id))
        except ValueError as error:
            hint = "a topic id has 22 characters: letters, digits, - and _"
            raise InputError(f"--topic-id {topic_id!r} is no topic id", hint=hint) from error
    return topic_id


def _text(summary: ImportSummary) -> str:
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
