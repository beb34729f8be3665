"""Records of ``__share_group_state``, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from acktrail.model.batches import StateBatch
from acktrail.model.share_partition import SharePartition

RecordT_co = TypeVar("RecordT_co", covariant=True)
LEAST_OFFSET: Final = 0
GREATEST_OFFSET: Final = (1 << 63) - 2
"""The offset after the last one of a batch is an int64, too."""
_NO_EPOCH: Final = -1
"""Kafka's sentinel of an epoch that is not known, or not to be checked."""
LEAST_VALUES: Final[Mapping[str, int]] = {
    "state_epoch": _NO_EPOCH,
    "leader_epoch": _NO_EPOCH,
    "start_offset": LEAST_OFFSET,
    **dict.fromkeys(("partition", "snapshot_epoch", "delivery_complete_count"), 0),
    **dict.fromkeys(("create_timestamp_ms", "write_timestamp_ms"), 0),
}
"""The least value that a broker writes into each numeric field of a record; a field that is absent (-1) is None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSnapshot:
    """The complete state of a share partition (Kafka: ``ShareSnapshotValue``).

    `start_offset` None: not initialized yet. `delivery_complete_count` None: not known (written before Kafka 4.2).
    Times in ms since the epoch; None where the dialect has none.
    """

    key: SharePartition
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int | None
    delivery_complete_count: int | None
    create_timestamp_ms: int | None
    write_timestamp_ms: int | None
    batches: tuple[StateBatch, ...]

    @property
    def is_initialization(self) -> bool:
        """Whether an initialization or a reset wrote it: no batches, leader epoch 0, both timestamps equal.

        Up to Kafka 4.4 two resets in a row share a state epoch.
        """
        is_new = self.create_timestamp_ms is not None and self.create_timestamp_ms == self.write_timestamp_ms
        return is_new and self.leader_epoch == 0 and not self.batches


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareUpdate:
    """What changed since the snapshot with `snapshot_epoch` (Kafka: ``ShareUpdateValue``). It has no state epoch.

    `start_offset` and `leader_epoch` None: unchanged. `delivery_complete_count` None: not known from here on.
    """

    key: SharePartition
    snapshot_epoch: int
    leader_epoch: int | None
    start_offset: int | None
    delivery_complete_count: int | None
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """The share partition's state was deleted: a snapshot key with a null value."""

    key: SharePartition


StateRecord = ShareSnapshot | ShareUpdate | Tombstone


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordAt(Generic[RecordT_co]):
    """A record and its address: partition of its topic, offset in that partition."""

    partition: int
    offset: int
    record: RecordT_co
