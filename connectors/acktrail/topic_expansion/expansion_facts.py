"""What a plan is made from: the topic and the groups that read it, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FirstPosition(StrEnum):
    """Where a group begins in a partition in which it has no position."""

    EARLIEST = "earliest"
    LATEST = "latest"
    BY_DURATION = "by_duration"
    IN_CLIENTS = "in_clients"
    """Its clients choose (``auto.offset.reset``): Kafka does not know."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPartition:
    """What a group has not finished in one partition: its lag, of a share group as the broker counts it, of others from
    the committed offset `position` to the end of the log. None: not known."""

    partition: int
    position: int | None
    log_end: int | None
    open_records: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOnTopic:
    """A group that has a position in the topic. `open_records` counts the partitions where it is known; those with the
    most are in `partitions`; `left_off` counts the others with open records. `unknown` counts partitions whose
    position or log end is not known. `records_per_s` is how fast the group came forward by earlier looks; None: not
    known."""

    group_id: str
    group_type: str
    is_ordered: bool
    begins_at: FirstPosition
    open_records: int
    unknown: int
    partitions: tuple[OpenPartition, ...]
    left_off: int
    records_per_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandedTopic:
    """The topic as it is now. `may_alter`, `is_compacted` None: the cluster does not say. Whether the
    `groups_not_asked` read it is not known."""

    cluster_id: str
    release: str
    topic: str
    topic_id: str
    is_internal: bool
    partition_count: int
    may_alter: bool | None
    is_compacted: bool | None
    groups: tuple[GroupOnTopic, ...]
    groups_not_asked: tuple[str, ...] = ()
