"""The steps of a repair; each of them can be repeated after a crash. They raise as ``Tables.append``."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.schemas.table_schemas import EXPORT_RANGES, STATE_RECORDS
from acktrail.connect.contract import LOST_FROM_TABLES
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import COMMIT_ID
from acktrail.tables.exported.continuity import RANGES_TABLE, LostOffsets, range_task
from acktrail.tables.exported.export_ranges import COPIED, COPIED_COMMIT
from acktrail.tables.exported.record_files import RECORDS
from acktrail.tables.exported.stored_log import newest_shifts, shift_mark

_TASK: Final = ("cluster_id", "state_topic_id", "state_partition")

EMPTY_COMMIT: Final = json.dumps({"commitInfo": {"operation": "WRITE", "operationParameters": {}}}) + "\n"
"""Replaces a commit that cannot be read: no action."""

_NO_RECORDS: Final = {
    **dict.fromkeys(("first_offset", "last_offset")),
    **dict.fromkeys(("records_read", "records_decoded", "records_quarantined"), 0),
}

_Row = dict[str, Any]


def end_positions(tables: Tables, lost: Iterable[LostOffsets]) -> None:
    """Let exports resume after the records lost at the end of state partitions: they are back, or recorded as a gap."""
    ends = {each.state_partition: each.last_offset + 1 for each in lost}
    snapshot = tables.snapshot(RECORDS)
    if not ends or snapshot is None:
        return
    shifts = newest_shifts(tables)
    positions: dict[str, int] = {}
    marks: dict[str, int] = {}
    for row in tables.read(RANGES_TABLE, columns=list(_TASK)).group_by(list(_TASK)).aggregate([]).to_pylist():
        task, number = range_task(row), row["state_partition"]
        if ends.get(number, 0) > (snapshot.transaction_version(task) or 0):
            positions[str(task)] = ends[number]
            marks |= shift_mark(task, shifts.get(number, 0))
    if positions:
        before = {task: snapshot.transaction_version(task) for task in positions}
        nothing = STATE_RECORDS.empty_table()
        tables.append(RECORDS, nothing, transactions={**positions, **marks}, expected=before)


def note_lost(tables: Tables, lost: Sequence[LostOffsets]) -> None:
    """Record in ``export_ranges`` that `lost` is gone, and the newest commit of ``state_records``."""
    records, ranges = tables.snapshot(RECORDS), tables.snapshot(RANGES_TABLE)
    if records is None or ranges is None:
        return
    newest = next((each.metadata.get(COMMIT_ID, "") for each in records.commits(after=records.version - 1)), "")
    copied, before = {COPIED: records.version}, {COPIED: ranges.transaction_version(COPIED)}
    commit = {COPIED_COMMIT: newest}
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
    own = sorted(
        (max(each.first_offset, first), min(each.last_offset, last))
        for each in lost
        if first is not None
        and each.state_partition == number
        and each.first_offset <= last
        and each.last_offset >= first
    )
    if not own:
        return [dict(row)]
    found = [] if row["gap_first"] is None else [_gap(row, row["gap_first"], row["gap_last"], row["gap_reason"])]
    begin = first
    for lost_first, lost_last in own:
        if begin < lost_first:
            found.append(_part(row, begin, lost_first - 1, unreadable))
        found.append(_gap(row, lost_first, lost_last, LOST_FROM_TABLES))
        begin = lost_last + 1
    return [*found, *([_part(row, begin, last, unreadable)] if begin <= last else [])]


def _gap(row: Mapping[str, Any], first: int, last: int, reason: str | None) -> _Row:
    return {**row, **_NO_RECORDS, "gap_first": first, "gap_last": last, "gap_reason": reason}


def _part(row: Mapping[str, Any], first: int, last: int, unreadable: Mapping[int, Sequence[int]]) -> _Row:
    read = last - first + 1
    quarantined = sum(first <= offset <= last for offset in unreadable.get(row["state_partition"], ()))
    return {
        **row,
        **dict.fromkeys(("gap_first", "gap_last", "gap_reason")),
        "first_offset": first,
        "last_offset": last,
        "records_read": read,
        "records_decoded": read - quarantined,
        "records_quarantined": quarantined,
    }
