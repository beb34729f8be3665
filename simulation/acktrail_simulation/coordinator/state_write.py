"""What a share-partition leader asks the share coordinator to write (``WriteShareGroupState``), as a value."""

from __future__ import annotations

from dataclasses import dataclass

from acktrail.model.batches import StateBatch
from acktrail.model.share_partition import SharePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class StateWrite:
    """One share partition of a write request. `start_offset` None: not written. `state_epoch` None: generation iii,
    which has none; `leader_epoch` None: the drafts, which have none; `delivery_complete_count` None: not known (before
    Kafka 4.2).
    """

    key: SharePartition
    state_epoch: int | None
    start_offset: int | None
    batches: tuple[StateBatch, ...]
    leader_epoch: int | None = None
    delivery_complete_count: int | None = None
