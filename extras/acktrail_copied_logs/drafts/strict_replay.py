"""Replay with every rule that the records break: of shipped ones by policy ``strict``, of generation iv by either."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from acktrail.model.batches import DURABLE_STATES, DeliveryState, combine_state_batches
from acktrail.model.records import RecordAt, ShareSnapshot, StateRecord, Tombstone
from acktrail.model.replay import SharePartitionState, apply, replay
from acktrail.model.share_partition import SharePartition
from acktrail_copied_logs.dialects import DOCUMENTED_STATES, DialectReplay, JsonForm, Policy, state_json
from acktrail_copied_logs.drafts.draft_logs import replay_checkpoint_log, replay_control_log
from acktrail_copied_logs.drafts.draft_records import (
    DIFFERING_RULES,
    DraftRecord,
    DraftSnapshot,
    DraftUpdate,
    Rule,
    StateT,
    StrictReplay,
    Violation,
    batch_violations,
    draft_state_json,
    finding_json,
    undoes_delivery,
    violations_of,
    window_violations,
)

_Records = Iterable[RecordAt[Any]]
_MONOTONIC: Final = {
    "state_epoch": Rule.STATE_EPOCH_MONOTONIC,
    "leader_epoch": Rule.LEADER_EPOCH_MONOTONIC,
    "start_offset": Rule.START_MONOTONIC_WITHIN_STATE_EPOCH,
}
"""What must not go back from record to record."""
DraftState = DraftSnapshot | DraftUpdate
"""A state is the complete record that could stand for it: a snapshot, or the update without one that became it."""


def replay_strictly(
    records: Iterable[RecordAt[StateRecord]], durable_states: frozenset[DeliveryState] = DURABLE_STATES
) -> StrictReplay[SharePartition, SharePartitionState]:
    """The state of every share partition after `records`, which come in log order within a state partition.

    The states are those of a broker that replays only the records that count by the founding documents.
    """
    return replay_by_rules(records, apply, snapshots=ShareSnapshot, durable_states=durable_states)


def replay_by_rules(
    records: Iterable[RecordAt[Any]],
    apply_record: Callable[[StateT | None, Any], StateT | None],
    *,
    snapshots: type,
    durable_states: frozenset[DeliveryState],
    policy: Policy = Policy.STRICT,
) -> StrictReplay[SharePartition, StateT]:
    """Replay of tombstones, `snapshots`, and updates (all others) by `apply_record`, which returns the state after one.

    Both policies find the same violations; they differ in whether a record that breaks one of `DIFFERING_RULES` is
    applied. Violations of other rules change no state.
    """
    states: dict[SharePartition, Any] = {}
    homes: dict[SharePartition, int] = {}
    violations: list[Violation] = []
    for record_at in records:
        record, key = record_at.record, record_at.record.key
        before, rules, detail = states.get(key), list[Rule](), "tombstone"
        if not isinstance(record, Tombstone):
            is_snapshot = isinstance(record, snapshots)
            detail = f"{'snapshot' if is_snapshot else 'update'} of snapshot epoch {record.snapshot_epoch}"
            rules += _broken_epochs(before, record, is_snapshot=is_snapshot)
            if is_snapshot:
                rules += window_violations(record.start_offset, None, record.batches, durable_states)
            else:
                rules += batch_violations(record.batches, durable_states)
                if before is not None and undoes_delivery(before.batches, record.batches):
                    rules.append(Rule.DELIVERY_NOT_UNDONE)
        if homes.setdefault(key, record_at.partition) != record_at.partition:
            rules.append(Rule.ONE_STATE_PARTITION_PER_KEY)
        violations += violations_of(record_at, rules, key, detail)
        if policy is Policy.BROKER or DIFFERING_RULES.isdisjoint(rules):
            after = apply_record(before, record)
            if after is None:
                states.pop(key, None)
            else:
                states[key] = after
    return StrictReplay(states=states, violations=tuple(violations))


def _broken_epochs(before: Any, record: Any, *, is_snapshot: bool) -> Iterator[Rule]:
    """The rules of epochs and start offset that `record` breaks after the state `before`; None: no record is before it.

    A snapshot without batches may lower leader epoch and start offset: that is how a reset looks (Kafka up to 4.4
    writes it with an unchanged state epoch). Nothing may lower the state epoch.
    """
    if before is None:
        if not is_snapshot:
            yield Rule.UPDATE_HAS_SNAPSHOT
        return
    if record.snapshot_epoch != before.snapshot_epoch + is_snapshot:
        yield Rule.SNAPSHOT_EPOCH_STEP if is_snapshot else Rule.UPDATE_EPOCH_MATCHES
    may_fall = set[str]()
    if is_snapshot and not record.batches:
        may_fall = {"leader_epoch", "start_offset"}
    elif is_snapshot and record.state_epoch != before.state_epoch:
        may_fall = {"start_offset"}
    for name, rule in _MONOTONIC.items():
        # None: this kind of record has no such number, or leaves it unchanged.
        old, new = getattr(before, name, None), getattr(record, name, None)
        if name not in may_fall and old is not None and new is not None and new < old:
            yield rule


def replay_draft_log(
    records: Iterable[RecordAt[DraftRecord]], *, policy: Policy = Policy.STRICT
) -> StrictReplay[SharePartition, DraftState]:
    """The state of every share partition after `records`, which come in log order within a state partition."""
    return replay_by_rules(records, _apply, snapshots=DraftSnapshot, durable_states=DOCUMENTED_STATES, policy=policy)


def _apply(state: DraftState | None, record: DraftRecord) -> DraftState | None:
    match record:
        case DraftUpdate() if state is not None:
            start = state.start_offset if record.start_offset is None else record.start_offset
            return replace(
                state,
                state_epoch=state.state_epoch if record.state_epoch is None else record.state_epoch,
                start_offset=start,
                batches=combine_state_batches(state.batches, record.batches, start),
            )
        case DraftSnapshot() | DraftUpdate():
            return record
        case _:
            return None


def replay_released(records: _Records, policy: Policy, durable_states: frozenset[DeliveryState]) -> DialectReplay:
    """Records of a release that lets a record be in `durable_states`, by either policy."""
    records = [*records]
    strict = replay_strictly(records, durable_states)
    states = strict.states if policy is Policy.STRICT else replay(record_at.record for record_at in records)
    return _told(map(state_json, states.values()), strict.violations, policy)


def replay_draft(records: _Records, policy: Policy) -> DialectReplay:
    """Generation iv, by either policy."""
    replayed = replay_draft_log(records, policy=policy)
    return _told(map(draft_state_json, replayed.states.values()), replayed.violations, policy)


def replay_checkpoints(records: _Records, _policy: Policy) -> DialectReplay:
    """Generation iii, which has one policy."""
    replayed = replay_checkpoint_log(records)
    return _told(map(draft_state_json, replayed.states.values()), replayed.violations)


def replay_control(records: _Records, _policy: Policy) -> DialectReplay:
    """Generations i and ii, which have one policy."""
    states: list[JsonForm] = []
    violations: list[Violation] = []
    of_partition = attrgetter("partition")
    for partition, own in groupby(sorted(records, key=of_partition), of_partition):
        replayed = replay_control_log(own)
        states += (draft_state_json(state, partition) for state in replayed.states.values())
        violations += replayed.violations
    return _told(states, violations)


def _told(states: Iterable[JsonForm], violations: Sequence[Violation], policy: Policy = Policy.STRICT) -> DialectReplay:
    """By policy ``broker`` every record was applied: nothing differs from a broker's replay."""
    findings = [*map(finding_json, sorted(violations, key=attrgetter("partition", "offset")))]
    differences = [] if policy is Policy.BROKER else [finding for finding in findings if finding["changes_state"]]
    return DialectReplay(states=[*states], findings=findings, differences=differences)
