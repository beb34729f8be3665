"""Whether ``state_records`` still has every commit that ``export_ranges`` refers to, and how a repair records what is
lost. Each of its steps can be repeated after a crash.

A lost newest commit (its log file deleted, or empty after a power cut) leaves an older table that can be read: its
positions go back without a trace. But ``export_ranges`` has the version that it copied last, and the id of that commit.
Where both exist, nothing is lost; else its rows are compared with the positions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.connect.source_batches import LOST_FROM_TABLES, SourcePartition, state_source_partition
from acktrail.errors import DamagedTables
from acktrail.format.columns.schemas.table_schemas import EXPORT_RANGES, STATE_RECORDS
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import COMMIT_ID, TableSnapshot
from acktrail.tables.exported.export_ranges import COPIED, COPIED_COMMIT
from acktrail.tables.exported.record_files import RECORDS
from acktrail.tables.exported.stored_log import newest_shifts, shift_mark

RANGES_TABLE: Final = "export_ranges"
_ENDS: Final = ("cluster_id", "state_topic_id", "state_partition")
_SHOWN: Final = 3
EMPTY_COMMIT: Final = json.dumps({"commitInfo": {"operation": "WRITE", "operationParameters": {}}}) + "\n"
"""Replaces a commit that cannot be read: no action."""
_COUNTS: Final = ("records_read", "records_decoded", "records_quarantined")
_NO_RECORDS: Final = {**dict.fromkeys(("first_offset", "last_offset")), **dict.fromkeys(_COUNTS, 0)}
_Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LostOffsets:
    """Offsets of a state partition, both ends inclusive, whose records were exported and are not there any more.
    `offset_shift`: these offsets minus those in Kafka's log, which has been replaced where it is not 0."""

    state_partition: int
    first_offset: int
    last_offset: int
    offset_shift: int = 0

    @property
    def records(self) -> int:
        return self.last_offset - self.first_offset + 1

    def __str__(self) -> str:
        return f"state partition {self.state_partition}, offsets {self.first_offset} to {self.last_offset}"


def ensure_whole(tables: Tables) -> None:
    """Pass when ``state_records`` has the commits that ``export_ranges`` refers to, and all their data files; else
    DamagedTables: which records are lost. Reads two logs, and lists one folder; object storage is not listed."""
    records, ranges = _snapshots(tables)
    if ranges is not None and not _has_the_copied_commit(records, ranges):
        raise _lost(tables, records, ranges, lost_at_the_end(tables))
    for snapshot in (records, ranges):
        if snapshot is not None and snapshot.is_local:
            missing = snapshot.missing()
            if missing:
                raise tables.damaged(missing[0], snapshot.name, more=len(missing) - 1)


def is_whole(tables: Tables) -> bool:
    """Whether ``state_records`` has every commit that ``export_ranges`` refers to. Reads two logs."""
    records, ranges = _snapshots(tables)
    return ranges is None or _has_the_copied_commit(records, ranges)


def lost_at_the_end(tables: Tables) -> tuple[LostOffsets, ...]:
    """What ``export_ranges`` has at or after the positions of ``state_records``. Reads all of the former."""
    records, ranges = _snapshots(tables)
    found = []
    for row in () if ranges is None else _ends(ranges):
        position = None if records is None else records.transaction_version(_range_source_partition(row))
        first = (row["first_offset"] or 0) if position is None else position
        last = max((row[name] for name in ("last_offset", "gap_last") if row[name] is not None), default=-1)
        if last >= first:
            found.append(LostOffsets(state_partition=row["state_partition"], first_offset=first, last_offset=last))
    return tuple(sorted(found))


def _snapshots(tables: Tables) -> tuple[TableSnapshot | None, TableSnapshot | None]:
    """``state_records`` and ``export_ranges``, the former last: a writer commits to it first, and the commits that
    the ranges refer to must be there."""
    ranges = tables.snapshot(RANGES_TABLE)
    return tables.snapshot(RECORDS), ranges


def _range_source_partition(row: Any) -> SourcePartition:
    """The source partition of a row of ``export_ranges``."""
    return state_source_partition(row["cluster_id"], row["state_topic_id"], row["state_partition"])


def _has_the_copied_commit(records: TableSnapshot | None, ranges: TableSnapshot) -> bool:
    """Whether the log has the commit copied last, and every one after it. A log file that is not there although the
    table opens lies before a checkpoint: old ones are removed in time."""
    copied = ranges.transaction_version(COPIED)
    if copied is None:
        return True
    if records is None or records.version < copied:
        return False
    commits = records.commits(after=copied - 1)
    if [*commits] == [*range(copied + 1, records.version + 1)] and not records.has_log_file(copied):
        return True
    if [*commits] != [*range(copied, records.version + 1)]:
        return False
    known = ranges.commits(after=ranges.version - 1).get(ranges.version, {}).get(COPIED_COMMIT)
    return known in (None, commits[copied].get(COMMIT_ID))  # a vacuum names none


def _ends(ranges: TableSnapshot) -> Iterator[dict[str, Any]]:
    """By state partition: the least offset exported, and the greatest one exported or noted as a gap."""
    sums = [("first_offset", "min"), ("last_offset", "max"), ("gap_last", "max")]
    columns = [*_ENDS, *(name for name, _ in sums)]
    total = EXPORT_RANGES.empty_table().select(columns)
    for batch in ranges.batches(columns=columns):
        joined = pa.concat_tables([total, pa.Table.from_batches([batch])])
        summed = joined.group_by(list(_ENDS), use_threads=False).aggregate(sums)
        total = summed.select([*_ENDS, *(f"{name}_{how}" for name, how in sums)]).rename_columns(columns)
    yield from total.to_pylist()


def _lost(
    tables: Tables, records: TableSnapshot | None, ranges: TableSnapshot, lost: Sequence[LostOffsets]
) -> DamagedTables:
    copied = ranges.transaction_version(COPIED) or 0
    if records is None:
        there = "is gone"
    elif records.version < copied:
        there = f"went back to version {records.version}"
    else:
        there = f"has lost commits up to version {records.version}, or has others in their place"
    shown = [*map(str, lost[:_SHOWN]), *([f"{len(lost) - _SHOWN} more"] if len(lost) > _SHOWN else [])]
    what = f": lost are {'; '.join(shown)}" if shown else ""
    return DamagedTables(
        f"tables at {tables.root}: table state_records {there}; export_ranges refers to version {copied}{what}",
        hint="`acktrail tables repair` shows what can be exported again and what is lost",
        table=RECORDS,
        data={
            "root": tables.root,
            "version": None if records is None else records.version,
            "expected_version": copied,
            "lost": [(each.state_partition, each.first_offset, each.last_offset) for each in lost],
        },
    )


def end_positions(tables: Tables, lost: Iterable[LostOffsets]) -> None:
    """Let exports resume after the records lost at the end of state partitions: they are back, or recorded as a gap."""
    ends = {each.state_partition: each.last_offset + 1 for each in lost}
    snapshot = tables.snapshot(RECORDS)
    if not ends or snapshot is None:
        return
    shifts = newest_shifts(tables)
    positions: dict[str, int] = {}
    marks: dict[str, int] = {}
    for row in tables.read(RANGES_TABLE, columns=list(_ENDS)).group_by(list(_ENDS)).aggregate([]).to_pylist():
        source_partition, number = _range_source_partition(row), row["state_partition"]
        if ends.get(number, 0) > (snapshot.transaction_version(source_partition) or 0):
            positions[str(source_partition)] = ends[number]
            marks |= shift_mark(source_partition, shifts.get(number, 0))
    if positions:
        before = {source_partition: snapshot.transaction_version(source_partition) for source_partition in positions}
        nothing = STATE_RECORDS.empty_table()
        tables.append(RECORDS, nothing, transactions={**positions, **marks}, expected=before)


def note_lost(tables: Tables, lost: Sequence[LostOffsets]) -> None:
    """Record in ``export_ranges`` that `lost` is gone, and the newest commit of ``state_records``."""
    records, ranges = tables.snapshot(RECORDS), tables.snapshot(RANGES_TABLE)
    if records is None or ranges is None:
        return
    newest = records.commits(after=records.version - 1).get(records.version, {})
    commit = {COPIED_COMMIT: newest.get(COMMIT_ID, "")}
    copied, before = {COPIED: records.version}, {COPIED: ranges.transaction_version(COPIED)}
    if not lost:
        nothing = EXPORT_RANGES.empty_table()
        tables.append(RANGES_TABLE, nothing, transactions=copied, expected=before, metadata=commit)
        return
    renewed = with_gaps(tables, tables.read(RANGES_TABLE), lost, LOST_FROM_TABLES)
    with tables.rewritable(RANGES_TABLE):
        tables.replace(RANGES_TABLE, renewed, transactions=copied, expected=before, metadata=commit)


def with_gaps(
    tables: Tables, rows: pa.Table, lost: Sequence[LostOffsets], reason: str, run_id: str | None = None
) -> pa.Table:
    """`rows` of ``export_ranges`` where the `lost` offsets are gaps, made by the run `run_id` (None: by that of the
    range). What remains of a range has the counts of its records in ``state_records``."""
    last = max(each.last_offset for each in lost)
    is_met = pc.field("state_partition").isin([each.state_partition for each in lost])
    is_met &= pc.field("first_offset").is_valid() & (pc.field("first_offset") <= last)
    parts = [part for row in rows.filter(is_met).to_pylist() for part in cut_range(row, lost, reason, run_id)]
    _count_records(tables, [part for part in parts if part["records_read"] is None])
    return pa.concat_tables([rows.filter(~is_met), pa.Table.from_pylist(parts, schema=EXPORT_RANGES)])


def cut_range(
    row: Mapping[str, Any], lost: Iterable[LostOffsets], reason: str, run_id: str | None = None
) -> list[_Row]:
    """A row of ``export_ranges`` as rows for its remaining records, whose counts are None, and one for each gap."""
    number, first, last = row["state_partition"], row["first_offset"], row["last_offset"]
    same = (each for each in lost if each.state_partition == number)
    clipped = ((max(each.first_offset, first), min(each.last_offset, last)) for each in same)
    own = sorted((begin, end) for begin, end in clipped if begin <= end)
    if not own:
        return [dict(row)]
    found = [] if row["gap_first"] is None else [{**row, **_NO_RECORDS}]
    gap = {**row, **_NO_RECORDS, "gap_reason": reason, "run_id": run_id or row["run_id"]}
    rest = {**row, **dict.fromkeys((*_COUNTS, "gap_first", "gap_last", "gap_reason"))}
    begin = first
    for lost_first, lost_last in [*own, (last + 1, last)]:
        if begin < lost_first:
            found.append({**rest, "first_offset": begin, "last_offset": lost_first - 1})
        if lost_first <= lost_last:
            found.append({**gap, "gap_first": lost_first, "gap_last": lost_last})
        begin = lost_last + 1
    return found


def _count_records(tables: Tables, parts: Sequence[_Row]) -> None:
    """Put the counts of the records that are there into rows of ``export_ranges``."""
    if not parts:
        return
    number, offset = pc.field("state_partition"), pc.field("offset")
    inside = (
        (number == each["state_partition"]) & (offset >= each["first_offset"]) & (offset <= each["last_offset"])
        for each in parts
    )
    rows = tables.read(RECORDS, columns=["state_partition", "offset", "decode_status"], where=reduce(or_, inside))
    numbers, offsets = (rows[name].to_numpy() for name in ("state_partition", "offset"))
    is_decoded = pc.equal(rows["decode_status"], "decoded").to_numpy()
    for each in parts:
        own = (
            (numbers == each["state_partition"]) & (offsets >= each["first_offset"]) & (offsets <= each["last_offset"])
        )
        read, decoded = int(own.sum()), int((own & is_decoded).sum())
        each |= {"records_read": read, "records_decoded": decoded, "records_quarantined": read - decoded}
