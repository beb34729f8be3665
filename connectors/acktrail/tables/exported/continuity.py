"""Whether ``state_records`` still has every commit that ``export_ranges`` refers to, and how a repair records what is
lost. Each of its steps can be repeated after a crash.

A lost newest commit (its log file deleted, or empty after a power cut) leaves an older table that can be read: its
positions go back without a trace. But ``export_ranges`` has the version that it copied last, and the id of that commit.
Where both exist, nothing is lost; else its rows are compared with the positions.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
_NO_RECORDS: Final = {
    **dict.fromkeys(("first_offset", "last_offset")),
    **dict.fromkeys(("records_read", "records_decoded", "records_quarantined"), 0),
}
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
    return known in (None, commits[copied].get(COMMIT_ID))


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
    stored, own = tables.read(RANGES_TABLE), pc.field("state_partition").isin([each.state_partition for each in lost])
    unreadable: defaultdict[int, list[int]] = defaultdict(list)
    where = own & (pc.field("decode_status") != "decoded")
    for row in tables.read(RECORDS, columns=["state_partition", "offset"], where=where).to_pylist():
        unreadable[row["state_partition"]].append(row["offset"])
    rows = [part for row in stored.filter(own).to_pylist() for part in corrected(row, lost, unreadable)]
    renewed = pa.concat_tables([stored.filter(~own), pa.Table.from_pylist(rows, schema=EXPORT_RANGES)])
    with tables.rewritable(RANGES_TABLE):
        tables.replace(RANGES_TABLE, renewed, transactions=copied, expected=before, metadata=commit)


def corrected(
    row: Mapping[str, Any], lost: Iterable[LostOffsets], unreadable: Mapping[int, Sequence[int]]
) -> list[_Row]:
    """A row of ``export_ranges`` as rows for its remaining records, and one for each gap. `unreadable`: offsets of
    records that could not be decoded, by state partition."""
    number, first, last = row["state_partition"], row["first_offset"], row["last_offset"]
    same = () if first is None else (each for each in lost if each.state_partition == number)
    clipped = ((max(each.first_offset, first), min(each.last_offset, last)) for each in same)
    own = sorted((begin, end) for begin, end in clipped if begin <= end)
    if not own:
        return [dict(row)]
    found = [] if row["gap_first"] is None else [_gap(row, row["gap_first"], row["gap_last"], row["gap_reason"])]
    begin = first
    for lost_first, lost_last in own:
        found += _part(row, begin, lost_first - 1, unreadable)
        found.append(_gap(row, lost_first, lost_last, LOST_FROM_TABLES))
        begin = lost_last + 1
    return [*found, *_part(row, begin, last, unreadable)]


def _gap(row: Mapping[str, Any], first: int, last: int, reason: str | None) -> _Row:
    return {**row, **_NO_RECORDS, "gap_first": first, "gap_last": last, "gap_reason": reason}


def _part(row: Mapping[str, Any], first: int, last: int, unreadable: Mapping[int, Sequence[int]]) -> list[_Row]:
    if first > last:
        return []
    read = last - first + 1
    quarantined = sum(first <= offset <= last for offset in unreadable.get(row["state_partition"], ()))
    counts = {"records_read": read, "records_decoded": read - quarantined, "records_quarantined": quarantined}
    no_gap = dict.fromkeys(("gap_first", "gap_last", "gap_reason"))
    return [{**row, **no_gap, **counts, "first_offset": first, "last_offset": last}]
