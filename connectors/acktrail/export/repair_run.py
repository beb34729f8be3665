"""Damaged tables mended: what cannot be read is left out, what Kafka still has is exported again, the rest is noted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import DamagedTables, ForeignCluster
from acktrail.model.offset_ranges import OffsetRanges
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.continuity import LostOffsets
from acktrail.tables.exported.damage_survey import DamageReport, RepairAction, find_damage

if TYPE_CHECKING:
    import pyarrow as pa

    from acktrail.broker.admin import ShareGroupAdmin
    from acktrail.broker.state.state_source import StateTask

__all__ = ["RepairPreview", "preview", "repair"]

_RECORDS: Final = "state_records"
_PATIENCE_S: Final = 5.0
_Progress = Callable[[str, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPreview:
    """What is wrong, and what becomes of lost records: those that Kafka still has, and those that are lost for good.
    None: not known before the log is mended."""

    report: DamageReport
    available: tuple[LostOffsets, ...] | None
    gone: tuple[LostOffsets, ...] | None


def preview(
    kafka: KafkaConfig, target: TablesConfig, progress: _Progress = lambda _table, _rows: None
) -> RepairPreview:
    """Look at tables and cluster; change nothing.

    Raises:
        ForeignCluster: the tables are another cluster's, or another incarnation's of the state topic.
        ConfigurationError, RetryableError: tables or cluster cannot be asked.
    """
    from acktrail.broker.admin import ShareGroupAdmin

    with ShareGroupAdmin(kafka) as admin:
        return _preview(admin, Tables(target), progress)


def repair(
    kafka: KafkaConfig, target: TablesConfig, *, run_id: str, progress: _Progress = lambda _table, _rows: None
) -> RepairPreview:
    """Mend what can be mended; gives what was wrong and what became of it. Twice is as good as once.

    Raises:
        DamagedTables: a file has to be restored from elsewhere first; nothing was changed.
        ForeignCluster: the tables are another cluster's, or the state topic's log is another one.
        ConcurrentCommit, OutcomeUnknown, ConfigurationError, RetryableError: run it again.
    """
    from acktrail.broker.admin import ShareGroupAdmin

    tables = Tables(target)
    with ShareGroupAdmin(kafka) as admin:
        first = _preview(admin, tables, progress)
        _refuse(tables, first.report)
        _mend_files(tables, first.report)
        found = first if first.available is not None else _preview(admin, tables, progress)
        if found.available is None or found.gone is None:
            _refuse(tables, found.report)
            raise DamagedTables(
                f"tables at {tables.root}: the log of state_records cannot be mended",
                hint="restore the table from the storage's own versions or a backup",
                table=_RECORDS,
            )
        _export_again(kafka, admin, tables, found.available, run_id)
    if found.report.is_whole and not found.available and not found.gone:
        return RepairPreview(report=first.report, available=(), gone=())
    gone = _note(tables, found)
    return RepairPreview(report=first.report, available=_without(found.available, gone), gone=gone)


def _note(tables: Tables, found: RepairPreview) -> tuple[LostOffsets, ...]:
    """Note what is lost for good: more than it looked where Kafka pruned meanwhile."""
    from acktrail.tables.exported.export_ranges import copy_ranges
    from acktrail.tables.exported.presence import missing_records, present_records
    from acktrail.tables.exported.repairs import end_positions, note_lost

    copy_ranges(tables)  # what an export that was killed left
    gone = tuple(missing_records(tables, present_records(tables)))
    end_positions(tables, found.report.at_the_end)
    note_lost(tables, gone)
    return gone


def _without(available: Sequence[LostOffsets], gone: Sequence[LostOffsets]) -> tuple[LostOffsets, ...]:
    """Stretches without the offsets that are gone."""
    left: dict[int, OffsetRanges] = {}
    for each in available:
        left.setdefault(each.state_partition, OffsetRanges()).add(each.first_offset, each.last_offset)
    for each in gone:
        left.get(each.state_partition, OffsetRanges()).remove(each.first_offset, each.last_offset)
    return tuple(
        LostOffsets(state_partition=number, first_offset=first, last_offset=last)
        for number, ranges in sorted(left.items())
        for first, last in ranges
    )


def _refuse(tables: Tables, found: DamageReport) -> None:
    """Raise for the first file that nothing here can mend."""
    for each in found.damages:
        if each.mending is RepairAction.NONE:
            raise tables.damaged(each.damage, each.table)


def _mend_files(tables: Tables, found: DamageReport) -> None:
    from acktrail.tables.exported.repairs import EMPTY_COMMIT

    for name in sorted({each.table for each in found.damages}):
        place, own = tables.place(name), [each for each in found.damages if each.table == name]
        with place.translated():
            if own[0].mending is RepairAction.REMADE:
                place.discard()
                continue
            for each in own:
                if each.damage.is_of_log:
                    place.stub_commit(each.damage.file, EMPTY_COMMIT)
            data = [each.damage.file for each in own if not each.damage.is_of_log]
            if data:
                place.leave_out(data)


def _preview(admin: ShareGroupAdmin, tables: Tables, progress: _Progress) -> RepairPreview:
    from acktrail.broker.state.state_topic import StateTopic
    from acktrail.tables.cluster_check import ensure_same_cluster
    from acktrail.tables.exported.repairs import shifts_of

    found = find_damage(tables, progress)
    if found.lost is None:
        return RepairPreview(report=found, available=None, gone=None)
    ensure_same_cluster(tables, admin.cluster_id)
    lost = tuple(sorted({*found.lost}))
    topic = StateTopic(admin)
    if not lost or not topic.is_present:
        return RepairPreview(report=found, available=(), gone=lost)
    _check_topic(tables, topic.topic_id)
    logs = topic.log_offsets()
    shifts = shifts_of(tables)
    available: list[LostOffsets] = []
    gone: list[LostOffsets] = []
    for each in lost:
        log, shift = logs.get(each.state_partition), each.offset_shift
        if log is None or shift != shifts.get(each.state_partition, 0):
            gone.append(each)  # its log is no more
            continue
        for part, has in _parts(each, (log.log_start_offset or 0) + shift, (log.high_watermark or 0) + shift):
            (available if has else gone).append(part)
    return RepairPreview(report=found, available=tuple(available), gone=tuple(gone))


def _parts(lost: LostOffsets, start: int, end: int) -> Iterator[tuple[LostOffsets, bool]]:
    """The parts of a stretch before, in and after a log from `start` to before `end`; whether the log has them."""
    first, last = lost.first_offset, lost.last_offset
    for begin, stop, has in (
        (first, min(last, start - 1), False),
        (max(first, start), min(last, end - 1), True),
        (max(first, end, start), last, False),
    ):
        if begin <= stop:
            yield replace(lost, first_offset=begin, last_offset=stop), has


def _check_topic(tables: Tables, topic_id: str) -> None:
    from acktrail.tables.cluster_check import check_state_topic

    snapshot = tables.snapshot(_RECORDS)
    if snapshot is not None:
        check_state_topic(tables, snapshot, topic_id)


def _export_again(
    kafka: KafkaConfig, admin: ShareGroupAdmin, tables: Tables, stretches: Sequence[LostOffsets], run_id: str
) -> None:
    from acktrail.broker.state.state_source import StateSource
    from acktrail.broker.state.state_topic import StateTopic
    from acktrail.tables.cluster_check import OWN_DIALECT, create_records_for
    from acktrail.tables.exported.repairs import add_records

    if not stretches:
        return
    source = StateSource(kafka, run_id=run_id, bounded=True)
    try:
        tasks = source.tasks()
        create_records_for(tables, admin.cluster_id, StateTopic(admin).topic_id, OWN_DIALECT)
        for number, own in groupby(stretches, key=lambda each: each.state_partition):
            for rows in _read(tasks[number], tables, list(own)):
                add_records(tables, rows)
    finally:
        source.close()


def _read(task: StateTask, tables: Tables, stretches: Sequence[LostOffsets]) -> Iterator[pa.Table]:
    """The records of stretches of one state partition; the one before the first must be the one that tables have."""
    import pyarrow as pa
    import pyarrow.compute as pc

    number, first, last = stretches[0].state_partition, stretches[0].first_offset, stretches[-1].last_offset
    shift = stretches[0].offset_shift
    task.start(max(first - 1 - shift, 0))
    reached = -1
    while reached < last and not task.is_finished:
        batch = task.poll(_PATIENCE_S)
        if batch is None or batch.position is None:
            continue
        reached = batch.position - 1 + shift
        rows = _shifted(batch.rows["state_records"], shift)
        _check_same_log(tables, rows.filter(pc.field("offset") == first - 1), number)
        offsets = rows["offset"]
        wanted = [
            rows.filter(pc.and_(pc.greater_equal(offsets, s.first_offset), pc.less_equal(offsets, s.last_offset)))
            for s in stretches
        ]
        found = pa.concat_tables(wanted)
        if found.num_rows:
            yield found
    task.close()


def _shifted(rows: pa.Table, shift: int) -> pa.Table:
    """Records with their offsets in the tables."""
    import pyarrow.compute as pc

    at = rows.column_names.index("offset")
    return rows.set_column(at, rows.schema.field(at), pc.add(rows["offset"], shift)) if shift else rows


def _check_same_log(tables: Tables, neighbour: pa.Table, number: int) -> None:
    import pyarrow.compute as pc

    if not neighbour.num_rows:
        return
    columns = ["timestamp_ms", "key", "value"]
    (found,) = neighbour.select(columns).to_pylist()
    offset = neighbour["offset"][0].as_py()
    where = (pc.field("state_partition") == number) & (pc.field("offset") == offset)
    kept = tables.read(_RECORDS, columns=columns, where=where).to_pylist()
    if kept and kept[0] != found:
        raise ForeignCluster(
            f"state partition {number}: the record at offset {offset} is another one than the tables have",
            hint="the log was truncated and grew again: what is lost cannot be exported again",
            data={"state_partition": number, "offset": offset},
        )
