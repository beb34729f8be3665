"""What is known of one share partition in one observation: what was replayed, and what its cluster said twice."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from acktrail.model.replay import SharePartitionState

__all__ = ["Completeness", "DescribedPartition", "ReconciliationInput", "TopicStatus"]


class Completeness(StrEnum):
    """How far a replayed state can be relied on."""

    COMPLETE = "complete"
    NO_SNAPSHOT = "no_snapshot"
    """Only updates were seen. A broker that loads the same log has the same state; its state epoch is not known."""
    GAP = "gap"
    """Records were pruned before they were exported, and no snapshot came after them."""
    UNREADABLE = "unreadable"
    """A record of the share partition could not be decoded, and no snapshot came after it."""


class TopicStatus(StrEnum):
    """What is known of a topic id."""

    PRESENT = "present"
    DELETED = "deleted"
    RECREATED = "recreated"
    """Another id has the name now."""
    NOT_AUTHORIZED = "not_authorized"
    """It is there, and this principal may not DESCRIBE it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedPartition:
    """What the cluster said of one share partition at one side of an observation.

    `is_listed`: its group described it. `start_offset` None: not initialized; `lag` None: not known. `error`: why the
    description failed. `is_group_present` None: the group could not be asked. `is_authorized` False: for want of a
    right. Log offsets None: not known.
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
    """Everything known of one share partition in one observation.

    `durable` None: no state, or deleted. `incomplete`: why the durable side cannot be relied on; None when it can.
    `topic_status` None: no topic of this id was ever seen. `was_initialized`: the newest initialization (first or by
    reset) was written after the `before` sample.
    """

    durable: SharePartitionState | None
    before: DescribedPartition
    after: DescribedPartition
    topic_status: TopicStatus | None = TopicStatus.PRESENT
    incomplete: str | None = None
    was_initialized: bool = False

    @property
    def log_start_offset(self) -> int | None:
        """The newest log start known."""
        after = self.after.log_start_offset
        return self.before.log_start_offset if after is None else after

    @property
    def log_end_offset(self) -> int | None:
        """The newest log end known."""
        after = self.after.log_end_offset
        return self.before.log_end_offset if after is None else after
