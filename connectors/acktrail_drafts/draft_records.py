"""Records of the drafted generations, as values.

Generations ii and i are control records among the user's data and know no topic: the topic partition they lie on is
theirs. Generation iii and iv are records of the state topic. None of them was ever written by a released broker. The
state after some records is the complete record that could stand for them.
"""

from __future__ import annotations

from dataclasses import dataclass

from acktrail.model.delivery import StateBatch
from acktrail.model.records import Tombstone
from acktrail.model.share_partition import GroupId, SharePartition
from acktrail_drafts.offset_window import OffsetWindow, effective_window


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlCheckpoint:
    """Generations ii and i: the complete state of one group (``SHARE_CHECKPOINT``, control type 5).

    `end_offset` is exclusive: one past the last offset fetched.
    """

    group_id: GroupId
    checkpoint_epoch: int
    start_offset: int
    end_offset: int
    batches: tuple[StateBatch, ...]

    @property
    def window(self) -> OffsetWindow:
        """Where delivery continues."""
        return effective_window(self.start_offset, self.batches, end_offset=self.end_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlDelta:
    """Generations ii and i: what changed (``SHARE_DELTA``, control type 6). It carries no start offset.

    `back_offset` is where the group's preceding control record lies (generation ii); None in generation i.
    """

    group_id: GroupId
    checkpoint_epoch: int
    back_offset: int | None
    batches: tuple[StateBatch, ...]


ControlRecord = ControlCheckpoint | ControlDelta


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfSharePartition:
    """`start_offset` None: not initialised, or unchanged."""

    key: SharePartition
    start_offset: int | None
    batches: tuple[StateBatch, ...]

    @property
    def window(self) -> OffsetWindow:
        """Where delivery continues; its end is a lower bound, since these records have no end offset."""
        return effective_window(self.start_offset, self.batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(_OfSharePartition):
    """Generation iii: the complete state of a share partition (``ShareCheckpoint``)."""

    checkpoint_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta(_OfSharePartition):
    """Generation iii: what changed since the checkpoint of that epoch (``ShareDelta``).

    `delta_index` (0 to 255) is part of the key and only keeps the keys apart under compaction.
    """

    delta_index: int
    checkpoint_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaTombstone:
    """Generation iii: one delta key of a share partition that left."""

    key: SharePartition
    delta_index: int


CheckpointRecord = Checkpoint | Delta | Tombstone | DeltaTombstone
"""A `Tombstone` stands for the checkpoint: the share partition left its group. It comes before those of the deltas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSnapshot(_OfSharePartition):
    """Generation iv: the complete state (``ShareSnapshot`` before Kafka 4.0).

    `state_epoch` None: the record was written by the JSON schema of the document, which has none.
    """

    state_epoch: int | None
    snapshot_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftUpdate(_OfSharePartition):
    """Generation iv: what changed since the snapshot of that epoch (``ShareUpdate`` before Kafka 4.0)."""

    state_epoch: int | None
    snapshot_epoch: int


DraftRecord = DraftSnapshot | DraftUpdate | Tombstone
