"""Replay of generation iv: snapshots and updates tied by the snapshot epoch, by either policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from acktrail.drafts.batch_merging import Merging, merge_state_batches
from acktrail.drafts.draft_records import DraftRecord, DraftSnapshot, DraftUpdate
from acktrail.model.delivery import StateBatch
from acktrail.model.records import RecordAt, Tombstone
from acktrail.model.share_partition import SharePartition
from acktrail.model.strict.epoch_rules import Epochs, broken_by_snapshot, broken_by_update
from acktrail.model.strict.offset_window import OffsetWindow, batch_violations, effective_window, window_violations
from acktrail.model.strict.violations import DIFFERING_RULES, Policy, Rule, Violation


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftState:
    """The state of a share partition. `start_offset` is as recorded; None: not initialised."""

    key: SharePartition
    state_epoch: int | None
    snapshot_epoch: int
    start_offset: int | None
    batches: tuple[StateBatch, ...]

    @property
    def window(self) -> OffsetWindow:
        """Where delivery continues; its end is a lower bound, since these records have no end offset."""
        return effective_window(self.start_offset, self.batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftReplay:
    """The state of every share partition, and the violations in log order."""

    states: Mapping[SharePartition, DraftState]
    violations: tuple[Violation, ...]


def replay_draft_log(
    records: Iterable[RecordAt[DraftRecord]],
    *,
    policy: Policy = Policy.STRICT,
    merging: Merging = Merging.COMBINER,
) -> DraftReplay:
    """The state of every share partition after `records`, which come in log order within a state partition.

    Both policies find the same; they differ in whether a record that breaks one of `DIFFERING_RULES` is applied.
    """
    states: dict[SharePartition, DraftState] = {}
    violations: list[Violation] = []
    for record_at in records:
        record = record_at.record
        state = states.get(record.key)
        rules = _broken_rules(state, record)
        violations += [_violation(record_at, rule) for rule in rules]
        if isinstance(record, Tombstone):
            states.pop(record.key, None)
        elif policy is Policy.BROKER or DIFFERING_RULES.isdisjoint(rules):
            states[record.key] = _advanced(state, record, merging)
    return DraftReplay(states=states, violations=tuple(violations))


def _advanced(state: DraftState | None, record: DraftSnapshot | DraftUpdate, merging: Merging) -> DraftState:
    if state is None or isinstance(record, DraftSnapshot):
        return DraftState(
            key=record.key,
            state_epoch=record.state_epoch,
            snapshot_epoch=record.snapshot_epoch,
            start_offset=record.start_offset,
            batches=record.batches,
        )
    start_offset = state.start_offset if record.start_offset is None else record.start_offset
    return replace(
        state,
        state_epoch=state.state_epoch if record.state_epoch is None else record.state_epoch,
        start_offset=start_offset,
        batches=merge_state_batches(merging, state.batches, record.batches, start_offset),
    )


def _broken_rules(state: DraftState | None, record: DraftRecord) -> tuple[Rule, ...]:
    before = None if state is None else _epochs(state)
    match record:
        case Tombstone():
            return ()
        case DraftSnapshot():
            window = OffsetWindow(start_offset=record.start_offset, end_offset=None, batches=record.batches)
            return (*broken_by_snapshot(before, _epochs(record)), *window_violations(window))
        case DraftUpdate():
            return (*broken_by_update(before, _epochs(record)), *batch_violations(record.batches))


def _epochs(source: DraftState | DraftSnapshot | DraftUpdate) -> Epochs:
    return Epochs(
        snapshot_epoch=source.snapshot_epoch,
        state_epoch=source.state_epoch,
        leader_epoch=None,
        start_offset=source.start_offset,
        is_fresh=isinstance(source, DraftSnapshot) and not source.batches,
    )


def _violation(record_at: RecordAt[DraftRecord], rule: Rule) -> Violation:
    record = record_at.record
    epoch = "" if isinstance(record, Tombstone) else f" of snapshot epoch {record.snapshot_epoch}"
    return Violation(
        rule=rule,
        subject=record.key,
        partition=record_at.partition,
        offset=record_at.offset,
        detail=f"{type(record).__name__}{epoch}",
    )
