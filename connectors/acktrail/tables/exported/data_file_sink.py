"""State records that several processes write as data files, and another one commits: as many writers as there are
executors, and one commit. Between them travels what a file is called and what it covers, never a row. A file that is
not committed is no part of the table: its writer was killed, or did the work a second time. ``acktrail tables
maintain`` removes it.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

import pyarrow as pa

from acktrail.connect.contract import SinkTask
from acktrail.connect.source_batches import Commit, LogSpan, SourceBatch, SourcePartition, state_source_partition
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_commit import WRITTEN_FILES, written_file
from acktrail.tables.exported.delta_sink import placed
from acktrail.tables.exported.export_ranges import TableLogs

_NUMBERS: Final = (
    *("partition", "first_offset", "last_offset", "records", "quarantined", "log_start_offset", "log_end_offset"),
    *("gap_first", "gap_last", "offset_shift", "leader_epoch"),
)
_TEXTS: Final = ("topic_id", "gap_reason")
_SPANS: Final = pa.schema(
    [
        *(pa.field(name, pa.int64()) for name in (*_NUMBERS, "position")),
        *(pa.field(name, pa.string()) for name in _TEXTS),
    ]
)
WRITTEN: Final = pa.schema([*_SPANS, *WRITTEN_FILES])
"""A row is a span of a log (``connect.source_batches.LogSpan``) with the position behind it, or a data file."""


class DataFileSink(SinkTask):
    """Writes batches of logs, continued where ``state_records`` ends now, as data files that are not committed. The
    table is there. Raises as ``Tables.snapshot``."""

    def __init__(self, tables: Tables) -> None:
        self._place = tables.place("state_records")
        self._logs = TableLogs(tables, tables.snapshot("state_records"))
        self._records: list[pa.Table] = []
        self._spans: list[dict[str, Any]] = []
        self._files = [WRITTEN_FILES.empty_table()]

    def position(self, source_partition: SourcePartition) -> int | None:
        return self._logs.position(source_partition)

    @property
    def stored(self) -> TableLogs:
        return self._logs

    @property
    def pending_rows(self) -> int:
        return sum(rows.num_rows for rows in self._records)

    def put(self, batch: SourceBatch) -> None:
        assert batch.span is not None
        self._records.append(batch.rows["state_records"])
        self._spans.append({**asdict(batch.span), "position": batch.position})

    def flush(self) -> Commit:
        """One file of everything put so far; nothing is committed."""
        rows, self._records = placed(self._records), []
        with self._place.translated():
            self._files.append(written_file(self._place, rows))
        return Commit(rows={})

    @property
    def written(self) -> pa.Table:
        """Spans in the order of their offsets, and files (``WRITTEN``)."""
        spans = pa.Table.from_pylist(self._spans, schema=_SPANS)
        return pa.concat_tables([WRITTEN.empty_table(), spans, *self._files], promote_options="default")


def written_records(written: pa.Table, cluster_id: str) -> tuple[list[SourceBatch], pa.Table]:
    """The spans in `written` (``WRITTEN``) as batches without rows, and the files (``WRITTEN_FILES``)."""
    batches = [
        SourceBatch(
            source_partition=state_source_partition(cluster_id, row["topic_id"], row["partition"]),
            rows={},
            position=row["position"],
            span=LogSpan(**{name: row[name] for name in (*_NUMBERS, *_TEXTS)}),
        )
        for row in written.filter(written["path"].is_null()).to_pylist()
    ]
    return batches, written.filter(written["path"].is_valid()).select(WRITTEN_FILES.names)
