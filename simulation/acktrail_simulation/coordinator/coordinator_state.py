"""What a share coordinator holds in memory; it changes by loading a record and in no other way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from acktrail.format.wire.primitives import absent_if_none
from acktrail.model.records import RecordAt, ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.replay import SharePartitionState, advance
from acktrail.model.share_partition import SharePartition


@dataclass(slots=True, kw_only=True)
class ShareCoordinatorState:
    """Kafka's ``ShareCoordinatorShard`` with its ``ShareCoordinatorOffsetsManager``.

    `leader_epochs` and `state_epochs` are the highest ever seen since the log's start: they fence requests, never
    records. `update_counts`: updates since a snapshot that came when the limit was reached; other snapshots leave it.
    `snapshot_offsets`: where each live key's newest snapshot lies. `needed_from`: the earliest offset that a reload
    needs; None until the first snapshot.
    """

    updates_per_snapshot: int
    states: dict[SharePartition, SharePartitionState] = field(default_factory=dict)
    leader_epochs: dict[SharePartition, int] = field(default_factory=dict)
    state_epochs: dict[SharePartition, int] = field(default_factory=dict)
    update_counts: dict[SharePartition, int] = field(default_factory=dict)
    snapshot_offsets: dict[SharePartition, int] = field(default_factory=dict)
    needed_from: int | None = None

    @classmethod
    def loaded(cls, log: Iterable[RecordAt[StateRecord]], *, updates_per_snapshot: int) -> ShareCoordinatorState:
        """The memory of a coordinator that starts with `log`."""
        memory = cls(updates_per_snapshot=updates_per_snapshot)
        for placed in log:
            memory.load(placed.offset, placed.record)
        return memory

    def load(self, offset: int, record: StateRecord) -> None:
        """Take in the record at `offset`; offsets grow from call to call."""
        advance(self.states, record)
        match record:
            case Tombstone():
                self._forget(record.key, offset)
            case ShareSnapshot():
                self._note_snapshot(record, offset)
            case ShareUpdate():
                _raise_to(self.leader_epochs, record.key, absent_if_none(record.leader_epoch))
                self.update_counts[record.key] = self.update_counts.get(record.key, 0) + 1

    def is_due_for_snapshot(self, key: SharePartition) -> bool:
        """Whether the next write of `key` is a snapshot: at limit 0 every write is one."""
        return self.update_counts.get(key, 0) >= self.updates_per_snapshot

    def _note_snapshot(self, record: ShareSnapshot, offset: int) -> None:
        key = record.key
        _raise_to(self.leader_epochs, key, record.leader_epoch)
        _raise_to(self.state_epochs, key, record.state_epoch)
        if key in self.update_counts and self.is_due_for_snapshot(key):
            self.update_counts[key] = 0
        self.snapshot_offsets[key] = offset
        self.needed_from = min(self.snapshot_offsets.values())

    def _forget(self, key: SharePartition, offset: int) -> None:
        for held in (self.leader_epochs, self.state_epochs, self.update_counts):
            held.pop(key, None)
        # Up to its tombstone the key holds the log; after it, it has no say.
        self.snapshot_offsets[key] = offset
        self.needed_from = min(self.snapshot_offsets.values())
        del self.snapshot_offsets[key]


def _raise_to(highest: dict[SharePartition, int], key: SharePartition, epoch: int) -> None:
    highest[key] = max(highest.get(key, epoch), epoch)
