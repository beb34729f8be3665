"""Imports copied records into the tables, exactly once, with the files they came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.atomic_files import sha256_of
from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError, ConfigurationError, ForeignCluster, InputError
from acktrail.format.columns.decoding.decode_records import decode_records, decode_strictly
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
from acktrail.model.log_positions import LogSpan, Origin, SourcePartition, state_source_partition
from acktrail.tables.cluster_check import check_dialect, check_state_topic
from acktrail.tables.delta.store import Tables
from acktrail_connect.contract import SourceTask, SourceTaskContext
from acktrail_connect.sinks.delta_sink import DeltaSink
from acktrail_connect.source_batches import SourceBatch
from acktrail_connect.task_execution import TaskExecution, TaskSummary
from acktrail_copied_logs.copied_files import choose_dialect, conflicting_records, raw_batches
from acktrail_copied_logs.dialects import KAFKA_4_2, RELEASED, Dialect
from acktrail_copied_logs.import_observation import import_observation
from acktrail_copied_logs.log_segment import ReadReport, cluster_id_beside, shown_name, topic_id_beside

_ROWS_AT_ONCE: Final = 65_536
FILE: Final = "file"
"""The column of loaded records that numbers the file a record is from."""


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


def import_files(plan: ImportPlan, config: TablesConfig, reading: ReadReport) -> ImportSummary:
    """Copy the records of files into ``state_records``, and the range of each commit into ``export_ranges``.

    Tables grow in the order of the log, as with an export, and share its positions: records that the tables have are
    compared and skipped, so that a file may be imported again, and an export continues behind an import. Tables of
    files only also get an observation (``import_observation``), so that they can be reconciled and validated.

    Raises:
        InputError: as ``read_file``; records lie before those in the tables, or behind a hole.
        ForeignCluster: files or tables are of another cluster or incarnation of the state topic.
        ConfigurationError: the dialect is ambiguous or not that of the tables; the tables cannot be written.
    """
    if not plan.cluster_id.strip():
        raise InputError("no cluster is named", hint="give --cluster ID, the cluster id that the brokers report")
    topic_id = _topic_id(plan)
    summaries = [summarize_file(file, reading) for file in plan.files]
    dialect = _dialect(plan, reading)
    tables = Tables(config)
    sink = DeltaSink(tables, cluster_id=plan.cluster_id, run_id=plan.run_id, dialect=dialect.name)
    sink.start()
    snapshot = tables.snapshot("state_records")
    if snapshot is not None:
        check_state_topic(tables, snapshot, topic_id, of_files=True)
        check_dialect(tables, snapshot, dialect.name)
    run = _Import(plan=plan, tables=tables, topic_id=topic_id, dialect=dialect)
    run.note_positions(sink, {partition for file in summaries for partition in file.offset_ranges})
    done, known = TaskSummary(), 0
    for group in ascending_groups(summaries):
        files = [found.file for found in group]
        origins = [Origin(file=shown_name(each), sha256=sha256_of(each), dialect=dialect.name) for each in files]
        source = FileTask(load_records(files, reading.quiet()), origins, run)
        done = done.followed_by(TaskExecution(source, sink, run_id=plan.run_id).run())
        known += source.known
        del source  # the next records are loaded when these are gone
    for sample in import_observation(tables, cluster_id=plan.cluster_id, run_id=plan.run_id, topic_id=topic_id):
        sink.put(sample)
    done = done.followed_by(TaskSummary(rows=sink.flush().rows))
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
        gaps=tuple((span.partition, *span.gap) for span in done.gaps if span.gap),
        rows=dict(done.rows),
    )


def _dialect(plan: ImportPlan, reading: ReadReport) -> Dialect[Any]:
    dialect = choose_dialect(plan.dialect, plan.files, reading)
    if dialect.name not in RELEASED:
        raise InputError(
            f"dialect {dialect.name} was never shipped: the tables have no columns for it",
            hint=f"the tables take {', '.join(RELEASED)}; acktrail record decode and replay read others",
        )
    return dialect


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
                hint="give that cluster id, and use other tables for it",
                data={"file": str(file), "found": cluster_id, "named": plan.cluster_id},
            )
        if None not in (found, named) and found != named:
            raise ForeignCluster(
                f"{file} is of the topic with id {found}, as partition.metadata beside it says, not of {named}",
                hint="import the files of each incarnation of the state topic into separate tables",
                data={"file": str(file), "found": found, "named": named},
            )
        named = named or found
    return named


@dataclass(frozen=True, slots=True, kw_only=True)
class _Import:
    """What all files of one import have in common; `reached`: where the tables ended before it, by state partition."""

    plan: ImportPlan
    tables: Tables
    topic_id: str | None
    dialect: Dialect[Any]
    reached: dict[int, int] = field(default_factory=dict)

    def source_partition(self, partition: int) -> SourcePartition:
        return state_source_partition(self.plan.cluster_id, self.topic_id, partition)

    def note_positions(self, sink: DeltaSink, partitions: Iterable[int]) -> None:
        """Raises ConfigurationError: offsets in the tables are not those of the files."""
        for partition in partitions:
            own = self.source_partition(partition)
            if sink.stored.stored_log(own, partition).offset_shift:
                raise ConfigurationError(
                    f"the log of state partition {partition} was replaced while it was exported: offsets in the tables "
                    "are shifted",
                    hint="import these files into separate tables",
                    data={"state_partition": partition},
                )
            position = sink.position(own)
            if position is not None:
                self.reached[partition] = position

    def decode(self, raw: pa.Table) -> pa.Table:
        return decode_records(raw) if self.dialect is KAFKA_4_2 else decode_strictly(raw, self.dialect.decode)

    def check_known(self, partition: int, records: pa.Table) -> None:
        """Pass where each of `records` of a state partition is in the tables with the same bytes."""
        for start in range(0, records.num_rows, _ROWS_AT_ONCE):
            piece = records.slice(start, _ROWS_AT_ONCE)
            ends, offset = pc.min_max(piece["offset"]), pc.field("offset")
            where = (pc.field("state_partition") == partition) & (offset >= ends["min"]) & (offset <= ends["max"])
            there = _pairs(self.tables.read("state_records", columns=["offset", "key", "value"], where=where))
            for at, pair in _pairs(piece).items():
                if there.get(at) != pair:
                    raise _unequal(partition, at, is_stored=at in there)


def _pairs(records: pa.Table) -> dict[int, tuple[bytes | None, bytes | None]]:
    columns = (records[name].to_pylist() for name in ("offset", "key", "value"))
    return {offset: (key, value) for offset, key, value in zip(*columns, strict=True)}


def _unequal(partition: int, offset: int, *, is_stored: bool) -> AcktrailError:
    data = {"state_partition": partition, "offset": offset}
    where = f"state partition {partition}, offset {offset}"
    if not is_stored:
        return InputError(
            f"{where} lies before what the tables have, and is not in them",
            hint="records must be imported in the order of the log: import older files first, or into another root",
            data=data,
        )
    return ForeignCluster(
        f"{where}: the record in the tables differs from the record in the file",
        hint="the file is of another cluster, or of another incarnation of the state topic: name another root",
        data=data,
    )


class FileTask(SourceTask):
    """The records of some files (``load_records``), state partition by state partition in the order of their offsets. A
    batch without rows reports a gap: offsets that are in no file. `known`: how many records were in the tables already,
    with the same bytes."""

    def __init__(self, records: pa.Table, origins: Sequence[Origin], run: _Import) -> None:
        self._records, self._origins, self._import = records, origins, run
        self._partitions: list[int] = pc.unique(records["partition"]).to_pylist()
        self._batches: Iterator[SourceBatch] = iter(())
        self._is_finished = False
        self.known = 0

    def start(self, context: SourceTaskContext) -> None:
        """Begin at the positions. Raises ForeignCluster (the tables have another record at an address), InputError
        (records before a position are not in the tables, or some between it and the first are missing)."""
        logs = []
        for partition in self._partitions:
            position = context.position(self._import.source_partition(partition))
            assert position is None or isinstance(position, int)
            logs.append((partition, self._new_records(partition, position), position))
        self._batches = (batch for log in logs for batch in self._batches_of(*log))

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
        return (len(self._partitions) if self._is_finished else 0, len(self._partitions))

    def _new_records(self, partition: int, position: int | None) -> pa.Table:
        """The records from `position` on; None: all."""
        begin, end = np.searchsorted(np.asarray(self._records["partition"]), (partition, partition + 1))
        records, run = self._records.slice(begin, end - begin), self._import
        offsets = np.asarray(records["offset"])
        known = 0 if position is None else int(np.searchsorted(offsets, position))
        run.check_known(partition, records.slice(0, known))
        self.known += known
        new = records.slice(known)
        first = int(offsets[known]) if new.num_rows else 0
        is_at_the_end = run.reached.get(partition) == position
        if position is not None and first > position and is_at_the_end and not run.plan.allow_gaps:
            raise InputError(
                f"offsets {position} to {first - 1} of state partition {partition} are in no file, "
                "and the tables end before them",
                hint="import the files that have them first, or give --allow-gaps to record them as lost",
                data={"state_partition": partition, "first_offset": position, "last_offset": first - 1},
            )
        return new

    def _batches_of(self, partition: int, records: pa.Table, position: int | None) -> Iterator[SourceBatch]:
        if not records.num_rows:
            return
        offsets, files = np.asarray(records["offset"]), np.asarray(records[FILE])
        breaks = np.flatnonzero((np.diff(offsets) != 1) | (np.diff(files) != 0)) + 1
        begins = [0, *breaks.tolist()]
        for begin, end in zip(begins, [*begins[1:], len(offsets)], strict=True):
            first = int(offsets[begin])
            none = LogSpan(topic_id=self._import.topic_id, partition=partition, origin=self._origins[int(files[begin])])
            if position is not None and first > position:
                gap = replace(none, gap_first=position, gap_last=first - 1)
                yield self._batch({}, first, gap)
            for start in range(begin, end, _ROWS_AT_ONCE):
                yield self._decoded(records.slice(start, min(_ROWS_AT_ONCE, end - start)), none)
            position = int(offsets[end - 1]) + 1

    def _decoded(self, records: pa.Table, none: LogSpan) -> SourceBatch:
        rows = self._import.decode(records.drop_columns([FILE]))
        decoded = pc.sum(pc.equal(rows["decode_status"], "decoded")).as_py() or 0
        first, last = records["offset"][0].as_py(), records["offset"][-1].as_py()
        counts = {"records": rows.num_rows, "quarantined": rows.num_rows - decoded}
        span = replace(none, first_offset=first, last_offset=last, **counts)
        return self._batch({"state_records": rows}, last + 1, span)

    def _batch(self, rows: Mapping[str, pa.Table], position: int, span: LogSpan) -> SourceBatch:
        own = self._import.source_partition(span.partition)
        return SourceBatch(source_partition=own, rows=rows, position=position, span=span)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSummary:
    """The number of records in a file, and the lowest and highest offset of each state partition in it."""

    file: Path
    records: int
    offset_ranges: dict[int, tuple[int, int]]


def summarize_file(file: Path, reading: ReadReport) -> FileSummary:
    """Read `file` once, with one batch of rows in memory. Raises InputError (as ``read_file``; and a record without an
    address)."""
    records, offset_ranges = 0, dict[int, tuple[int, int]]()
    for batch in raw_batches(file, reading):
        records += batch.num_rows
        offsets = pa.Table.from_batches([batch]).group_by("partition", use_threads=False)
        ends = offsets.aggregate([("offset", "min"), ("offset", "max")])
        columns = (ends[name].to_pylist() for name in ("partition", "offset_min", "offset_max"))
        for partition, lowest, highest in zip(*columns, strict=True):
            if partition < 0 or lowest < 0:
                raise InputError(f"{file}: records without state partition or offset", hint="give --state-partition")
            before = offset_ranges.get(partition, (lowest, highest))
            offset_ranges[partition] = (min(lowest, before[0]), max(highest, before[1]))
    return FileSummary(file=file, records=records, offset_ranges=offset_ranges)


def ascending_groups(surveys: Sequence[FileSummary]) -> list[list[FileSummary]]:
    """The files in an order in which every state partition's offsets ascend from file to file, one file a group; all
    files in one group where there is no such order.

    File a has offsets 0 to 99 of state partition 3, b has 100 to 180 of 3 and 0 to 20 of 7: two groups, a and b. With a
    file c that has 15 to 40 of 7, which b has in part, all three are one group."""
    ordered = sorted(surveys, key=lambda each: sorted((low, part) for part, (low, _) in each.offset_ranges.items()))
    reached: dict[int, int] = {}
    for summary in ordered:
        for partition, (lowest, highest) in summary.offset_ranges.items():
            if lowest < reached.get(partition, 0):
                return [list(ordered)]
            reached[partition] = max(highest, reached.get(partition, 0))
    return [[summary] for summary in ordered]


def load_records(files: Sequence[Path], reading: ReadReport) -> pa.Table:
    """The records of `files` by state partition and offset, each address once: columns of ``RAW_RECORDS`` and `FILE`.
    Raises InputError (as ``read_file``; and two different records claim one address)."""
    schema = RAW_RECORDS.append(pa.field(FILE, pa.int32()))
    batches = [
        pa.RecordBatch.from_arrays([*batch.columns, pa.repeat(np.int32(number), batch.num_rows)], schema=schema)
        for number, file in enumerate(files)
        for batch in raw_batches(file, reading)
    ]
    table = pa.Table.from_batches(batches, schema)
    order = pc.sort_indices(table, [("partition", "ascending"), ("offset", "ascending"), (FILE, "ascending")])
    if not np.array_equal(order, np.arange(len(order))):
        table = table.take(order)
    return _distinct(table)


def _distinct(table: pa.Table) -> pa.Table:
    """`table`, which is in order, without rows that repeat the row before."""
    partition, offset = (np.asarray(table[name]) for name in ("partition", "offset"))
    again = np.flatnonzero((partition[1:] == partition[:-1]) & (offset[1:] == offset[:-1])) + 1
    if not len(again):
        return table
    content = table.select(["partition", "offset", "key", "value"])
    before, repeated = (content.take(pa.array(rows)).to_pylist() for rows in (again - 1, again))
    for one, other in zip(before, repeated, strict=True):
        if one != other:
            raise conflicting_records(one["partition"], one["offset"])
    kept = np.ones(table.num_rows, np.bool_)
    kept[again] = False
    return table.filter(pa.array(kept))
