"""What a source and a sink promise each other.

A *source* splits its work into *tasks*. A task starts at a *position* (the next offset to read, None for never) and
gives *batches*; a batch has the position at which its task continues. A *sink* takes batches, and when it flushes,
rows and positions land in one atomic commit: after a crash a task starts at the position its table knows, so nothing is
lost and nothing doubled. Positions live nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NewType, Protocol

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

TaskId = NewType("TaskId", str)
"""Names a task permanently: the key of its position. It has the cluster and the topic's id, so that another cluster's
or a recreated topic's task is another task."""


def state_task_id(cluster_id: str, topic_id: str | None, partition: int) -> TaskId:
    """Names the reading of one partition of one incarnation of one cluster's state topic; None: not known which."""
    return TaskId(f"state/{cluster_id}/{topic_id or 'unknown'}/{partition}")


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
    """

    topic_id: str | None
    partition: int
    first_offset: int | None
    last_offset: int | None
    records: int
    quarantined: int
    log_start_offset: int | None
    log_end_offset: int | None
    gap_first: int | None = None
    gap_last: int | None = None
    origin: Origin | None = None
    gap_reason: str | None = None
    offset_shift: int = 0
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceBatch:
    """Rows by table name, and the position at which the task continues; None: the task has no position (observations),
    its batches are made idempotent by their run id."""

    task: TaskId
    rows: Mapping[str, pa.Table]
    position: int | None = None
    span: LogSpan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What one flush wrote: row counts by table, and the positions that are safe now."""

    rows: Mapping[str, int]
    positions: Mapping[TaskId, int] = field(default_factory=dict)


class StoredLog(Protocol):
    """What a sink has of one partition's log: enough to check that Kafka still has the same log."""

    @property
    def offset_shift(self) -> int:
        """Offset in the tables minus offset in Kafka's log."""

    @property
    def leader_epoch(self) -> int | None:
        """The partition leader's epoch when the log was last seen to be the same; None: not known."""

    def fingerprint(self, offset: int) -> int | None:
        """``record_fingerprint`` of the record at Kafka's `offset`, as stored; None: it is not stored."""


class StoredLogs(Protocol):
    """What a sink has of the logs of one topic."""

    def stored_log(self, task: TaskId, partition: int) -> StoredLog: ...

    def check_state_topic(self, topic_id: str | None) -> None:
        """Pass when the stored records are of the topic incarnation `topic_id` (None: the cluster has no such topic),
        or when there are none. Raises ForeignCluster when they are of another incarnation."""


class SourceTask(Protocol):
    """One resumable part of a source. Not thread-safe."""

    @property
    def task_id(self) -> TaskId: ...

    def start(self, position: int | None) -> None:
        """Begin at `position`, the offset after the last one committed; None: from the earliest."""

    def poll(self, timeout_s: float) -> SourceBatch | None:
        """The next batch, or None when nothing came within `timeout_s` (bounded tasks: see `is_finished`)."""

    @property
    def is_finished(self) -> bool:
        """A bounded task has given everything up to the end it saw at start. A continuous task never has."""

    def close(self) -> None:
        """Close connections. Not guaranteed to be called: state must be in the positions."""


class Source(Protocol):
    """Where batches come from."""

    def tasks(self) -> Sequence[SourceTask]:
        """The tasks as of now. Raises Unreachable or NotAuthorized when the source cannot be asked."""

    def close(self) -> None: ...


class Sink(Protocol):
    """Where batches go. One writer at a time per task id; a second one fails with ConcurrentCommit."""

    def position(self, task: TaskId) -> int | None:
        """The position of `task` as of the last commit; None when it never committed."""

    def put(self, batch: SourceBatch) -> None:
        """Take a batch; it is safe only after the next flush."""

    @property
    def pending_rows(self) -> int:
        """Rows put since the last flush."""

    def flush(self) -> Commit:
        """Commit everything put so far with its positions, or nothing. Raises ConcurrentCommit when another writer
        moved one of the positions; nothing of this flush landed."""
