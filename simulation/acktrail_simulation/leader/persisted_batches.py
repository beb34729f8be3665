"""The part of a leader's memory that is written: all but locks."""

from __future__ import annotations

from collections.abc import Iterable

from acktrail.model.batches import DeliveryState, StateBatch


def durable_batches(live: Iterable[StateBatch]) -> tuple[StateBatch, ...]:
    """`live` batches as a checkpoint holds them: acquired with count n becomes available with count n - 1.

    A crash of the leader forgets the attempts under way, so durable counts are a lower bound. Neighbours are not
    joined. Kafka: ``SharePartition`` persists no acquired state.
    """
    return tuple(_unlocked(batch) for batch in live)


def _unlocked(batch: StateBatch) -> StateBatch:
    if batch.delivery_state != DeliveryState.ACQUIRED:
        return batch
    return StateBatch(
        first_offset=batch.first_offset,
        last_offset=batch.last_offset,
        delivery_state=DeliveryState.AVAILABLE,
        delivery_count=max(0, batch.delivery_count - 1),
    )
