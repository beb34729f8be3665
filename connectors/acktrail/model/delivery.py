"""Delivery states and batches of offsets that share one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class DeliveryState(IntEnum):
    """The delivery state of a record within one group (Kafka: ``RecordState``)."""

    AVAILABLE = 0
    ACQUIRED = 1
    """An in-memory lock; the broker never persists it."""
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """Waiting for the dead letter queue (KIP-1191, Kafka 4.4)."""
    ARCHIVED = 4


TERMINAL_STATES: Final = frozenset({DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED})
"""States that never change again and count as complete. Archiving is not one of them."""

DURABLE_STATES: Final = frozenset(
    {DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVING, DeliveryState.ARCHIVED}
)

HIGHEST_DELIVERY_COUNT: Final = 25
"""The highest that ``group.share.max.delivery.count.limit`` can be set to: no configuration allows more deliveries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBatch:
    """Offsets `first_offset` to `last_offset`, both inclusive, in one delivery state with one delivery count.

    `delivery_state` stays a plain integer: numbers that no release defines yet pass through unchanged
    (Kafka: ``PersisterStateBatch``).
    """

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int

    @property
    def is_terminal(self) -> bool:
        return self.delivery_state in TERMINAL_STATES


def covered(batch: StateBatch, start_offset: int | None) -> int:
    """How many offsets of `batch` lie at or above `start_offset` (all of them when it is unknown)."""
    first = batch.first_offset if start_offset is None else max(batch.first_offset, start_offset)
    return max(0, batch.last_offset - first + 1)


def state_name(number: int) -> str:
    """The delivery state's name in lower case, or ``state-N`` for a number no release defines."""
    try:
        return DeliveryState(number).name.lower()
    except ValueError:
        return f"state-{number}"
