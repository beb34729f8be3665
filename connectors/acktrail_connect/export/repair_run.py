"""Repairs damaged tables: unreadable files are left out, records that Kafka still has are exported again, the others
are recorded as a gap.

The tables lost offsets 10 to 19 of a log that Kafka has from 15 on: 15 to 19 are exported again, 10 to 14 are a gap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import AcktrailError, ConfigurationError, DamagedTables, ForeignCluster, RetryableError
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.log_reader import StateTopic
from acktrail.model.log_positions import SourcePartition
from acktrail.model.offset_ranges import OffsetRanges
from acktrail.tables.cluster_check import OWN_DIALECT, check_state_topic, create_records_for, ensure_same_cluster
from acktrail.tables.delta.storage_errors import REMADE
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_layout import last_of_each_key
from acktrail.tables.delta.table_place import damaged_table
from acktrail.tables.records.continuity import LostOffsets, end_positions, note_lost, renew_ranges
from acktrail.tables.records.damage_report import (
    DamageReport,
    DoubledLog,
    RepairAction,
    copied_rows,
    find_damage,
    missing_records,
    present_records,
)
from acktrail.tables.records.export_ranges import EMPTY_COMMIT, StoredRecords, TableLogs, copy_ranges, newest_shifts
from acktrail.tables.records.record_files import RECORDS
from acktrail.tables.upkeep.file_rewrite import commit_rewrite, rewrite
from acktrail_connect.contract import SourceTaskContext
from acktrail_connect.sources.state_source import StateTask

_POLL_S: Final = 5.0
_Progress = Callable[[str, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPreview:
    """What is wrong, and which lost records Kafka still has (`available`) or not (`gone`). None: not known before the
    log is repaired, or because of `unasked`: why the cluster could not be asked."""

    report: DamageReport
    available: tuple[LostOffsets, ...] | None
    gone: tuple[LostOffsets, ...] | None
    unasked: AcktrailError | None = None


def preview(
    kafka: Callable[[], KafkaConfig], target: TablesConfig, progress: _Progress = lambda _table, _rows: None
) -> RepairPreview:
    """Look at the tables, then at the cluster, as far as it can be asked; change nothing. Raises ForeignCluster (the
    tables are another cluster's, or another incarnation's of the state topic), ConfigurationError, RetryableError (the
    tables cannot be read)."""
    tables = Tables(target)
    report = find_damage(tables, progress)
    try:
        with ShareGroupAdmin(kafka()) as admin:
            return _preview(admin, tables, report)
    except ForeignCluster:
        raise
    except (ConfigurationError, RetryableError) as error:
        return RepairPreview(report=report, available=None, gone=None, unasked=error)


def repair(
    kafka: KafkaConfig, target: TablesConfig, *, run_id: str, progress: _Progress = lambda _table, _rows: None
) -> RepairPreview:
    """Repair what can be repaired; gives what was wrong, exported again and lost. A second call changes nothing.

    Raises:
        DamagedTables: a file has to be restored from elsewhere first; nothing was changed.
        ForeignCluster: the tables are another cluster's, or the state topic's log is another one.
        ConcurrentCommit, OutcomeUnknown, ConfigurationError, RetryableError: run it again.
    """
    tables = Tables(target)
    tables.ensure_there()
    with ShareGroupAdmin(kafka) as admin:
        first = _preview(admin, tables, find_damage(tables, progress))
        _refuse(tables, first.report)
        _repair_files(tables, first.report)
        for name in first.report.copies:
            _remove_copies(tables, name)
        if first.report.doubled:
            _remove_first_copies(tables, first.report.doubled)
            first = replace(first, available=None)
        now = first if first.available is not None else _preview(admin, tables, find_damage(tables, progress))
        if now.available is None or now.gone is None:
            _refuse(tables, now.report)
            raise DamagedTables(
                f"tables at {tables.root}: the log of state_records cannot be repaired",
                hint="restore the table from the storage's own versions or a backup",
                table=RECORDS,
            )
        _export_again(kafka, admin, tables, now.available, run_id)
    if now.report.is_whole and not now.available and not now.gone:
        if now.report.unranged:
            copy_ranges(tables)  # a killed export left them out
        return RepairPreview(report=first.report, available=(), gone=())
    copy_ranges(tables)
    gone = tuple(missing_records(tables, present_records(tables)))  # more where Kafka pruned meanwhile
    end_positions(tables)
    note_lost(tables, gone)
    return RepairPreview(report=first.report, available=_without(now.available, gone), gone=gone)


def _preview(admin: ShareGroupAdmin, tables: Tables, report: DamageReport) -> RepairPreview:
    if report.lost is None:
        return RepairPreview(report=report, available=None, gone=None)
    ensure_same_cluster(tables, admin.cluster_id)
    lost = tuple(sorted({*report.lost}))
    topic = StateTopic(admin)
    if not lost or not topic.is_present:
        return RepairPreview(report=report, available=(), gone=lost)
    records = tables.snapshot(RECORDS)
    if records is not None:
        check_state_topic(tables, records, topic.topic_id)
    logs, shifts = topic.log_offsets(), newest_shifts(tables)
    gone: list[LostOffsets] = []
    available: list[LostOffsets] = []
    for each in lost:
        log, shift = logs.get(each.state_partition), each.offset_shift
        if log is None or shift != shifts.get(each.state_partition, 0):  # Kafka replaced its log
            gone.append(each)
            continue
        start, end = (log.log_start_offset or 0) + shift, (log.high_watermark or 0) + shift
        gone += [*_clipped(each, 0, start - 1), *_clipped(each, max(start, end), each.last_offset)]
        available += _clipped(each, start, end - 1)
    return RepairPreview(report=report, available=tuple(available), gone=tuple(gone))


def _clipped(lost: LostOffsets, first: int, last: int) -> Iterator[LostOffsets]:
    """The part of `lost` that lies from `first` to `last`."""
    begin, end = max(lost.first_offset, first), min(lost.last_offset, last)
    if begin <= end:
        yield replace(lost, first_offset=begin, last_offset=end)


def _without(lost: Iterable[LostOffsets], gone: Iterable[LostOffsets]) -> tuple[LostOffsets, ...]:
    """`lost` without the offsets that are `gone`."""
    ranges: defaultdict[int, OffsetRanges] = defaultdict(OffsetRanges)
    for each in gone:
        ranges[each.state_partition].add(each.first_offset, each.last_offset)
    return tuple(
        replace(each, first_offset=first, last_offset=last)
        for each in lost
        for first, last in ranges[each.state_partition].outside(each.first_offset, each.last_offset)
    )


def _refuse(tables: Tables, report: DamageReport) -> None:
    """Raise for the first file that cannot be repaired here."""
    for each in report.damages:
        if each.mending is RepairAction.NONE:
            raise damaged_table(tables.root, each.table, each)


def _repair_files(tables: Tables, report: DamageReport) -> None:
    for name in sorted({each.table for each in report.damages}):
        place, own = tables.place(name), [each for each in report.damages if each.table == name]
        with place.translated():
            if own[0].mending is RepairAction.REMADE:
                place.discard()
                continue
            for each in own:
                if each.is_of_log:
                    place.stub_commit(each.file, EMPTY_COMMIT)
            data = [each.file for each in own if not each.is_of_log]
            if data:
                place.leave_out(data)


def _remove_copies(tables: Tables, name: str) -> None:
    """A derived table without the rows that are there again; one that can be built again is removed."""
    if name in REMADE:
        _discard(tables, name)
        return
    with tables.rewritable(name):
        for files, _copies in list(copied_rows(tables, name)):
            snapshot = tables.snapshot(name)
            assert snapshot is not None
            done = rewrite(snapshot, files, partial(last_of_each_key, name))
            commit_rewrite(tables, name, done, what="repair", changes_rows=True)


def _discard(tables: Tables, name: str) -> None:
    place = tables.place(name)
    with place.translated():
        place.discard()


def _remove_first_copies(tables: Tables, doubled: Iterable[DoubledLog]) -> None:
    """Remove the older of two copies of a log. Before that, remove what was derived from both copies: the next
    reconciliation builds it again."""
    for name in sorted(REMADE):
        _discard(tables, name)
    for each in doubled:
        _remove_first_copy(tables, each)


def _remove_first_copy(tables: Tables, doubled: DoubledLog) -> None:
    """One break is left, over both and all between; the second copy has the offsets that exports continue."""
    (first, second), own = doubled.breaks, pc.field("state_partition") == doubled.state_partition
    gone = own & (pc.field("offset") > first) & (pc.field("offset") < second)
    records = tables.snapshot(RECORDS)
    assert records is not None
    bounds = records.statistics(["min.offset", "max.offset"])
    with tables.rewritable(RECORDS):
        for file in records.files():
            least, most = bounds[file.path].values()
            if least is None or (least < second and most > first):
                done = rewrite(records, [file], lambda rows: rows.filter(~gone))
                if done.rows < done.rows_before:
                    commit_rewrite(tables, RECORDS, done, what="doubled log", changes_rows=True)

    def joined(rows: pa.Table) -> pa.Table:
        begin = pc.coalesce(pc.field("gap_first"), pc.field("first_offset"))
        met = own & (begin >= first) & (begin <= second)
        last = next(row for row in rows.filter(met).to_pylist() if row["gap_first"] == second)
        return pa.concat_tables([rows.filter(~met), pa.Table.from_pylist([{**last, "gap_first": first}], rows.schema)])

    renew_ranges(tables, joined)


def _export_again(
    kafka: KafkaConfig, admin: ShareGroupAdmin, tables: Tables, available: Sequence[LostOffsets], run_id: str
) -> None:
    if not available:
        return
    create_records_for(tables, admin.cluster_id, StateTopic(admin).topic_id, OWN_DIALECT)
    for number, own in groupby(available, key=lambda each: each.state_partition):
        task = StateTask(kafka, bounded=True, partitions=(number,))
        try:
            for rows in _read(task, tables, list(own), run_id):
                tables.append(RECORDS, rows)
        finally:
            task.stop()


class _LostLog(TableLogs):
    """The log whose records were lost: the commit that noted its shift may be among them."""

    def __init__(self, tables: Tables, offset_shift: int) -> None:
        super().__init__(tables, tables.snapshot(RECORDS))
        self._offset_shift = offset_shift

    def stored_log(self, source_partition: SourcePartition, partition: int) -> StoredRecords:
        stored = super().stored_log(source_partition, partition)
        stored.offset_shift, stored.last_fingerprint = self._offset_shift, None
        return stored


def _read(task: StateTask, tables: Tables, wanted: Sequence[LostOffsets], run_id: str) -> Iterator[pa.Table]:
    """The `wanted` records of one state partition, out of the log whose records the tables have."""
    first, last, shift = wanted[0].first_offset, wanted[-1].last_offset, wanted[0].offset_shift
    offset, stored = pc.field("offset"), _LostLog(tables, shift)
    task.start(SourceTaskContext(run_id=run_id, position=lambda _: first, stored=stored))
    reached = -1
    while reached < last and not task.is_finished:
        for batch in task.poll(_POLL_S):
            assert isinstance(batch.position, int)
            assert batch.span is not None
            reached = batch.position - 1
            if batch.span.offset_shift != shift:
                number = wanted[0].state_partition
                raise ForeignCluster(
                    f"state partition {number}: the record before offset {first} differs from that in the tables",
                    hint="the log was truncated and then grew, so the lost records cannot be exported again",
                    data={"state_partition": number, "offset": first},
                )
            rows = batch.rows[RECORDS]
            parts = [rows.filter((offset >= each.first_offset) & (offset <= each.last_offset)) for each in wanted]
            found = pa.concat_tables(parts)
            if found.num_rows:
                yield found
