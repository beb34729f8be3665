"""``export_ranges``: what every commit of the exporter covered.

Its rows ride in the metadata of the very commit of ``state_records`` that they describe. The table is a copy of that
log: it remembers, as its own position, up to which version it copied. So a crash between the two commits loses
nothing, copying again doubles nothing, and it does not matter which of several writers copies.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.dataclass_json import stored_value
from acktrail.errors import ConcurrentCommit, ConfigurationError
from acktrail.format.columns.schemas.table_schemas import EXPORT_RANGES
from acktrail.format.wire.raw_record import record_fingerprint
from acktrail.model.log_positions import LOG_REPLACED, LogSpan, SourcePartition
from acktrail.tables.cluster_check import check_state_topic
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import COMMIT_ID, TableSnapshot
from acktrail.tables.records.record_files import extremes

RANGES: Final = "ranges"
"""The metadata of a commit of ``state_records`` that holds its ranges."""
COPIED: Final = "state_records"
"""The app id in ``export_ranges`` whose number is the last copied version of ``state_records``."""
COPIED_COMMIT: Final = "copied_commit"
"""The metadata of a commit of ``export_ranges`` that holds the id of the commit copied last."""
_ATTEMPTS: Final = 20
_READ: Final = (
    *("run_id", "exported_at", "records_version", "state_partition", "first_offset", "last_offset", "records_read"),
    *("records_quarantined", "gap_first", "gap_last", "gap_reason", "offset_shift"),
)
_OF_SPAN: Final = (
    *("first_offset", "last_offset", "log_start_offset", "log_end_offset", "gap_first", "gap_last", "gap_reason"),
)
"""Columns of ``export_ranges`` that are named as in a span."""
_newest: dict[tuple[object, ...], pa.Table] = {}
_Row = dict[str, Any]
_EPOCH: Final = "epoch"
_SHIFT: Final = "shift"
_LAST: Final = "last"
RANGES_TABLE: Final = "export_ranges"
EMPTY_COMMIT: Final = json.dumps({"commitInfo": {"operation": "WRITE", "operationParameters": {}}}) + "\n"
"""Replaces a commit that cannot be read: no action."""


def read_ranges(tables: Tables) -> pa.Table:
    """Run, time, offsets, shifts, counts and gaps of all rows. They are kept for the next call in this process: several
    steps of a run ask for them, and the table has many small files until it is maintained."""
    snapshot = tables.snapshot("export_ranges")
    if snapshot is None:
        return EXPORT_RANGES.empty_table()
    commit = (tables.root, *snapshot.newest_commit)
    if commit not in _newest:
        _newest.clear()
        _newest[commit] = snapshot.read(columns=_READ)
    return _newest[commit]


def ends_of_files(tables: Tables) -> dict[int, int] | None:
    """One past the last offset by state partition, of tables whose records are all from files; None: some are not."""
    snapshot = tables.snapshot("export_ranges")
    if snapshot is None:
        return {}
    ranges = snapshot.read(columns=["state_partition", "last_offset", "source_file"])
    if ranges["source_file"].null_count:
        return None
    return {number: last + 1 for number, last in extremes(ranges, "last_offset", "max").items() if last is not None}


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
    raise ConcurrentCommit("export_ranges is changed all the time by other writers", hint="run again")


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
            hint="restore the table export_ranges from a backup, or export into another root",
            data={"root": tables.root, "after": after},
        )
    rows = [{**row, "records_version": n} for n, own in commits.items() for row in _ranges_in(own)]
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
    last = last_mark(source_partition, span.last_fingerprint) if span.records or span.gap else {}
    return {**marks, **last, **shift_mark(source_partition, span.offset_shift)}


def last_mark(source_partition: SourcePartition, fingerprint: int | None = None) -> dict[str, int]:
    """The number that a commit keeps of the record before its position, by app id; None: it is not known."""
    return {f"{source_partition}/{_LAST}": fingerprint or 0}


def shift_mark(source_partition: SourcePartition, offset_shift: int) -> dict[str, int]:
    """The number that a commit keeps where offsets differ from Kafka's, by app id."""
    return {f"{source_partition}/{_SHIFT}": offset_shift} if offset_shift else {}


def newest_shifts(tables: Tables, where: pc.Expression | None = None) -> dict[int, int]:
    """Offset in the tables minus offset in Kafka's log, of the state partitions whose log was replaced, as of the
    newest row of ``read_ranges`` that satisfies `where` (None: as of now)."""
    rows = read_ranges(tables).filter(pc.field("offset_shift").is_valid())
    return extremes(rows if where is None else rows.filter(where), "offset_shift", "max")


class TableLogs:
    """What ``state_records`` has of the logs of the state topic (``StoredLogs`` of ``acktrail_connect``). `snapshot`
    None: nothing is stored."""

    def __init__(self, tables: Tables, snapshot: TableSnapshot | None) -> None:
        self._tables, self._snapshot = tables, snapshot

    def position(self, source_partition: SourcePartition) -> int | None:
        """The next offset to read; None: it never committed."""
        return None if self._snapshot is None else self._snapshot.transaction_version(source_partition)

    def stored_log(self, source_partition: SourcePartition, partition: int) -> StoredRecords:
        """See ``StoredLogs``."""
        return StoredRecords(self._snapshot, source_partition, partition, self._tables)

    def check_state_topic(self, topic_id: str | None) -> None:
        """See ``StoredLogs``."""
        if self._snapshot is not None:
            check_state_topic(self._tables, self._snapshot, topic_id)


class StoredRecords:
    """``state_records`` of `source_partition`, the log of state partition `partition`; see
    ``StoredLog`` of ``acktrail_connect``. `snapshot` None: nothing is stored. `fingerprint` and `first_offset` cost a
    read of the files that may hold the record."""

    def __init__(
        self,
        snapshot: TableSnapshot | None,
        source_partition: SourcePartition,
        partition: int,
        tables: Tables | None = None,
    ) -> None:
        self._snapshot, self._source_partition, self._partition = snapshot, source_partition, partition
        self._tables = tables
        self.offset_shift = self._number(_SHIFT) or 0
        self.leader_epoch = self._number(_EPOCH)
        self.last_fingerprint = self._number(_LAST) or None

    def fingerprint(self, offset: int) -> int | None:
        """See ``StoredLog``."""
        if self._snapshot is None:
            return None
        shift = next(shift for first, shift in self._logs if first <= offset)
        where = (pc.field("state_partition") == self._partition) & (pc.field("offset") == offset + shift)
        rows = self._snapshot.read(columns=["timestamp_ms", "key", "value"], where=where).to_pylist()
        return record_fingerprint(offset, **rows[0]) if rows else None

    @property
    def first_offset(self) -> int:
        """See ``StoredLog``."""
        own = pc.field("state_partition") == self._partition
        rows = None if self._snapshot is None else self._snapshot.read(columns=["offset"], where=own)["offset"]
        return 0 if rows is None else pc.min(rows).as_py() or 0

    @cached_property
    def _logs(self) -> list[tuple[int, int]]:
        """The logs that followed each other here, newest first: Kafka's offset from which the tables have each, and
        its shift. The first records of a log may be those of the one before."""
        breaks = {"state_partition": self._partition, "gap_reason": LOG_REPLACED}
        rows = self._tables.rows(RANGES_TABLE, breaks) if self._tables and self.offset_shift else []
        found = [(row["gap_last"] + 1 - row["offset_shift"], row["offset_shift"]) for row in rows]
        oldest = 0 if found else self.offset_shift
        return [*sorted(found, key=lambda log: -log[1]), (0, oldest)]

    def _number(self, name: str) -> int | None:
        return (
            None if self._snapshot is None else self._snapshot.transaction_version(f"{self._source_partition}/{name}")
        )


def _ranges_in(metadata: Mapping[str, str]) -> list[dict[str, Any]]:
    """The ranges that a commit of ``state_records`` notes."""
    found: list[dict[str, Any]] = stored_value(metadata.get(RANGES, "[]"), "state_records", "ranges of a commit", list)
    return found
