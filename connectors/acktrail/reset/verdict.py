"""What the state topic says became of a reset of one share partition. Pure.

A reset is one snapshot record: the new start offset, no batches, leader epoch 0, delivery complete count 0 or not
known, written when it was created, a higher snapshot epoch. A snapshot that a quiet shard writes later has another
create time and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from acktrail.broker.changes import Outcome
from acktrail.model.records import ShareSnapshot, StateRecord, Tombstone
from acktrail.reset.facts import PartitionState

__all__ = ["Finding", "Status", "find"]


class Status(StrEnum):
    """What became of one share partition."""

    OK = "OK"
    OK_EPOCH_NOT_BUMPED = "OK_EPOCH_NOT_BUMPED"
    """Done, with the same state epoch as before, as Kafka up to 4.4 does it."""
    OK_BY_DESCRIPTION = "OK_BY_DESCRIPTION"
    """The broker describes the target; the state topic was not read."""
    FAILED = "FAILED"
    """The broker refused it."""
    NOT_ATTEMPTED = "NOT_ATTEMPTED"
    """It was not sent, or the answer did not mention it, and it is not there."""
    LEFT_OUT = "LEFT_OUT"
    """A rule forbids it, and the rest was sent without it: nothing was changed."""
    NOT_PERSISTED = "NOT_PERSISTED"
    """The broker said done, and the state topic shows nothing of it."""
    OVERWRITTEN_AFTER_RESET = "OVERWRITTEN_AFTER_RESET"
    """It was there, and something else is there now, although the group is empty."""
    EPOCH_WENT_BACK = "EPOCH_WENT_BACK"
    """The state epoch is lower than before: critical, whatever the start offset."""
    UNKNOWN = "UNKNOWN"
    """Nobody can say."""

    @property
    def is_ok(self) -> bool:
        return self in (Status.OK, Status.OK_EPOCH_NOT_BUMPED, Status.OK_BY_DESCRIPTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`evidence` is (state partition, offset) of the record that shows it; `reset_epoch` the state epoch that the reset
    wrote, which is the group's epoch at that moment."""

    status: Status
    evidence: tuple[int, int] | None = None
    reset_epoch: int | None = None
    moved_on: bool = False
    """The group went to work again since: what came after the reset is its own."""


Seen = tuple[tuple[int, int], StateRecord]
"""A record and where it stands: state partition, offset."""


def find(
    target: int,
    *,
    before: PartitionState | None,
    records: Sequence[Seen],
    now: PartitionState | None,
    outcome: Outcome,
    is_complete: bool = True,
) -> Finding:
    """What became of a reset to `target`.

    `records` are those of the share partition since the change was sent, in order, all of them when `is_complete`;
    where they are not, `now` decides, its state. `outcome` is what the broker said.
    """
    for index, (where, record) in enumerate(records):
        if not _is_reset_to(target, record, before):
            continue
        epoch = record.state_epoch if isinstance(record, ShareSnapshot) else None
        later = next((place for place, seen in records[index + 1 :] if _contradicts(target, seen)), None)
        status = _by_state_epoch(before, epoch) if later is None else Status.OVERWRITTEN_AFTER_RESET
        return Finding(status=status, evidence=later or where, reset_epoch=epoch)
    if not is_complete and now is not None and _is_newer(now, before):
        where = (now.state_partition, now.record_offset)
        if now.start_offset == target and not now.batches:
            return Finding(status=_by_state_epoch(before, now.state_epoch), evidence=where)
        if not _is_same(now, before):
            replaced = Status.OVERWRITTEN_AFTER_RESET if outcome is Outcome.DONE else Status.UNKNOWN
            return Finding(status=replaced, evidence=where)
    return Finding(status=_NOT_THERE[outcome])


_NOT_THERE = {
    Outcome.DONE: Status.NOT_PERSISTED,
    Outcome.REFUSED: Status.FAILED,
    Outcome.NOT_ATTEMPTED: Status.NOT_ATTEMPTED,
    Outcome.UNKNOWN: Status.NOT_ATTEMPTED,
}


def _is_reset_to(target: int, record: StateRecord, before: PartitionState | None) -> bool:
    return (
        isinstance(record, ShareSnapshot)
        and record.start_offset == target
        and not record.batches
        and record.leader_epoch == 0
        and record.create_timestamp_ms == record.write_timestamp_ms
        and record.delivery_complete_count in (0, None)
        and (before is None or record.snapshot_epoch > before.snapshot_epoch)
    )


def _contradicts(target: int, record: StateRecord) -> bool:
    """Whether a later record says something else than a reset to `target`, while the group is empty."""
    if isinstance(record, Tombstone):
        return True
    return bool(record.batches) or record.start_offset not in (target, None)


def _is_newer(now: PartitionState, before: PartitionState | None) -> bool:
    return before is None or now.snapshot_epoch > before.snapshot_epoch


def _is_same(now: PartitionState, before: PartitionState | None) -> bool:
    """The same content, which a quiet shard writes again under the next snapshot epoch."""
    return before is not None and (now.start_offset, now.batches, now.state_epoch) == (
        before.start_offset,
        before.batches,
        before.state_epoch,
    )


def _by_state_epoch(before: PartitionState | None, state_epoch: int | None) -> Status:
    if before is None or before.state_epoch is None or state_epoch is None or state_epoch > before.state_epoch:
        return Status.OK
    return Status.OK_EPOCH_NOT_BUMPED if state_epoch == before.state_epoch else Status.EPOCH_WENT_BACK
