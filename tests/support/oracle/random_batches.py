"""State batches and records of any kind, such as no broker would write, too."""

from __future__ import annotations

import random

from jobs.world import batch, snapshot, update

from acktrail.model.batches import StateBatch
from acktrail.model.records import StateRecord, Tombstone
from acktrail.model.share_partition import SharePartition

__all__ = ["random_batches", "random_record"]


def random_batches(source: random.Random, *, width: int, longest: int) -> tuple[StateBatch, ...]:
    """A few batches in any order, overlapping or not, that begin below `width` and are at most `longest` long."""
    found = []
    for _ in range(source.choice((0, 1, 1, 2, 3, 5))):
        first = source.randrange(width)
        last = first + source.randrange(longest)
        found.append(batch(first, last, source.choice((0, 1, 2, 3, 4)), source.randrange(1, 6)))
    return tuple(found)


def random_record(source: random.Random, key: SharePartition) -> StateRecord:
    """Mostly updates, some snapshots, few tombstones."""
    kind = source.random()
    if kind < 0.02:
        return Tombstone(key=key)
    start, found = source.choice((None, source.randrange(150))), random_batches(source, width=200, longest=40)
    fields = {
        "snapshot_epoch": source.randrange(9),
        "delivery_complete_count": source.choice((None, source.randrange(50))),
    }
    if kind < 0.1:
        epochs = {"state_epoch": source.randrange(5), "leader_epoch": source.randrange(5)}
        return snapshot(key, start, found, create_timestamp_ms=1, write_timestamp_ms=2, **epochs, **fields)
    return update(key, start, None, found, leader_epoch=source.choice((None, source.randrange(5))), **fields)
