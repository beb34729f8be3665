"""A state topic as a busy cluster has it: 2,000 share partitions, updates with a few batches, a snapshot every 500."""

from __future__ import annotations

import random
from collections.abc import Iterator

from acktrail.format.wire.state_record import encode
from acktrail.model.batches import StateBatch
from acktrail.model.records import ShareSnapshot, ShareUpdate
from acktrail.model.share_partition import GroupId, SharePartition, state_partition_of, topic_id_text

SHARE_PARTITIONS = 2_000
UPDATES_PER_SNAPSHOT = 500


def state_records(count: int, *, partitions: int, seed: int = 7) -> Iterator[tuple[int, bytes, bytes | None]]:
    """`count` records as (state partition, key, value), about 130 bytes each; the same for the same seed."""
    random_source = random.Random(seed)
    keys = [
        SharePartition(
            group_id=GroupId(f"group-{index % 97:02d}-{'x' * (index % 23)}"),
            topic_id=topic_id_text(random_source.randbytes(16)),
            partition=index % 12,
        )
        for index in range(SHARE_PARTITIONS)
    ]
    homes = [state_partition_of(key, partitions) for key in keys]
    starts = [0] * SHARE_PARTITIONS
    updates = [0] * SHARE_PARTITIONS
    for number in range(count):
        index = random_source.randrange(SHARE_PARTITIONS) if number >= SHARE_PARTITIONS else number
        starts[index] += random_source.randrange(60)
        record = _record(keys[index], starts[index], updates[index], random_source)
        updates[index] += 1
        key, value = encode(record)
        yield homes[index], key, value


def _record(key: SharePartition, start: int, updates: int, random_source: random.Random) -> ShareSnapshot | ShareUpdate:
    batches = _batches(start, random_source)
    epoch, since = divmod(updates, UPDATES_PER_SNAPSHOT)
    if since == 0:
        return ShareSnapshot(
            key=key,
            snapshot_epoch=epoch,
            state_epoch=2,
            leader_epoch=0,
            start_offset=start,
            delivery_complete_count=sum(b.last_offset - b.first_offset + 1 for b in batches if b.is_terminal),
            create_timestamp_ms=1_790_000_000_000,
            write_timestamp_ms=1_790_000_000_000,
            batches=batches,
        )
    return ShareUpdate(
        key=key,
        snapshot_epoch=epoch,
        leader_epoch=0,
        start_offset=start,
        delivery_complete_count=sum(b.last_offset - b.first_offset + 1 for b in batches if b.is_terminal),
        batches=batches,
    )


def _batches(start: int, random_source: random.Random) -> tuple[StateBatch, ...]:
    found, position = [], start
    for _ in range(random_source.choice((1, 1, 2, 2, 3, 4, 6))):
        first = position + random_source.randrange(3)
        last = first + random_source.randrange(40)
        state = random_source.choice((2, 2, 2, 0, 4))
        found.append(StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=1))
        position = last + 1
    return tuple(found)
