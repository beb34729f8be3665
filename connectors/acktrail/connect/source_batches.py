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
from typing import Any, Final, NamedTuple, NewType, Protocol

import pyarrow as pa

# Reasons of a gap in what was exported.
PRUNED: Final = "pruned"
"""Kafka pruned these offsets between two exports."""
PRUNED_BEFORE_FIRST_EXPORT: Final = "pruned_before_first_export"
"""Kafka pruned these offsets before anything was exported."""
LOST_FROM_TABLES: Final = "lost_from_tables"
"""These offsets were exported, the tables lost them, and Kafka does not have them any more."""
LOG_REPLACED: Final = "log_replaced"
"""A gap of one offset, a break: Kafka's log is not the one that the records before it came from; how many records lie
between is not known."""
DROPPED_BY_RETENTION: Final = "dropped_by_retention"
"""These offsets were exported, and the tables do not keep them any more (``acktrail tables maintain --keep``)."""
SKIPPED_BY_REQUEST: Final = "skipped_by_request"
"""No one read these offsets: a person moved the position of the reading past them."""

SourcePartition = NewType("SourcePartition", str)
"""Names a source partition permanently: the key of its position. That of a log has the cluster and the topic's id, so
that the log of another cluster or of a recreated topic is another source partition."""

Position = int | Mapping[str, Any]
"""Where the reading of a source partition continues; Connect's source offset. A number, or an object of JSON."""
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


def log_partition(kind: str, cluster_id: str, topic_id: str, partition: int) -> SourcePartition:
    """Names the reading of one partition of one incarnation of a topic in one cluster.

    >>> log_partition("groups", "a-cluster", "a-topic", 7)
    'groups/a-cluster/a-topic/7'
    """
    return SourcePartition(f"{kind}/{cluster_id}/{topic_id}/{partition}")


def state_source_partition(cluster_id: str, topic_id: str | None, partition: int) -> SourcePartition:
    """Names the reading of one partition of one incarnation of one cluster's state topic; None: not known which."""
    return log_partition("state", cluster_id, topic_id or "unknown", partition)


def state_log(source_partition: SourcePartition) -> tuple[str, str | None, int] | None:
    """Cluster, topic id and partition of what ``state_source_partition`` names; None: it is something else.

    >>> state_log(state_source_partition("c", None, 7)), state_log(SourcePartition("groups"))
    (('c', None, 7), None)
    """
    kind, _, rest = source_partition.partition("/")
    parts = rest.split("/")
    if kind != "state" or len(parts) != 3 or not parts[2].isdecimal():
        return None
    return parts[0], None if parts[1] == "unknown" else parts[1], int(parts[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The file that records were imported from: its name, SHA-256 of its bytes in hex, the dialect it was read in."""

    file: str
    sha256: str
    dialect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSpan:
    """The part of a log that a batch covers.

    `first_offset` and `last_offset` are None when the batch has no records. `gap_first` to `gap_last` (inclusive) were
    pruned before they could be read, or are in no file. `log_start_offset` and `log_end_offset` as last seen; None, as
    `topic_id`, where only files are known. `origin` None: read from the cluster.

    `gap_reason` is one of the reasons above; None: not in the files. All offsets are those of the tables: Kafka's plus
    `offset_shift`, which is 0 until a log is replaced. `leader_epoch` is the leader's when the log was opened.
    `last_fingerprint`: ``record_fingerprint`` of the last record, with its offset in Kafka; None: not known.
    """

    topic_id: str | None
    partition: int
    first_offset: int | None = None
    last_offset: int | None = None
    records: int = 0
    quarantined: int = 0
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    gap_first: int | None = None
    gap_last: int | None = None
    origin: Origin | None = None
    gap_reason: str | None = None
    offset_shift: int = 0
    leader_epoch: int | None = None
    last_fingerprint: int | None = None

    @property
    def gap(self) -> tuple[int, int] | None:
        """Its first and last offset, where there is one."""
        return None if self.gap_first is None or self.gap_last is None else (self.gap_first, self.gap_last)


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
