"""What travels from a source to a sink: batches of rows, the source partition they are of and the position after them.

A *source partition* is a part of a source that has a position of its own, as in Kafka Connect. Rows and positions land
in one atomic commit of the sink: after a crash a task continues at the position that its sink knows, so nothing is lost
and nothing doubled. Positions live nowhere else.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

from acktrail.model.log_positions import LogSpan, Position, SourcePartition

# Reasons of a gap in what was exported.


DEAD_LETTERS: Final = pa.schema(
    [
        ("source_partition", pa.string()),
        ("position", pa.string()),
        ("table", pa.string()),
        ("row", pa.int64()),
        ("content", pa.string()),
        ("reason", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
"""A row that could not be written: where it is from (the position after its batch as JSON, its number in the batch),
what it was as JSON, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceBatch:
    """Rows by table name, and the position at which `source_partition` continues; None: it has no position
    (observations), its batches are made idempotent by their run id."""

    source_partition: SourcePartition
    rows: Mapping[str, pa.Table]
    position: Position | None = None
    span: LogSpan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What one flush wrote: row counts by table, and the positions that are safe now."""

    rows: Mapping[str, int]
    positions: Mapping[SourcePartition, Position] = field(default_factory=dict)


class LogEnds(NamedTuple):
    """Offset of a log's first record, and one past that of its last, in the log's origin; `leader_epoch`: that of the
    leader whose answer this is (None: not known)."""

    first: int
    end: int
    leader_epoch: int | None = None


class LogMark(NamedTuple):
    """What a sink noted of a log: how much larger its positions are than the offsets in the log that the source has
    now, and the leader's epoch in which the log was last seen to be the same (None: not known)."""

    offset_shift: int = 0
    leader_epoch: int | None = None


class StoredLog(Protocol):
    """What a sink has of one partition's log: enough to check that Kafka still has the same log."""

    @property
    def offset_shift(self) -> int:
        """Offset in the tables minus offset in Kafka's log."""

    @property
    def leader_epoch(self) -> int | None:
        """The partition leader's epoch when the log was last seen to be the same; None: not known."""

    @property
    def last_fingerprint(self) -> int | None:
        """``fingerprint`` of the record before the position, where it was noted; None: not known."""

    @property
    def first_offset(self) -> int:
        """The least offset that is stored, in the tables; 0 where nothing is."""

    def fingerprint(self, offset: int) -> int | None:
        """``record_fingerprint`` of the record at Kafka's `offset`, as stored of the newest log that has it and of
        those whose first records are its own; None: it is not stored."""


class StoredLogs(Protocol):
    """What a sink has of the logs of one topic."""

    def stored_log(self, source_partition: SourcePartition, partition: int) -> StoredLog: ...

    def check_state_topic(self, topic_id: str | None) -> None:
        """Pass when the stored records are of the topic incarnation `topic_id` (None: the cluster has no such topic),
        or when there are none. Raises ForeignCluster when they are of another incarnation."""


def dead_letters(batch: SourceBatch, table: str, rows: pa.Table, reason: str) -> pa.Table:
    """All `rows` of `batch` for `table`, as ``DEAD_LETTERS``."""
    count, now = rows.num_rows, dt.datetime.now(dt.UTC)
    columns = {
        "source_partition": [str(batch.source_partition)] * count,
        "position": [json.dumps(batch.position, sort_keys=True)] * count,
        "table": [table] * count,
        "row": list(range(count)),
        "content": [json.dumps(row, default=_text) for row in rows.to_pylist()],
        "reason": [reason] * count,
        "at": [now] * count,
    }
    return pa.table(columns, schema=DEAD_LETTERS)


def all_dead(batch: SourceBatch, reason: str, dead_letter_table: str) -> SourceBatch:
    """`batch` with every row as a dead letter; those that were so before stay what they are."""
    own, dead = parts_of(batch, dead_letter_table)
    parts = [dead_letters(batch, table, rows, reason) for table, rows in own.items()]
    rows = pa.concat_tables([*([] if dead is None else [dead]), DEAD_LETTERS.empty_table(), *parts])
    return replace(batch, rows={dead_letter_table: rows})


def parts_of(batch: SourceBatch, dead_letter_table: str | None) -> tuple[Mapping[str, pa.Table], pa.Table | None]:
    """The rows by table without the dead letters, and the dead letters, if there are any. Other rows under the name of
    the dead-letter table are no dead letters."""
    dead = None if dead_letter_table is None else batch.rows.get(dead_letter_table)
    if dead is None or not dead.schema.equals(DEAD_LETTERS):
        return batch.rows, None
    return {table: rows for table, rows in batch.rows.items() if table != dead_letter_table}, dead


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
