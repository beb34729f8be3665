"""Replay of shipped state records by policy ``strict``, with every difference from a broker as a violation.

The states are those of a broker that replays only the records that count by the founding documents; each skipped record
breaks a rule in `DIFFERING_RULES`. Violations of other rules change no state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from acktrail.model.delivery import DURABLE_STATES
from acktrail.model.records import RecordAt, ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.replay import SharePartitionState, advance
from acktrail.model.share_partition import SharePartition
from acktrail.model.strict.epoch_rules import Epochs, broken_by_snapshot, broken_by_update
from acktrail.model.strict.offset_window import OffsetWindow, batch_violations, window_violations
from acktrail.model.strict.violations import DIFFERING_RULES, Rule, Violation


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictReplay:
    """The state of every share partition, and all violations in the order of the records."""

    states: Mapping[SharePartition, SharePartitionState]
    violations: tuple[Violation, ...]

    @property
    def differences(self) -> tuple[Violation, ...]:
        """The violations by records that a broker applies and this replay skips."""
        return tuple(violation for violation in self.violations if violation.rule in DIFFERING_RULES)


def replay_strictly(records: Iterable[RecordAt[StateRecord]]) -> StrictReplay:
    """The state of every share partition after `records`, which come in log order within a state partition."""
    states: dict[SharePartition, SharePartitionState] = {}
    homes: dict[SharePartition, int] = {}
    violations: list[Violation] = []
    for record_at in records:
        record = record_at.record
        rules = _broken_rules(states.get(record.key), record)
        if homes.setdefault(record.key, record_at.partition) != record_at.partition:
            rules = (*rules, Rule.ONE_STATE_PARTITION_PER_KEY)
        violations += [_violation(record_at, rule) for rule in rules]
        if DIFFERING_RULES.isdisjoint(rules):
            advance(states, record)
    return StrictReplay(states=states, violations=tuple(violations))


def _broken_rules(state: SharePartitionState | None, record: StateRecord) -> tuple[Rule, ...]:
    before = None if state is None else _epochs(state)
    match record:
        case Tombstone():
            return ()
        case ShareSnapshot():
            window = OffsetWindow(start_offset=record.start_offset, end_offset=None, batches=record.batches)
            own = window_violations(window, durable_states=DURABLE_STATES)
            return (*broken_by_snapshot(before, _epochs(record)), *own)
        case ShareUpdate():
            own = batch_violations(record.batches, durable_states=DURABLE_STATES)
            return (*broken_by_update(before, _epochs(record)), *own)


def _epochs(source: SharePartitionState | ShareSnapshot | ShareUpdate) -> Epochs:
    return Epochs(
        snapshot_epoch=source.snapshot_epoch,
        state_epoch=None if isinstance(source, ShareUpdate) else source.state_epoch,
        leader_epoch=source.leader_epoch,
        start_offset=source.start_offset,
        is_fresh=isinstance(source, ShareSnapshot) and not source.batches,
    )


def _violation(record_at: RecordAt[StateRecord], rule: Rule) -> Violation:
    record = record_at.record
    detail = "tombstone"
    if not isinstance(record, Tombstone):
        kind = "snapshot" if isinstance(record, ShareSnapshot) else "update"
        detail = f"{kind} of snapshot epoch {record.snapshot_epoch}"
    return Violation(
        rule=rule, subject=record.key, partition=record_at.partition, offset=record_at.offset, detail=detail
    )
