"""Parts that several JSON documents share."""

from __future__ import annotations

from acktrail.model.delivery import StateBatch
from acktrail.model.share_partition import SharePartition


def key_form(share_partition: SharePartition) -> dict[str, object]:
    """Group, topic id and partition."""
    return {
        "group": share_partition.group_id,
        "topic_id": share_partition.topic_id,
        "partition": share_partition.partition,
    }


def batches_form(batches: tuple[StateBatch, ...]) -> list[list[int]]:
    """``[first, last, delivery_state, delivery_count]`` for each batch."""
    return [[b.first_offset, b.last_offset, b.delivery_state, b.delivery_count] for b in batches]
