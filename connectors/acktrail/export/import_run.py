"""Imports copied records into the tables, exactly once, with the files they came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, ForeignCluster, InputError
from acktrail.offline.read.read_report import ReadReport

if TYPE_CHECKING:
    import pyarrow as pa

    from acktrail.connect.contract import Origin
    from acktrail.connect.worker import Progress
    from acktrail.offline.import_source import Destination
    from acktrail.offline.load_files import FileSummary
    from acktrail.tables.delta.store import Tables
    from acktrail.tables.exported.delta_sink import DeltaSink
    from acktrail.wire.dialects.released import Dialect


_SHIPPED: Final = "4.0, 4.1 or 4.2"


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
    """What was imported. records_in_files counts an address once for every file that has it;
    records_new = records_decoded + records_quarantined. `gaps` are (state partition, first, last) that no file has.
    """

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
    return _Import(plan, config, reading, progress).run()


class _Import:
    """One call of ``import_files``."""

    def __init__(
        self, plan: ImportPlan, config: TablesConfig, reading: ReadReport, progress: Callable[[Progress], None]
    ) -> None:
        from acktrail.connect.worker import WorkerSummary
        from acktrail.tables.delta.store import Tables

        self._plan, self._reading, self._progress = plan, reading, progress
        self._tables: Tables = Tables(config)
        self._done = WorkerSummary()
        self._known = 0

    def run(self) -> ImportSummary:
        from acktrail.offline.load_files import ascending_groups, summarize_file
        from acktrail.tables.exported.delta_sink import DeltaSink

        if not self._plan.cluster_id.strip():
            raise InputError("no cluster is named", hint="--cluster ID: the id that the cluster gives itself")
        _check_clusters(self._plan)
        topic_id = _topic_id(self._plan)
        summaries = [summarize_file(file, self._reading) for file in self._plan.files]
        dialect = self._dialect()
        sink = DeltaSink(self._tables, cluster_id=self._plan.cluster_id, run_id=self._plan.run_id, dialect=dialect.name)
        sink.start()
        self._check_tables(topic_id, dialect)
        destination = self._destination(sink, summaries, topic_id, dialect)
        for group in ascending_groups(summaries):
            self._move(group, sink, destination, dialect)
        return self._summary(summaries, topic_id, dialect)

    def _dialect(self) -> Dialect[Any]:
        from acktrail.offline.read.copied_files import choose_dialect, sample_of

        dialect = choose_dialect(self._plan.dialect, lambda: sample_of(self._plan.files, self._reading))
        if not dialect.shipped:
            raise InputError(
                f"dialect {dialect.name} was never shipped: the tables have no columns for it",
                hint=f"the tables take {_SHIPPED}; acktrail decode and acktrail replay read the drafts",
            )
        return dialect

    def _check_tables(self, topic_id: str | None, dialect: Dialect[Any]) -> None:
        """Check that the tables are of that topic and dialect before anything is written."""
        from acktrail.tables.cluster_check import check_dialect, check_state_topic

        snapshot = self._tables.snapshot("state_records")
        if snapshot is not None:
            check_state_topic(self._tables, snapshot, topic_id)
            check_dialect(self._tables, snapshot, dialect.name)

    def _destination(
        self, sink: DeltaSink, summaries: Sequence[FileSummary], topic_id: str | None, dialect: Dialect[Any]
    ) -> Destination:
        from acktrail.columnar.decoding.decode_records import decode_records, decode_strictly
        from acktrail.connect.contract import state_task_id
        from acktrail.offline.import_source import Destination
        from acktrail.wire.dialects.released import KAFKA_4_2

        partitions = {partition for file in summaries for partition in file.offset_ranges}
        tasks = {p: state_task_id(self._plan.cluster_id, topic_id, p) for p in partitions}
        for partition, task in tasks.items():
            if sink.stored_log(task, partition).offset_shift:
                raise ConfigurationError(
                    f"the log of state partition {partition} was replaced while it was exported: offsets in the tables "
                    "are shifted",
                    hint="import the files into tables of their own",
                    data={"state_partition": partition},
                )
        reached = {p: position for p, task in tasks.items() if (position := sink.position(task)) is not None}
        return Destination(
            cluster_id=self._plan.cluster_id,
            topic_id=topic_id,
            decode=decode_records if dialect is KAFKA_4_2 else lambda raw: decode_strictly(raw, dialect.decode),
            stored=self._stored,
            reached=reached,
            allow_gaps=self._plan.allow_gaps,
        )

    def _stored(self, partition: int, first: int, last: int) -> pa.Table:
        import pyarrow.compute as pc

        address, offset = pc.field("state_partition") == partition, pc.field("offset")
        where = address & (offset >= first) & (offset <= last)
        return self._tables.read("state_records", columns=["offset", "key", "value"], where=where)

    def _move(self, group: Sequence[FileSummary], sink: DeltaSink, to: Destination, dialect: Dialect[Any]) -> None:
        from acktrail.connect.worker import Worker
        from acktrail.offline.import_source import FileSource
        from acktrail.offline.load_files import load_records

        quiet = replace(self._reading, on_damage=lambda _: None, nameless=[])
        files = [found.file for found in group]
        source = FileSource(load_records(files, quiet), [_origin(file, dialect) for file in files], to)
        self._done = self._done.followed_by(Worker(source, sink, progress=self._progress).run())
        self._known += source.known

    def _summary(self, summaries: Sequence[FileSummary], topic_id: str | None, dialect: Dialect[Any]) -> ImportSummary:
        done = self._done
        return ImportSummary(
            run_id=self._plan.run_id,
            cluster_id=self._plan.cluster_id,
            dialect=dialect.name,
            state_topic_id=topic_id,
            files=len(summaries),
            records_in_files=sum(file.records for file in summaries),
            records_known=self._known,
            records_new=done.records_read,
            records_decoded=done.records_decoded,
            records_quarantined=done.records_quarantined,
            commits=done.commits,
            gaps=tuple(
                (span.partition, span.gap_first, span.gap_last)
                for span in done.gaps
                if span.gap_first is not None and span.gap_last is not None
            ),
            rows=dict(done.rows),
        )


def _origin(file: Path, dialect: Dialect[Any]) -> Origin:
    from acktrail.connect.contract import Origin
    from acktrail.offline.read.provenance import sha256_of, shown_name

    return Origin(file=shown_name(file), sha256=sha256_of(file), dialect=dialect.name)


def _check_clusters(plan: ImportPlan) -> None:
    from acktrail.offline.read.provenance import cluster_id_beside

    for file in plan.files:
        found = cluster_id_beside(file)
        if found not in (None, plan.cluster_id):
            raise ForeignCluster(
                f"{file} is of cluster {found}, as meta.properties above it says, not of cluster {plan.cluster_id}",
                hint="name that cluster, and tables of its own",
                data={"file": str(file), "found": found, "named": plan.cluster_id},
            )


def _topic_id(plan: ImportPlan) -> str | None:
    """The state topic's id: as named, or of the files beside the segments, or None; they must not contradict."""
    from acktrail.offline.read.provenance import topic_id_beside

    named = plan.topic_id
    for file in plan.files:
        found = topic_id_beside(file)
        if None not in (found, named) and found != named:
            raise ForeignCluster(
                f"{file} is of the topic with id {found}, as partition.metadata beside it says, not of {named}",
                hint="import the files of each incarnation of the state topic into tables of its own",
                data={"file": str(file), "found": found, "named": named},
            )
        named = named or found
    return named
