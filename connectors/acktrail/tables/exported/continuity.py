"""Whether ``state_records`` still has every commit that ``export_ranges`` refers to.

A lost newest commit (its log file deleted, or empty after a power cut) leaves an older table that can be read: its
positions go back without a trace. But ``export_ranges`` has the version that it copied last, and the id of that commit.
Where both exist, nothing is lost; else its rows are compared with the positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from acktrail.columnar.schemas.table_schemas import EXPORT_RANGES
from acktrail.connect.contract import TaskId, state_task_id
from acktrail.errors import DamagedTables
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import COMMIT_ID, TableSnapshot
from acktrail.tables.exported.export_ranges import COPIED, COPIED_COMMIT
from acktrail.tables.exported.record_files import RECORDS

RANGES_TABLE: Final = "export_ranges"
_ENDS: Final = ("cluster_id", "state_topic_id", "state_partition")
_SHOWN: Final = 3


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
    """Pass when ``state_records`` has the commits that ``export_ranges`` refers to, and all their data files.

    Reads two logs, and lists the files of one folder; object storage is not listed.

    Raises:
        DamagedTables: it lost commits or files: which records, by state partition and offsets.
        ConfigurationError, RetryableError: the tables cannot be read.
    """
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
        position = None if records is None else records.transaction_version(range_task(row))
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


def range_task(row: Any) -> TaskId:
    """The task of a row of ``export_ranges``."""
    return state_task_id(row["cluster_id"], row["state_topic_id"], row["state_partition"])


def _has_the_copied_commit(records: TableSnapshot | None, ranges: TableSnapshot) -> bool:
    """Whether the log has the commit copied last, and every one after it. A log file that is not there although the
    table opens lies before a checkpoint: old ones are removed in time."""
    copied = ranges.transaction_version(COPIED)
    if copied is None:
        return True
    if records is None or records.version < copied:
        return False
    commits = records.commits(after=copied - 1)
    versions = [each.version for each in commits]
    if versions == list(range(copied + 1, records.version + 1)) and not records.has_log_file(copied):
        return True
    if versions != list(range(copied, records.version + 1)):
        return False
    known = next((each.metadata.get(COPIED_COMMIT) for each in ranges.commits(after=ranges.version - 1)), None)
    return known in (None, commits[0].metadata.get(COMMIT_ID))


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
        hint="`acktrail repair` shows what can be exported again and what is lost",
        table=RECORDS,
        data={
            "root": tables.root,
            "version": None if records is None else records.version,
            "expected_version": copied,
            "lost": [(each.state_partition, each.first_offset, each.last_offset) for each in lost],
        },
    )
