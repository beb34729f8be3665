"""What epochs and start offset of one key must do from record to record, in generation iv and shipped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from acktrail.model.strict.violations import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """The numbers of a record or state that must not go back. None: the record has no such field, or says unchanged.

    `is_fresh`: a snapshot without batches, as an initialise or a reset writes it.
    """

    snapshot_epoch: int
    state_epoch: int | None
    leader_epoch: int | None
    start_offset: int | None
    is_fresh: bool = False


def broken_by_snapshot(before: Epochs | None, after: Epochs) -> Iterator[Rule]:
    """The rules that a snapshot breaks after `before`; None: nothing is known of the key, so nothing is broken.

    A fresh snapshot may lower leader epoch and start offset: that is how a reset looks (Kafka up to 4.4 writes it
    with an unchanged state epoch). Nothing may lower the state epoch.
    """
    if before is None:
        return
    if after.snapshot_epoch != before.snapshot_epoch + 1:
        yield Rule.SNAPSHOT_EPOCH_STEP
    if _is_lower(after.state_epoch, before.state_epoch):
        yield Rule.STATE_EPOCH_MONOTONIC
    if after.is_fresh:
        return
    if _is_lower(after.leader_epoch, before.leader_epoch):
        yield Rule.LEADER_EPOCH_MONOTONIC
    if after.state_epoch == before.state_epoch and _is_lower(after.start_offset, before.start_offset):
        yield Rule.START_MONOTONIC_WITHIN_STATE_EPOCH


def broken_by_update(before: Epochs | None, after: Epochs) -> Iterator[Rule]:
    """The rules that an update breaks on top of `before`; None: there is no snapshot to build on."""
    if before is None:
        yield Rule.UPDATE_HAS_SNAPSHOT
        return
    if after.snapshot_epoch != before.snapshot_epoch:
        yield Rule.UPDATE_EPOCH_MATCHES
    if _is_lower(after.state_epoch, before.state_epoch):
        yield Rule.STATE_EPOCH_MONOTONIC
    if _is_lower(after.leader_epoch, before.leader_epoch):
        yield Rule.LEADER_EPOCH_MONOTONIC
    if _is_lower(after.start_offset, before.start_offset):
        yield Rule.START_MONOTONIC_WITHIN_STATE_EPOCH


def _is_lower(after: int | None, before: int | None) -> bool:
    return after is not None and before is not None and after < before
