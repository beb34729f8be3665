"""Whether the tables have all that was exported, and what a repair records of what they lost.

A lost newest commit of ``state_records`` (its log file deleted, or empty after a power cut) leaves an older table that
can be read: its positions go back without a trace. But ``export_ranges`` has the version that it copied last, and the
id of that commit. Where both exist, nothing is lost. A repair records what is lost as gaps; each of its steps can be
repeated after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import DamagedTables
from acktrail.format.columns.schemas.table_schemas import EXPORT_RANGES, STATE_RECORDS
from acktrail.format.columns.share_partition_keys import grouped
from acktrail.model.log_positions import LOST_FROM_TABLES, state_source_partition
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_place import damaged_table
from acktrail.tables.delta.table_snapshot import COMMIT_ID, TableSnapshot, one_of
from acktrail.tables.records.export_ranges import (
    COPIED,
    COPIED_COMMIT,
    RANGES_TABLE,
    last_mark,
    newest_shifts,
    shift_mark,
)
from acktrail.tables.records.record_files import RECORDS

_Row = dict[str, Any]
_ENDS: Final = ("cluster_id", "state_topic_id", "state_partition")
_COUNTS: Final = ("records_read", "records_decoded", "records_quarantined")
_NO_RECORDS: Final = {**dict.fromkeys(("first_offset", "last_offset")), **dict.fromkeys(_COUNTS, 0)}


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
    DamagedTables. Reads two logs, and lists one folder; object storage is not listed."""
    records, ranges = _snapshots(tables)
    if ranges is not None and not _has_the_copied_commit(records, ranges):
        raise _lost(tables, records, ranges)
    for snapshot in (records, ranges):
        if snapshot is not None and snapshot.is_local:
            missing = snapshot.missing()
            if missing:
                raise damaged_table(tables.root, snapshot.name, missing[0], more=len(missing) - 1)


def is_whole(tables: Tables) -> bool:
    """Whether ``state_records`` has every commit that ``export_ranges`` refers to. Reads two logs."""
    records, ranges = _snapshots(tables)
    return ranges is None or _has_the_copied_commit(records, ranges)


def _snapshots(tables: Tables) -> tuple[TableSnapshot | None, TableSnapshot | None]:
    """``state_records`` and ``export_ranges``, the former last: a writer commits to it first, and the commits that
    the ranges refer to must be there."""
    ranges = tables.snapshot(RANGES_TABLE)
    return tables.snapshot(RECORDS), ranges


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


def _lost(tables: Tables, records: TableSnapshot | None, ranges: TableSnapshot) -> DamagedTables:
    copied = ranges.transaction_version(COPIED) or 0
    if records is None:
        there = "is gone"
    elif records.version < copied:
        there = f"went back to version {records.version}"
    else:
        there = f"has lost commits up to version {records.version}, or has others in their place"
    version = None if records is None else records.version
    return DamagedTables(
        f"tables at {tables.root}: table state_records {there}; export_ranges refers to version {copied}",
        hint="`acktrail tables repair` shows which records can be exported again and which are lost",
        table=RECORDS,
        data={"root": tables.root, "version": version, "expected_version": copied},
    )


def end_positions(tables: Tables) -> None:
    """Let exports resume behind what the ranges have of each state partition: records that were lost at its end are
    back, or are recorded as a gap."""
    records, ranges = _snapshots(tables)
    if records is None or ranges is None:
        return
    shifts = newest_shifts(tables)
    positions: dict[str, int] = {}
    marks: dict[str, int] = {}
    for row in _ends(ranges):
        number = row["state_partition"]
        own = state_source_partition(row["cluster_id"], row["state_topic_id"], number)
        position, mark = records.transaction_version(own) or 0, shift_mark(own, shifts.get(number, 0))
        end = 1 + max((row[name] for name in ("last_offset", "gap_last") if row[name] is not None), default=-1)
        if end > position or any(records.transaction_version(name) != shift for name, shift in mark.items()):
            positions[own] = max(end, position)
            marks |= mark | last_mark(own)
    if positions:
        before = {own: records.transaction_version(own) for own in positions}
        tables.append(RECORDS, STATE_RECORDS.empty_table(), transactions={**positions, **marks}, expected=before)


def _ends(ranges: TableSnapshot) -> list[dict[str, Any]]:
    """By state partition: the greatest offset exported, and the greatest one noted as a gap."""
    rows = ranges.read(columns=[*_ENDS, "last_offset", "gap_last"])
    return grouped(rows, _ENDS, last_offset="max", gap_last="max").to_pylist()


def note_lost(tables: Tables, lost: Sequence[LostOffsets]) -> None:
    """Record in ``export_ranges`` that `lost` is gone, and the newest commit of ``state_records``."""
    renew_ranges(tables, (lambda rows: with_gaps(tables, rows, lost, LOST_FROM_TABLES)) if lost else None)


def renew_ranges(tables: Tables, change: Callable[[pa.Table], pa.Table] | None) -> None:
    """Put what `change` makes of all rows of ``export_ranges`` in their place (None: they stay), and record the newest
    commit of ``state_records``."""
    records, ranges = tables.snapshot(RECORDS), tables.snapshot(RANGES_TABLE)
    if records is None or ranges is None:
        return
    newest = records.commits(after=records.version - 1).get(records.version, {})
    commit = {COPIED_COMMIT: newest.get(COMMIT_ID, "")}
    copied, before = {COPIED: records.version}, {COPIED: ranges.transaction_version(COPIED)}
    if change is None:
        tables.append(RANGES_TABLE, EXPORT_RANGES.empty_table(), transactions=copied, expected=before, metadata=commit)
        return
    renewed = change(tables.read(RANGES_TABLE))
    with tables.rewritable(RANGES_TABLE):
        tables.replace(RANGES_TABLE, renewed, transactions=copied, expected=before, metadata=commit)


def with_gaps(
    tables: Tables, rows: pa.Table, lost: Sequence[LostOffsets], reason: str, run_id: str | None = None
) -> pa.Table:
    """`rows` of ``export_ranges`` where the `lost` offsets are gaps, made by the run `run_id` (None: by that of the
    range). What remains of a range has the counts of its records in ``state_records``."""
    last = max((each.last_offset for each in lost), default=-1)
    is_met = one_of("state_partition", [each.state_partition for each in lost])
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
