"""How each fault comes about: from a healthy share partition to the records that a state topic has after the fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from acktrail.format.wire.state_record import UPDATE_TYPE, encode, encode_key
from acktrail.model.batches import DeliveryState, StateBatch
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.replay import SharePartitionState
from acktrail.model.share_partition import GroupId, SharePartition, state_partition_of

UPDATES_PER_SNAPSHOT: Final = 500
"""``share.coordinator.snapshot.update.records.per.snapshot`` of a broker that was not configured."""
FLOOD: Final = 150
"""Records that a flood gives up."""
_STALE_MS: Final = 3_600_000
_AVAILABLE: Final = int(DeliveryState.AVAILABLE)
_ACQUIRED: Final = int(DeliveryState.ACQUIRED)
_ACKNOWLEDGED: Final = int(DeliveryState.ACKNOWLEDGED)
_ARCHIVING: Final = int(DeliveryState.ARCHIVING)
_ARCHIVED: Final = int(DeliveryState.ARCHIVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedRecord:
    """One record that is appended to the state topic, as bytes. `is_pruned`: Kafka removes it before it is read."""

    state_partition: int
    key: bytes
    value: bytes | None
    timestamp_ms: int
    is_pruned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTarget:
    """A healthy share partition, to which a fault happens: every record of its log is acknowledged.

    `state`: what its share coordinator holds; before a fault of a partition that was added, the state of another
    partition of the same topic. `partition`: the partition of the topic. `neighbours`: the states of all share
    partitions on its state partition, itself included.
    """

    state: SharePartitionState
    partition: int
    neighbours: tuple[SharePartitionState, ...]
    state_partitions: int
    log_end_offset: int
    now_ms: int

    @property
    def key(self) -> SharePartition:
        """The share partition."""
        return replace(self.state.key, partition=self.partition)

    @property
    def done(self) -> int:
        """The recorded delivery complete count."""
        return self.state.delivery_complete_count or 0

    @property
    def leader_epoch(self) -> int:
        """The recorded leader epoch, 0 where no update named one."""
        return self.state.leader_epoch or 0

    def update(self, **changes: Any) -> ShareUpdate:
        """An update that changes nothing else."""
        plain = ShareUpdate(
            key=self.key,
            snapshot_epoch=self.state.snapshot_epoch,
            leader_epoch=None,
            start_offset=None,
            delivery_complete_count=self.done,
            batches=(),
        )
        return replace(plain, **changes)

    def snapshot(self, **changes: Any) -> ShareSnapshot:
        """The next snapshot, of the same state unless `changes` say otherwise."""
        plain = next_snapshot(self.state, self.now_ms)
        return replace(replace(plain, key=self.key), **changes)

    def rewritten(self, *batches: StateBatch, start: int, done: int = 0) -> tuple[InjectedRecord, ...]:
        """A snapshot as of a leader that was initialized again: another start offset, and these `batches`."""
        return self.placed(self.snapshot(start_offset=start, delivery_complete_count=done, batches=batches))

    def placed(self, *records: StateRecord, on: int | None = None, age_ms: int = 0) -> tuple[InjectedRecord, ...]:
        """`records` where a coordinator puts them (or `on` another state partition), as old as `age_ms`."""
        found = []
        for record in records:
            place = state_partition_of(record.key, self.state_partitions) if on is None else on
            key, value = encode(record)
            found.append(InjectedRecord(state_partition=place, key=key, value=value, timestamp_ms=self.now_ms - age_ms))
        return tuple(found)


def next_snapshot(state: SharePartitionState, now_ms: int) -> ShareSnapshot:
    """The snapshot that a coordinator writes of `state` once it was not written for a while."""
    return ShareSnapshot(
        key=state.key,
        snapshot_epoch=state.snapshot_epoch + 1,
        state_epoch=state.state_epoch or 0,
        leader_epoch=state.leader_epoch or 0,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp_ms=min(state.create_timestamp_ms or now_ms, now_ms - 1),
        write_timestamp_ms=now_ms,
        batches=state.batches,
    )


def batch(first: int, last: int, state: int, count: int = 1) -> StateBatch:
    """Offsets `first` to `last` in one delivery state."""
    return StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)


Injection = Callable[[FaultTarget], tuple[InjectedRecord, ...]]


def start_offset_regression(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    """Two writes of a leader arrive in the wrong order: the older one moves the start offset back."""
    end = target.log_end_offset
    later, earlier = (target.update(start_offset=start, delivery_complete_count=0) for start in (end, end - 10))
    return target.placed(later, earlier)


def complete_count_regression(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    """The older of two writes brings its lower count."""
    return target.placed(target.update(delivery_complete_count=target.done - 7))


def overlapping_batches(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    """A leader that was initialized again writes batches that share offsets."""
    start = target.log_end_offset - 10
    return target.rewritten(batch(start, start + 5, _AVAILABLE), batch(start + 3, start + 9, _AVAILABLE), start=start)


def missed_snapshot(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    """Update after update, and the snapshot that is due does not come."""
    return target.placed(*[target.update()] * (UPDATES_PER_SNAPSHOT + 2))


def snapshot_epoch_jump(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    """A snapshot counts three on from the one before."""
    return target.placed(target.snapshot(snapshot_epoch=target.state.snapshot_epoch + 3))


def foreign_update_epoch(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    """An update belongs to a snapshot that is not there."""
    return target.placed(target.update(snapshot_epoch=target.state.snapshot_epoch + 1))


def state_epoch_regression(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    """A state epoch falls from one snapshot to the next."""
    epoch = target.snapshot().state_epoch
    first = target.snapshot(state_epoch=epoch + 2)
    second = target.snapshot(state_epoch=epoch + 1, snapshot_epoch=first.snapshot_epoch + 1)
    return target.placed(first, second)


def leader_epoch_regression(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    """A leader of the past writes after the present one."""
    epoch = target.leader_epoch
    return target.placed(*(target.update(leader_epoch=each) for each in (epoch + 4, epoch + 2)))


def orphan_state(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    """A group is gone, and its state stayed."""
    return target.placed(replace(target.snapshot(snapshot_epoch=0), key=deleted_group(target.key)))


def deleted_group(key: SharePartition) -> SharePartition:
    """The same share partition of a group that does not exist."""
    return replace(key, group_id=GroupId(f"{key.group_id} (deleted)"))


def stuck_archiving(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    """The newest record waits for the dead letter queue for an hour."""
    last = target.log_end_offset - 1
    waiting = target.update(batches=(batch(last, last, _ARCHIVING, 5),))
    return target.placed(waiting, age_ms=_STALE_MS)


def state_on_two_partitions(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    """A second coordinator writes state of the same share partition."""
    own = target.placed(target.update())
    return (*own, *target.placed(target.snapshot(snapshot_epoch=0), on=_another(target)))


def wrong_state_partition(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    """The number of partitions of the state topic changed: the state is where no coordinator looks for it."""
    return target.placed(target.snapshot(snapshot_epoch=0, state_epoch=1), on=_another(target))


def _another(target: FaultTarget) -> int:
    home = state_partition_of(target.key, target.state_partitions)
    return (home + 1) % target.state_partitions


def dlq_flood(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    """A consumer rejects each record that comes."""
    first = target.log_end_offset - FLOOD
    gone = tuple(batch(each, each + 9, _ARCHIVED) for each in range(first, target.log_end_offset, 10))
    counts = range(target.done + 10, target.done + FLOOD + 1, 10)
    return target.placed(
        *(target.update(delivery_complete_count=n, batches=(b,)) for n, b in zip(counts, gone, strict=True))
    )


def skipped_new_partition(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    """A partition is added to a topic that the group reads; records come before its state, which has no start."""
    first = target.snapshot(
        snapshot_epoch=0,
        state_epoch=(target.state.state_epoch or 0) + 2,
        leader_epoch=0,
        start_offset=None,
        delivery_complete_count=None,
        create_timestamp_ms=target.now_ms,
        batches=(),
    )
    return target.placed(first)


def missed_prune(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    """Every share partition of a state partition has a newer snapshot for an hour, and the log still begins below."""
    snapshots = (next_snapshot(state, target.now_ms - _STALE_MS) for state in target.neighbours)
    return target.placed(*snapshots, age_ms=_STALE_MS)


def start_past_log_end(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    """The topic lost records that the group had passed."""
    return target.placed(target.update(start_offset=target.log_end_offset + 10, delivery_complete_count=0))


def export_gap(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    """Snapshots make records redundant that were not exported yet, and the coordinator prunes them.

    Its own snapshot comes first and stays the newest one of its share partition. So it is where the log begins then,
    even where the others are followed by more snapshots, and those others are not lost, too.
    """
    lost = target.placed(*[target.update()] * 3)
    own_first = sorted(target.neighbours, key=lambda state: state.key != target.key)
    kept = target.placed(*(next_snapshot(state, target.now_ms) for state in own_first))
    return (*(replace(record, is_pruned=True) for record in lost), *kept)


def unreadable_record(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    """The value of an update is cut off."""
    (whole,) = target.placed(target.update())
    return (replace(whole, value=(whole.value or b"")[:3]),)


def unknown_record_type(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    """A newer broker wrote a type of record that this release does not know, and skips."""
    (known,) = target.placed(target.update())
    return (replace(known, key=b"\x00\x09" + encode_key(UPDATE_TYPE, target.key)[2:]),)


def inverted_batch(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    start = target.log_end_offset - 10
    return target.rewritten(batch(start + 4, start + 3, _AVAILABLE), start=start)


def batches_out_of_order(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    start = target.log_end_offset - 10
    later, earlier = batch(start + 5, start + 9, _AVAILABLE), batch(start, start + 4, _AVAILABLE, 2)
    return target.rewritten(later, earlier, start=start)


def batch_below_start(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    start = target.log_end_offset
    return target.rewritten(batch(start - 4, start - 1, _AVAILABLE), start=start)


def acquired_persisted(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    start = target.log_end_offset - 10
    return target.rewritten(batch(start, start + 9, _ACQUIRED), start=start)


def impossible_delivery_count(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    start = target.log_end_offset - 10
    return target.rewritten(batch(start, start + 9, _ACKNOWLEDGED, 60), start=start, done=10)


def uninitialized_with_batches(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    end = target.log_end_offset
    early = batch(end - 10, end - 1, _AVAILABLE)
    return target.placed(target.snapshot(start_offset=None, delivery_complete_count=None, batches=(early,)))


def update_without_snapshot(target: FaultTarget) -> tuple[InjectedRecord, ...]:
    return target.placed(Tombstone(key=target.key), target.update())
