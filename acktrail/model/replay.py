"""Replay of state records (Kafka: ``ShareCoordinatorShard.replay``) on a broker; what a state leaves to do.

No epoch of any kind drops a record during replay: epochs fence requests, not records. A snapshot replaces the
state, an update is combined with it, an update without a state becomes the state, a tombstone removes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, replace

from acktrail.model.batches import StateBatch, combine_state_batches, covered, end_offset, first_unfinished_offset
from acktrail.model.records import ShareSnapshot, StateRecord, Tombstone
from acktrail.model.share_partition import SharePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionState:
    """The share coordinator's state of one share partition (Kafka: ``ShareGroupOffset``).

    `state_epoch` None: only updates were seen, no snapshot. `start_offset` None: not initialized.
    `delivery_complete_count` None: not known. Batches are ascending and disjoint unless a lone snapshot or a baseless
    update wrote them otherwise.
    """

    key: SharePartition
    snapshot_epoch: int
    state_epoch: int | None
    leader_epoch: int | None
    start_offset: int | None
    delivery_complete_count: int | None
    batches: tuple[StateBatch, ...]
    create_timestamp_ms: int | None = None
    write_timestamp_ms: int | None = None

    @property
    def first_unfinished_offset(self) -> int | None:
        """As ``batches.first_unfinished_offset``."""
        return first_unfinished_offset(self.start_offset, self.batches)

    @property
    def end_offset(self) -> int | None:
        """As ``batches.end_offset``."""
        return end_offset(self.start_offset, self.batches)


def apply(state: SharePartitionState | None, record: StateRecord) -> SharePartitionState | None:
    """The state after `record`; None when there is none (a tombstone). Cost: that of the combiner.

    The delivery complete count of an update replaces the one before, also when unknown; the start offset may go back:
    replay takes no maximum (Kafka's writers from 4.4 on do).
    """
    if isinstance(record, Tombstone):
        return None
    snapshot = record if isinstance(record, ShareSnapshot) else None
    if isinstance(record, ShareSnapshot) or state is None:
        return SharePartitionState(
            key=record.key,
            snapshot_epoch=record.snapshot_epoch,
            state_epoch=None if snapshot is None else snapshot.state_epoch,
            leader_epoch=record.leader_epoch,
            start_offset=record.start_offset,
            delivery_complete_count=record.delivery_complete_count,
            batches=record.batches,
            create_timestamp_ms=None if snapshot is None else snapshot.create_timestamp_ms,
            write_timestamp_ms=None if snapshot is None else snapshot.write_timestamp_ms,
        )
    start_offset = state.start_offset if record.start_offset is None else record.start_offset
    return replace(
        state,
        leader_epoch=state.leader_epoch if record.leader_epoch is None else record.leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=record.delivery_complete_count,
        batches=combine_state_batches(state.batches, record.batches, start_offset),
    )


def replay(records: Iterable[StateRecord]) -> dict[SharePartition, SharePartitionState]:
    """The state of every share partition after `records`, which are in log order for each share partition."""
    states: dict[SharePartition, SharePartitionState] = {}
    for record in records:
        advance(states, record)
    return states


def advance(states: MutableMapping[SharePartition, SharePartitionState], record: StateRecord) -> None:
    """Apply one record to a map of states in place."""
    after = apply(states.get(record.key), record)
    if after is None:
        states.pop(record.key, None)
    else:
        states[record.key] = after


def unfinished_records(
    state: SharePartitionState, log_start_offset: int | None, log_end_offset: int | None
) -> int | None:
    """Records that can still be delivered: from the start offset or the log start, whichever is later, to the log end,
    without those in a terminal state.

    Unlike the lag it counts no record that retention has taken, and needs no complete count. None when an offset is not
    known; never negative.
    """
    if log_start_offset is None or log_end_offset is None or state.start_offset is None:
        return None
    first = max(state.start_offset, log_start_offset)
    batches = combine_state_batches(state.batches, (), first)
    done = sum(max(0, min(b.last_offset, log_end_offset - 1) - b.first_offset + 1) for b in batches if b.is_terminal)
    return max(0, log_end_offset - first - done)


def counts_by_state(state: SharePartitionState) -> Counter[int]:
    """Offsets at or above the start offset by the delivery state that they are in, each counted once."""
    counts: Counter[int] = Counter()
    for batch in combine_state_batches(state.batches, (), state.start_offset):
        counts[batch.delivery_state] += covered(batch, state.start_offset)
    return counts
