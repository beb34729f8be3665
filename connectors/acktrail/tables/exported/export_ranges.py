"""``export_ranges``: what every commit of the exporter covered.

Its rows ride in the metadata of the very commit of ``state_records`` that they describe. The table is a copy of that
log: it remembers, as its own position, up to which version it copied. So a crash between the two commits loses
nothing, copying again doubles nothing, and it does not matter which of several writers copies.

A lost newest commit of ``state_records`` (its log file deleted, or empty after a power cut) leaves an older table that
can be read: its positions go back without a trace. But ``export_ranges`` has the version that it copied last, and the
id of that commit. Where both exist, nothing is lost. A repair records what is lost; each of its steps can be repeated
after a crash.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.connect.source_batches import LOST_FROM_TABLES, LogSpan, SourcePartition, state_source_partition
from acktrail.errors import ConcurrentCommit, ConfigurationError, DamagedTables
from acktrail.format.columns.schemas.table_schemas import EXPORT_RANGES, STATE_RECORDS
from acktrail.format.wire.raw_record import record_fingerprint
from acktrail.tables.cluster_check import check_state_topic
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import COMMIT_ID, TableSnapshot
from acktrail.tables.exported.record_files import RECORDS

RANGES: Final = "ranges"
"""The metadata of a commit of ``state_records`` that holds its ranges."""
COPIED: Final = "state_records"
"""The app id in ``export_ranges`` whose number is the last copied version of ``state_records``."""
COPIED_COMMIT: Final = "copied_commit"
"""The metadata of a commit of ``export_ranges`` that holds the id of the commit copied last."""
_ATTEMPTS: Final = 20
_READ: Final = (
    *("run_id", "exported_at", "state_partition", "first_offset", "last_offset", "records_read"),
    *("records_quarantined", "gap_first", "gap_last", "gap_reason"),
)
_OF_SPAN: Final = (
    *("first_offset", "last_offset", "log_start_offset", "log_end_offset", "gap_first", "gap_last", "gap_reason"),
)
"""Columns of ``export_ranges`` that are named as in a span."""
_newest: dict[tuple[str, str, int], pa.Table] = {}
_Row = dict[str, Any]
_EPOCH: Final = "epoch"
_SHIFT: Final = "shift"
_SHIFTS: Final = ("state_partition", "offset_shift")
RANGES_TABLE: Final = "export_ranges"
_ENDS: Final = ("cluster_id", "state_topic_id", "state_partition")
EMPTY_COMMIT: Final = json.dumps({"commitInfo": {"operation": "WRITE", "operationParameters": {}}}) + "\n"
"""Replaces a commit that cannot be read: no action."""
_COUNTS: Final = ("records_read", "records_decoded", "records_quarantined")
_NO_RECORDS: Final = {**dict.fromkeys(("first_offset", "last_offset")), **dict.fromkeys(_COUNTS, 0)}


def read_ranges(tables: Tables) -> pa.Table:
    """Run, time, offsets, counts and gaps of all rows. They are kept for the next call in this process: several steps
    of a run ask for them, and the table has many small files until it is maintained."""
    snapshot = tables.snapshot("export_ranges")
    if snapshot is None:
        return EXPORT_RANGES.empty_table()
    version = (tables.root, snapshot.table_id, snapshot.version)
    if version not in _newest:
        _newest.clear()
        _newest[version] = snapshot.read(columns=_READ)
    return _newest[version]


def merge_spans(spans: Sequence[LogSpan], span: LogSpan) -> tuple[LogSpan, ...]:
    """`spans` of one partition with `span` after them: grown into the last one unless a gap lies between, or they are
    of different files."""
    if not spans or span.gap_first is not None or span.origin != spans[-1].origin:
        return (*spans, span)
    last = spans[-1]
    grown = replace(
        span,
        first_offset=span.first_offset if last.first_offset is None else last.first_offset,
        last_offset=last.last_offset if span.last_offset is None else span.last_offset,
        records=last.records + span.records,
        quarantined=last.quarantined + span.quarantined,
        gap_first=last.gap_first,
        gap_last=last.gap_last,
        gap_reason=last.gap_reason,
    )
    return (*spans[:-1], grown)


def range_rows(spans: Iterable[LogSpan], *, cluster_id: str, run_id: str, exported_at: dt.datetime) -> list[_Row]:
    """A row of ``export_ranges`` for each span."""
    common = {"cluster_id": cluster_id, "run_id": run_id, "exported_at": exported_at}
    return [{**common, **_range_row(span)} for span in spans]


def _range_row(span: LogSpan) -> _Row:
    origin = span.origin
    return {
        **{name: getattr(span, name) for name in _OF_SPAN},
        "state_topic_id": span.topic_id,
        "state_partition": span.partition,
        "records_read": span.records,
        "records_decoded": span.records - span.quarantined,
        "records_quarantined": span.quarantined,
        "dialect": origin.dialect if origin else None,
        "source_file": origin.file if origin else None,
        "source_digest": origin.sha256 if origin else None,
        "offset_shift": span.offset_shift or None,
    }


def ranges_text(rows: Iterable[_Row]) -> str:
    """`rows` as the metadata of a commit."""
    return json.dumps([{**row, "exported_at": row["exported_at"].isoformat()} for row in rows])


def copy_ranges(tables: Tables) -> int:
    """Copy the ranges that ``export_ranges`` lacks; gives the number of rows copied. Raises ConfigurationError (when
    commits to copy are no longer in the log), ConcurrentCommit (when other writers kept copying first)."""
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(ConcurrentCommit):  # another writer copied in between: look again at what is left
            return _copy(tables)
    raise ConcurrentCommit("export_ranges is under constant change by other writers", hint="run again")


def _copy(tables: Tables) -> int:
    records = tables.followed("state_records")
    if records is None:
        return 0
    ranges = tables.followed("export_ranges")
    copied = None if ranges is None else ranges.transaction_version(COPIED)
    after = copied or 0  # the version that made the table: it has no rows
    commits = records.commits(after=after)
    if len(commits) != max(0, records.version - after):
        first = next(iter(commits), "the newest")
        raise ConfigurationError(
            f"tables at {tables.root}: export_ranges lacks versions {after + 1} to {first} of state_records, "
            "and the log no longer has them",
            hint="bring back the table export_ranges from a copy, or export into another root",
            data={"root": tables.root, "after": after},
        )
    rows = [row for own in commits.values() for row in json.loads(own.get(RANGES, "[]"))]
    for row in rows:
        row["exported_at"] = dt.datetime.fromisoformat(row["exported_at"])
    if rows:
        tables.append(
            "export_ranges",
            pa.Table.from_pylist(rows, schema=EXPORT_RANGES),
            transactions={COPIED: records.version},
            expected={COPIED: copied},
            metadata={COPIED_COMMIT: commits[records.version].get(COMMIT_ID, "")},
            at=ranges,
        )
    return len(rows)


def log_marks(source_partition: SourcePartition, span: LogSpan) -> dict[str, int]:
    """The numbers that a commit keeps of the log in `span`, by app id."""
    marks = {} if span.leader_epoch is None else {f"{source_partition}/{_EPOCH}": span.leader_epoch}
    return {**marks, **shift_mark(source_partition, span.offset_shift)}


def shift_mark(source_partition: SourcePartition, offset_shift: int) -> dict[str, int]:
    """The number that a commit keeps where offsets differ from Kafka's, by app id."""
    return {f"{source_partition}/{_SHIFT}": offset_shift} if offset_shift else {}


def offset_shifts(tables: Tables, state_partitions: Iterable[int], where: pc.Expression) -> dict[int, int]:
    """Offset in the tables minus offset in Kafka's log, of the state partitions whose log was replaced. As of the
    newest row of ``export_ranges`` that satisfies `where`. Where no log ever was replaced, nothing is read."""
    records = tables.snapshot("state_records")
    if records is None:
        return {}
    cluster_id, topic_id = (records.properties.get(name) for name in ("cluster_id", "state_topic_id"))
    names = {number: state_source_partition(cluster_id or "", topic_id, number) for number in state_partitions}
    replaced = [
        number
        for number, source_partition in names.items()
        if StoredRecords(records, source_partition, number).offset_shift
    ]
    if not replaced:
        return {}
    own = where & pc.field("state_partition").isin(replaced) & pc.field("offset_shift").is_valid()
    return _greatest(tables.read("export_ranges", columns=_SHIFTS, where=own))


def newest_shifts(tables: Tables) -> dict[int, int]:
    """``offset_shifts`` of all state partitions, as of Kafka's log now, by ``export_ranges`` alone."""
    return _greatest(tables.read("export_ranges", columns=_SHIFTS, where=pc.field("offset_shift").is_valid()))


def _greatest(rows: pa.Table) -> dict[int, int]:
    found = rows.group_by("state_partition", use_threads=False).aggregate([("offset_shift", "max")])
    return {row["state_partition"]: row["offset_shift_max"] for row in found.to_pylist()}


class TableLogs:
    """What ``state_records`` has of the logs of the state topic (``connect.source_batches.StoredLogs``). `snapshot`
    None: nothing is stored."""

    def __init__(self, tables: Tables, snapshot: TableSnapshot | None) -> None:
        self._tables, self._snapshot = tables, snapshot

    def position(self, source_partition: SourcePartition) -> int | None:
        """The next offset to read; None: it never committed."""
        return None if self._snapshot is None else self._snapshot.transaction_version(source_partition)

    def stored_log(self, source_partition: SourcePartition, partition: int) -> StoredRecords:
        """See ``StoredLogs``."""
        return StoredRecords(self._snapshot, source_partition, partition)

    def check_state_topic(self, topic_id: str | None) -> None:
        """See ``StoredLogs``."""
        if self._snapshot is not None:
            check_state_topic(self._tables, self._snapshot, topic_id)


class StoredRecords:
    """``state_records`` of `source_partition`, the log of state partition `partition`; see
    ``connect.source_batches.StoredLog``. `snapshot` None: nothing is stored. A fingerprint costs a read of the files
    that may hold the record."""

    def __init__(self, snapshot: TableSnapshot | None, source_partition: SourcePartition, partition: int) -> None:
        self._snapshot, self._source_partition, self._partition = snapshot, source_partition, partition
        self.offset_shift = self._number(_SHIFT) or 0
        self.leader_epoch = self._number(_EPOCH)

    def fingerprint(self, offset: int) -> int | None:
        """See ``StoredLog``."""
        if self._snapshot is None:
            return None
        where = (pc.field("state_partition") == self._partition) & (pc.field("offset") == offset + self.offset_shift)
        rows = self._snapshot.read(columns=["timestamp_ms", "key", "value"], where=where).to_pylist()
        return record_fingerprint(offset, **rows[0]) if rows else None

    def _number(self, name: str) -> int | None:
        return (
            None if self._snapshot is None else self._snapshot.transaction_version(f"{self._source_partition}/{name}")
        )


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
                raise tables.damaged(missing[0], snapshot.name, more=len(missing) - 1)


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
        hint="`acktrail tables repair` shows what can be exported again and what is lost",
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
            marks |= mark
    if positions:
        before = {own: records.transaction_version(own) for own in positions}
        tables.append(RECORDS, STATE_RECORDS.empty_table(), transactions={**positions, **marks}, expected=before)


def _ends(ranges: TableSnapshot) -> list[dict[str, Any]]:
    """By state partition: the greatest offset exported, and the greatest one noted as a gap."""
    rows = ranges.read(columns=[*_ENDS, "last_offset", "gap_last"])
    summed = rows.group_by(list(_ENDS), use_threads=False).aggregate([("last_offset", "max"), ("gap_last", "max")])
    found: list[dict[str, Any]] = summed.rename_columns([*_ENDS, "last_offset", "gap_last"]).to_pylist()
    return found


def note_lost(tables: Tables, lost: Sequence[LostOffsets]) -> None:
    """Record in ``export_ranges`` that `lost` is gone, and the newest commit of ``state_records``."""
    records, ranges = tables.snapshot(RECORDS), tables.snapshot(RANGES_TABLE)
    if records is None or ranges is None:
        return
    newest = records.commits(after=records.version - 1).get(records.version, {})
    commit = {COPIED_COMMIT: newest.get(COMMIT_ID, "")}
    copied, before = {COPIED: records.version}, {COPIED: ranges.transaction_version(COPIED)}
    if not lost:
        tables.append(RANGES_TABLE, EXPORT_RANGES.empty_table(), transactions=copied, expected=before, metadata=commit)
        return
    renewed = with_gaps(tables, tables.read(RANGES_TABLE), lost, LOST_FROM_TABLES)
    with tables.rewritable(RANGES_TABLE):
        tables.replace(RANGES_TABLE, renewed, transactions=copied, expected=before, metadata=commit)


def with_gaps(
    tables: Tables, rows: pa.Table, lost: Sequence[LostOffsets], reason: str, run_id: str | None = None
) -> pa.Table:
    """`rows` of ``export_ranges`` where the `lost` offsets are gaps, made by the run `run_id` (None: by that of the
    range). What remains of a range has the counts of its records in ``state_records``."""
    last = max((each.last_offset for each in lost), default=-1)
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
