"""Replay of generation i: control records of one topic partition, scanned forwards.

A checkpoint replaces a group's state; a delta with the checkpoint's epoch is applied to it; a delta with another epoch
is skipped. The start offset moves only over terminal batches, for no delta carries one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from acktrail.drafts.batch_merging import Merging, merge_state_batches
from acktrail.drafts.draft_records import ControlCheckpoint, ControlDelta, ControlRecord
from acktrail.model.delivery import StateBatch
from acktrail.model.records import RecordAt
from acktrail.model.share_partition import GroupId
from acktrail.model.strict.offset_window import OffsetWindow, batch_violations, effective_window, window_violations
from acktrail.model.strict.violations import Rule, Violation


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlState:
    """One group's state after its control records. `start_offset` is the checkpoint's own, `end_offset` the highest
    recorded (exclusive), `checkpoint_offset` where the checkpoint lies (the documents' SCO).
    """

    group_id: GroupId
    checkpoint_epoch: int
    checkpoint_offset: int
    start_offset: int
    end_offset: int
    batches: tuple[StateBatch, ...]

    @property
    def window(self) -> OffsetWindow:
        """Where delivery continues."""
        return effective_window(self.start_offset, self.batches, end_offset=self.end_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlReplay:
    """The state of every group with a checkpoint, and the violations in log order."""

    states: Mapping[GroupId, ControlState]
    violations: tuple[Violation, ...]


def replay_control_log(
    records: Iterable[RecordAt[ControlRecord]], *, merging: Merging = Merging.OVERLAY, cleaned: bool = False
) -> ControlReplay:
    """The state of every group after `records`, which come in offset order.

    `cleaned`: a cleaner may have been there. Then a group's log may begin in the middle of an epoch: deltas before its
    first checkpoint and skipped checkpoint epochs are no violations.
    """
    states: dict[GroupId, ControlState] = {}
    violations: list[Violation] = []
    for record_at in records:
        group_id = record_at.record.group_id
        rules = _broken_rules(states.get(group_id), record_at.record, cleaned=cleaned)
        violations += [_violation(record_at, rule) for rule in rules]
        after = _advance(states.get(group_id), record_at, merging)
        if after is not None:
            states[group_id] = after
    return ControlReplay(states=states, violations=tuple(violations))


def apply_control_delta(
    state: ControlState, delta: ControlDelta, *, merging: Merging = Merging.OVERLAY
) -> ControlState:
    """`state` with a delta of its epoch applied; the end offset grows with the delta's batches."""
    return replace(
        state,
        end_offset=max([state.end_offset, *(batch.last_offset + 1 for batch in delta.batches)]),
        batches=merge_state_batches(merging, state.batches, delta.batches, state.start_offset),
    )


def state_of_control_checkpoint(record: ControlCheckpoint, offset: int) -> ControlState:
    """The state that a checkpoint at `offset` holds."""
    return ControlState(
        group_id=record.group_id,
        checkpoint_epoch=record.checkpoint_epoch,
        checkpoint_offset=offset,
        start_offset=record.start_offset,
        end_offset=record.end_offset,
        batches=record.batches,
    )


def _advance(state: ControlState | None, record_at: RecordAt[ControlRecord], merging: Merging) -> ControlState | None:
    record = record_at.record
    if isinstance(record, ControlCheckpoint):
        return state_of_control_checkpoint(record, record_at.offset)
    if state is None or record.checkpoint_epoch != state.checkpoint_epoch:
        return state
    return apply_control_delta(state, record, merging=merging)


def _broken_rules(state: ControlState | None, record: ControlRecord, *, cleaned: bool) -> tuple[Rule, ...]:
    if isinstance(record, ControlCheckpoint):
        window = OffsetWindow(start_offset=record.start_offset, end_offset=record.end_offset, batches=record.batches)
        return (*_epoch_step(state, record, cleaned=cleaned), *window_violations(window))
    own = batch_violations(record.batches)
    if state is None:
        return own if cleaned else (Rule.DELTA_HAS_CHECKPOINT, *own)
    return own if record.checkpoint_epoch == state.checkpoint_epoch else (Rule.DELTA_EPOCH_MATCHES, *own)


def _epoch_step(state: ControlState | None, record: ControlCheckpoint, *, cleaned: bool) -> tuple[Rule, ...]:
    """Epochs of these generations start at 1 and grow by one; none is specified after 65,535: a violation."""
    before = 0 if state is None else state.checkpoint_epoch
    right = record.checkpoint_epoch > before if cleaned else record.checkpoint_epoch == before + 1
    return () if right else (Rule.CHECKPOINT_EPOCH_STEP,)


def _violation(record_at: RecordAt[ControlRecord], rule: Rule) -> Violation:
    record = record_at.record
    kind = "checkpoint" if isinstance(record, ControlCheckpoint) else "delta"
    return Violation(
        rule=rule,
        subject=record.group_id,
        partition=record_at.partition,
        offset=record_at.offset,
        detail=f"{kind} of epoch {record.checkpoint_epoch}",
    )
