"""What a share group's configuration says to the leaders of its share partitions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import ceil


class OffsetReset(StrEnum):
    """``share.auto.offset.reset``: where a share partition begins that was never initialized."""

    LATEST = "latest"
    EARLIEST = "earliest"
    BY_DURATION = "by_duration"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupSettings:
    """Kafka's defaults.

    `delivery_count_limit`: attempts after which a record is archived. `record_lock_duration_ms`: how long a member
    keeps what it acquired. `max_record_locks`: records between start and end offset; a soft limit.
    `reset_duration_ms`: how far back ``by_duration`` reaches. `dead_letter_queue`: rejected and worn-out records are
    archiving until they are in the queue (KIP-1191).
    """

    delivery_count_limit: int = 5
    record_lock_duration_ms: int = 30_000
    max_record_locks: int = 2_000
    offset_reset: OffsetReset = OffsetReset.LATEST
    reset_duration_ms: int = 0
    renew_enabled: bool = True
    dead_letter_queue: bool = False

    @property
    def throttle_from(self) -> int:
        """The delivery count from which records come in smaller and smaller batches, so that one bad record does not
        wear out its neighbours.
        """
        return max(2, ceil(self.delivery_count_limit / 2))
