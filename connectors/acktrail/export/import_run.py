"""Imports copied records into the tables, exactly once, with the files they came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.config import TablesConfig
from acktrail.connect.contract import SourceTask, SourceTaskContext
from acktrail.connect.runtime.task_execution import Progress, TaskExecution, TaskSummary
from acktrail.connect.source_batches import LogSpan, Origin, SourceBatch, state_source_partition
from acktrail.errors import ConfigurationError, ForeignCluster, InputError
from acktrail.export.import_order import FILE, FileSummary, ascending_groups, load_records, summarize_file
from acktrail.format.columns.decoding.decode_records import decode_records, decode_strictly
from acktrail.format.wire.dialects.dialect import Dialect
from acktrail.format.wire.dialects.released import KAFKA_4_2, RELEASED
from acktrail.offline.read.copied_files import choose_dialect, sample_of
from acktrail.offline.read.log_segment import ReadReport, cluster_id_beside, sha256_of, shown_name, topic_id_beside
from acktrail.tables.cluster_check import check_dialect, check_state_topic
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.delta_sink import DeltaSink

_ROWS_AT_ONCE: Final = 65_536


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where records go: a cluster's tables, of one incarnation of its state topic (None: not known).

    `decode` turns ``RAW_RECORDS`` into ``DECODED_RECORDS``. `stored` returns offset, key and value of the
    stored records of a state partition from one offset to another, both inclusive. `reached` are the positions of the
    tables before the import; records that begin after them are refused unless `allow_gaps`.
    """

    cluster_id: str
    topic_id: str | None
    decode: Callable[[pa.Table], pa.Table]
    stored: Callable[[int, int, int], pa.Table]
    reached: Mapping[int, int]
    allow_gaps: bool = False


class FileTask(SourceTask):
    """The records of some files (``load_records``), state partition by state partition in the order of their offsets. A
    batch without rows reports a gap: offsets that are in no file."""

    def __init__(self, records: pa.Table, origins: Sequence[Origin], destination: Destination) -> None:
        self._logs = [
            _FileLog(records.filter(pc.field("partition") == partition), origins, destination, partition)
            for partition in pc.unique(records["partition"]).to_pylist()
        ]
        self._batches: Iterator[SourceBatch] = iter(())
        self._is_finished = False

    def start(self, context: SourceTaskContext) -> None:
        """Begin at the positions; raises as ``_FileLog.start``."""
        for log in self._logs:
            position = context.position(log.source_partition)
            assert position is None or isinstance(position, int)
            log.start(position)
        self._batches = (batch for log in self._logs for batch in log.batches)

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:  # noqa: ARG002  # part of the contract: files do not wait
        """The next records, or the gap before them."""
        batch = next(self._batches, None)
        self._is_finished = batch is None
        return () if batch is None else (batch,)

    def stop(self) -> None:
        """Nothing is open."""

    @property
    def is_finished(self) -> bool:
        return self._is_finished

    @property
    def partitions(self) -> tuple[int, int]:
        return (len(self._logs) if self._is_finished else 0, len(self._logs))

    @property
    def known(self) -> int:
        """How many of the records were in the tables already, with the same bytes."""
        return sum(log.known for log in self._logs)


class _FileLog:
    """The records of one state partition."""

    def __init__(self, records: pa.Table, origins: Sequence[Origin], destination: Destination, partition: int) -> None:
        self._records, self._origins = records, origins
        self._destination, self._partition = destination, partition
        self._nothing = LogSpan(
            topic_id=destination.topic_id,
            partition=partition,
            first_offset=None,
            last_offset=None,
            records=0,
            quarantined=0,
            log_start_offset=None,
            log_end_offset=None,
        )
        self.source_partition = state_source_partition(destination.cluster_id, destination.topic_id, partition)
        self.batches: Iterator[SourceBatch] = iter(())
        self.known = 0

    def start(self, position: int | None) -> None:
        """Begin at `position`; None: at the first record. Raises ForeignCluster (the tables have another record at an
        address), InputError (records before `position` are not in the tables, or some between it and the first are
        missing)."""
        offsets = np.asarray(self._records["offset"])
        self.known = 0 if position is None else int(np.searchsorted(offsets, position))
        if self.known:
            self._check_known(self._records.slice(0, self.known))
        new = self._records.slice(self.known)
        first = int(offsets[self.known]) if new.num_rows else 0
        is_at_the_end = self._destination.reached.get(self._partition) == position
        if position is not None and first > position and is_at_the_end and not self._destination.allow_gaps:
            raise InputError(
                f"offsets {position} to {first - 1} of state partition {self._partition} are in no file, "
                "and the tables end before them",
                hint="import the files that have them first, or say --allow-gaps to record them as lost",
                data={"state_partition": self._partition, "first_offset": position, "last_offset": first - 1},
            )
        self.batches = self._batches(new, position)

    def _check_known(self, records: pa.Table) -> None:
        """Check that each of `records` is in the tables with the same bytes."""
        for start in range(0, records.num_rows, _ROWS_AT_ONCE):
            piece = records.slice(start, _ROWS_AT_ONCE)
            offsets = piece["offset"]
            there = self._destination.stored(self._partition, offsets[0].as_py(), offsets[-1].as_py())
            by_offset = dict(zip(there["offset"].to_pylist(), _pairs(there), strict=True))
            for offset, pair in zip(offsets.to_pylist(), _pairs(piece), strict=True):
                found = by_offset.get(offset)
                if found == pair:
                    continue
                data = {"state_partition": self._partition, "offset": offset}
                if found is None:
                    raise InputError(
                        f"state partition {self._partition}, offset {offset} lies before what the tables have, "
                        "and is not in them",
                        hint="tables grow in the order of the log: import older files first, or into another root",
                        data=data,
                    )
                raise ForeignCluster(
                    f"state partition {self._partition}, offset {offset}: the tables have another record there than "
                    "the file",
                    hint="the file is of another cluster, or of another incarnation of the state topic: "
                    "name another root",
                    data=data,
                )

    def _batches(self, records: pa.Table, position: int | None) -> Iterator[SourceBatch]:
        if not records.num_rows:
            return
        offsets, files = np.asarray(records["offset"]), np.asarray(records[FILE])
        breaks = np.flatnonzero((np.diff(offsets) != 1) | (np.diff(files) != 0)) + 1
        begins = [0, *breaks.tolist()]
        for begin, end in zip(begins, [*begins[1:], len(offsets)], strict=True):
            first = int(offsets[begin])
            origin = self._origins[int(files[begin])]
            if position is not None and first > position:
                gap = replace(self._nothing, gap_first=position, gap_last=first - 1, origin=origin)
                yield SourceBatch(source_partition=self.source_partition, rows={}, position=first, span=gap)
            for start in range(begin, end, _ROWS_AT_ONCE):
                yield self._batch(records.slice(start, min(_ROWS_AT_ONCE, end - start)), origin)
            position = int(offsets[end - 1]) + 1

    def _batch(self, records: pa.Table, origin: Origin) -> SourceBatch:
        rows = self._destination.decode(records.drop_columns([FILE]))
        decoded = pc.sum(pc.equal(rows["decode_status"], "decoded")).as_py() or 0
        first, last = records["offset"][0].as_py(), records["offset"][-1].as_py()
        span = replace(
            self._nothing,
            first_offset=first,
            last_offset=last,
            records=rows.num_rows,
            quarantined=rows.num_rows - decoded,
            origin=origin,
        )
        return SourceBatch(
            source_partition=self.source_partition, rows={"state_records": rows}, position=last + 1, span=span
        )


def _pairs(records: pa.Table) -> list[tuple[bytes | None, bytes | None]]:
    return list(zip(records["key"].to_pylist(), records["value"].to_pylist(), strict=True))
