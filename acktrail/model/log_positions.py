"""An exported log: which log it is, how far it was read, and why offsets are missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NewType

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
