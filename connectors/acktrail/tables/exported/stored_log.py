"""What ``state_records`` has of one state partition's log, for the comparison with the log that Kafka has now. Two
numbers ride in commits beside a position, as application transactions: the leader's epoch, and the shift of
offsets since the log was replaced."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.connect.source_batches import LogSpan, SourcePartition, state_source_partition
from acktrail.format.wire.raw_record import record_fingerprint
from acktrail.tables.cluster_check import check_present
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot

_EPOCH: Final = "epoch"
_SHIFT: Final = "shift"
_SHIFTS: Final = ("state_partition", "offset_shift")


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
            check_present(self._tables, self._snapshot, topic_id)


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
