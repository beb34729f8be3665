"""Imports copied records into the tables, exactly once, with the files they came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.config import TablesConfig
from acktrail.connect.runtime.task_execution import Progress, TaskExecution, TaskSummary
from acktrail.connect.source_batches import Origin, state_source_partition
from acktrail.errors import ConfigurationError, ForeignCluster, InputError
from acktrail.export.import_source import (
    Destination,
    FileSummary,
    FileTask,
    ascending_groups,
    load_records,
    summarize_file,
)
from acktrail.format.columns.decoding.decode_records import decode_records, decode_strictly
from acktrail.format.wire.dialects.dialect import Dialect
from acktrail.format.wire.dialects.released import KAFKA_4_2, RELEASED
from acktrail.offline.read.copied_files import choose_dialect, sample_of
from acktrail.offline.read.log_segment import ReadReport, cluster_id_beside, sha256_of, shown_name, topic_id_beside
from acktrail.tables.cluster_check import check_dialect, check_state_topic
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.delta_sink import DeltaSink


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """What to import, as the caller describes it. `topic_id` None: from the segments' folders, or not known."""

    files: Sequence[Path]
    cluster_id: str
    dialect: str
    run_id: str
    topic_id: str | None = None
    allow_gaps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSummary:
    """What was imported. records_in_files counts an address once for every file that has it; records_new =
    records_decoded + records_quarantined. `gaps` are (state partition, first, last) that no file has."""

    run_id: str
    cluster_id: str
    dialect: str
    state_topic_id: str | None
    files: int
    records_in_files: int = 0
    records_known: int = 0
    records_new: int = 0
    records_decoded: int = 0
    records_quarantined: int = 0
    commits: int = 0
    gaps: tuple[tuple[int, int, int], ...] = ()
    rows: dict[str, int] = field(default_factory=dict)
    """Rows committed, by table."""


def import_files(
    plan: ImportPlan,
    config: TablesConfig,
    reading: ReadReport,
    *,
    progress: Callable[[Progress], None] = lambda _: None,
) -> ImportSummary:
    """Copy the records of files into ``state_records``, and the range of each commit into ``export_ranges``.

    Tables grow in the order of the log, as with an export, and share its positions: records that the tables have are
    compared and skipped, so that a file may be imported again, and an export continues behind an import.

    Raises:
        InputError, MissingDependency: as ``read_file``; records lie before those in the tables, or behind a hole.
        ForeignCluster: files or tables are of another cluster or incarnation of the state topic.
        ConfigurationError: the dialect is ambiguous or not that of the tables; the tables cannot be written.
    """
    if not plan.cluster_id.strip():
        raise InputError("no cluster is named", hint="--cluster ID: the id that the cluster gives itself")
    topic_id = _topic_id(plan)
    summaries = [summarize_file(file, reading) for file in plan.files]
    dialect = _dialect(plan, reading)
    tables = Tables(config)
    sink = DeltaSink(tables, cluster_id=plan.cluster_id, run_id=plan.run_id, dialect=dialect.name)
    sink.start()
    snapshot = tables.snapshot("state_records")
    if snapshot is not None:
        check_state_topic(tables, snapshot, topic_id)
        check_dialect(tables, snapshot, dialect.name)
    destination = _destination(plan, tables, sink, summaries, topic_id, dialect)
    done, known = TaskSummary(), 0
    for group in ascending_groups(summaries):
        files = [found.file for found in group]
        origins = [Origin(file=shown_name(each), sha256=sha256_of(each), dialect=dialect.name) for each in files]
        source = FileTask(load_records(files, reading.quiet()), origins, destination)
        done = done.followed_by(TaskExecution(source, sink, run_id=plan.run_id, progress=progress).run())
        known += source.known
        del source  # the next records are loaded when these are gone
    return ImportSummary(
        run_id=plan.run_id,
        cluster_id=plan.cluster_id,
        dialect=dialect.name,
        state_topic_id=topic_id,
        files=len(summaries),
        records_in_files=sum(file.records for file in summaries),
        records_known=known,
        records_new=done.records_read,
        records_decoded=done.records_decoded,
        records_quarantined=done.records_quarantined,
        commits=done.commits,
        gaps=tuple(
            (span.partition, first, last)
            for span in done.gaps
            if (first := span.gap_first) is not None and (last := span.gap_last) is not None
        ),
        rows=dict(done.rows),
    )


def _dialect(plan: ImportPlan, reading: ReadReport) -> Dialect[Any]:
    dialect = choose_dialect(plan.dialect, lambda: sample_of(plan.files, reading))
    if dialect.name not in RELEASED:
        raise InputError(
            f"dialect {dialect.name} was never shipped: the tables have no columns for it",
            hint=f"the tables take {', '.join(RELEASED)}; acktrail record decode and replay read others",
        )
    return dialect


def _destination(
    plan: ImportPlan,
    tables: Tables,
    sink: DeltaSink,
    summaries: Sequence[FileSummary],
    topic_id: str | None,
    dialect: Dialect[Any],
) -> Destination:
    partitions = {partition for file in summaries for partition in file.offset_ranges}
    named = {p: state_source_partition(plan.cluster_id, topic_id, p) for p in partitions}
    for partition, source_partition in named.items():
        if sink.stored.stored_log(source_partition, partition).offset_shift:
            raise ConfigurationError(
                f"the log of state partition {partition} was replaced while it was exported: offsets in the tables "
                "are shifted",
                hint="import the files into tables of their own",
                data={"state_partition": partition},
            )

    def stored(partition: int, first: int, last: int) -> pa.Table:
        address, offset = pc.field("state_partition") == partition, pc.field("offset")
        where = address & (offset >= first) & (offset <= last)
        return tables.read("state_records", columns=["offset", "key", "value"], where=where)

    return Destination(
        cluster_id=plan.cluster_id,
        topic_id=topic_id,
        decode=decode_records if dialect is KAFKA_4_2 else lambda raw: decode_strictly(raw, dialect.decode),
        stored=stored,
        reached={p: position for p, each in named.items() if (position := sink.position(each)) is not None},
        allow_gaps=plan.allow_gaps,
    )


def _topic_id(plan: ImportPlan) -> str | None:
    """The state topic's id: as named, or of the files beside the segments, or None; they must not contradict, nor be of
    another cluster."""
    named = plan.topic_id
    for file in plan.files:
        cluster_id, found = cluster_id_beside(file), topic_id_beside(file)
        if cluster_id not in (None, plan.cluster_id):
            raise ForeignCluster(
                f"{file} is of cluster {cluster_id}, as meta.properties above it says, not of cluster "
                f"{plan.cluster_id}",
                hint="name that cluster, and tables of its own",
                data={"file": str(file), "found": cluster_id, "named": plan.cluster_id},
            )
        if None not in (found, named) and found != named:
            raise ForeignCluster(
                f"{file} is of the topic with id {found}, as partition.metadata beside it says, not of {named}",
                hint="import the files of each incarnation of the state topic into tables of its own",
                data={"file": str(file), "found": found, "named": named},
            )
        named = named or found
    return named
