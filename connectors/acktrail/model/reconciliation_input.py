"""One share partition in one observation: the replayed state, and its description before and after the export."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from acktrail.model.replay import SharePartitionState


class Completeness(StrEnum):
    """Whether a replayed state is reliable."""

    COMPLETE = "complete"
    NO_SNAPSHOT = "no_snapshot"
    """Only updates were seen. A broker that loads the same log has the same state; its state epoch is not known."""
    GAP = "gap"
    """Records were pruned before they were exported, and no snapshot came after them."""
    UNREADABLE = "unreadable"
    """A record of the share partition could not be decoded, and no snapshot came after it."""


class TopicStatus(StrEnum):
    """The status of a topic id in its cluster."""

    PRESENT = "present"
    DELETED = "deleted"
    RECREATED = "recreated"
    """The name belongs to another id now."""
    NOT_AUTHORIZED = "not_authorized"
    """It exists, but this principal may not DESCRIBE it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedPartition:
    """One share partition as its cluster described it, before or after the export (Kafka: DescribeShareGroupOffsets).

    `is_listed`: its group described it. `start_offset` None: not initialized; `lag` None: not known. `error`: why the
    description failed. `is_group_present` None: the group could not be queried. `is_authorized` False: a right was
    missing. Log offsets None: not known.
    """

    is_listed: bool
    start_offset: int | None = None
    lag: int | None = None
    error: str | None = None
    is_group_present: bool | None = True
    is_authorized: bool = True
    log_start_offset: int | None = None
    log_end_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationInput:
    """Everything that the verdict on one share partition depends on.

    `durable` None: no state, or deleted. `incomplete`: why the durable state is not reliable; None when it is.
    `topic_status` None: no topic of this id was ever seen. `was_initialized`: the newest initialization (first or by
    reset) was written after the `before` description.
    """

    durable: SharePartitionState | None
    before: DescribedPartition
    after: DescribedPartition
    topic_status: TopicStatus | None = TopicStatus.PRESENT
    incomplete: str | None = None
    was_initialized: bool = False

    @property
    def log_start_offset(self) -> int | None:
        """The newest known log start offset."""
        after = self.after.log_start_offset
        return self.before.log_start_offset if after is None else after

    @property
    def log_end_offset(self) -> int | None:
        """The newest known log end offset."""
        after = self.after.log_end_offset
        return self.before.log_end_offset if after is None else after
