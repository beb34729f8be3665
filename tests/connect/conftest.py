"""Records to move."""

from __future__ import annotations

import pytest

from acktrail.format.wire.dialects import encode
from acktrail.model.batches import StateBatch
from acktrail.model.records import ShareSnapshot, ShareUpdate, Tombstone
from acktrail.model.share_partition import GroupId, SharePartition, TopicId

Pair = tuple[bytes | None, bytes | None]


@pytest.fixture
def pairs() -> list[Pair]:
    """Seven records: a snapshot, four updates, a tombstone, and one that cannot be read."""
    key = SharePartition(group_id=GroupId("g"), topic_id=TopicId("AQIDBAUGBwgJCgsMDQ4PEA"), partition=0)
    batches = (StateBatch(first_offset=0, last_offset=9, delivery_state=2, delivery_count=1),)
    snapshot = ShareSnapshot(
        key=key,
        snapshot_epoch=1,
        state_epoch=1,
        leader_epoch=0,
        start_offset=0,
        delivery_complete_count=10,
        create_timestamp_ms=1,
        write_timestamp_ms=2,
        batches=batches,
    )
    update = ShareUpdate(
        key=key, snapshot_epoch=1, leader_epoch=None, start_offset=5, delivery_complete_count=None, batches=batches
    )
    return [encode(snapshot), *[encode(update)] * 4, encode(Tombstone(key=key)), (b"\x00\x09", b"")]
