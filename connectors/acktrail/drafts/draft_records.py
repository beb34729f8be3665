"""Records of the drafted generations, as values.

Generations ii and i are control records among the user's data and know no topic: the topic partition they lie on is
theirs. Generation iii and iv are records of the state topic. None of them was ever written by a released broker.
"""

from __future__ import annotations

from dataclasses import dataclass

from acktrail.model.delivery import StateBatch
from acktrail.model.records import Tombstone
from acktrail.model.share_partition import GroupId, SharePartition


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
class Checkpoint:
    """Generation iii: the complete state of a share partition (``ShareCheckpoint``)."""

    key: SharePartition
    checkpoint_epoch: int
    start_offset: int | None
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """Generation iii: what changed since the checkpoint of that epoch (``ShareDelta``).

    `delta_index` (0 to 255) is part of the key and only keeps the keys apart under compaction. `start_offset` None:
    unchanged.
    """

    key: SharePartition
    delta_index: int
    checkpoint_epoch: int
    start_offset: int | None
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTombstone:
    """Generation iii: the share partition left its group; written before the tombstones of its deltas."""

    key: SharePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaTombstone:
    """Generation iii: one delta key of a share partition that left."""

    key: SharePartition
    delta_index: int


CheckpointRecord = Checkpoint | Delta | CheckpointTombstone | DeltaTombstone


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSnapshot:
    """Generation iv: the complete state (``ShareSnapshot`` before Kafka 4.0).

    `state_epoch` None: the record was written by the JSON schema of the document, which has none.
    """

    key: SharePartition
    state_epoch: int | None
    snapshot_epoch: int
    start_offset: int | None
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftUpdate:
    """Generation iv: what changed since the snapshot of that epoch (``ShareUpdate`` before Kafka 4.0).

    `start_offset` None: unchanged. `state_epoch` None: as for `DraftSnapshot`.
    """

    key: SharePartition
    state_epoch: int | None
    snapshot_epoch: int
    start_offset: int | None
    batches: tuple[StateBatch, ...]


DraftRecord = DraftSnapshot | DraftUpdate | Tombstone
