"""Replay with every rule that the records break: of shipped ones by policy ``strict``, of generation iv by either."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from acktrail.model.delivery import DURABLE_STATES, DeliveryState
from acktrail.model.records import RecordAt, ShareSnapshot, StateRecord, Tombstone
from acktrail.model.replay import Policy, SharePartitionState, apply
from acktrail.model.share_partition import SharePartition
from acktrail_drafts.offset_window import batch_violations, window_violations
from acktrail_drafts.violations import DIFFERING_RULES, Rule, Violation, violations_of

StateT = TypeVar("StateT")


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictReplay(Generic[StateT]):
    """The state of every share partition, and all violations in the order of the records."""

    states: Mapping[SharePartition, StateT]
    violations: tuple[Violation, ...]


def replay_strictly(records: Iterable[RecordAt[StateRecord]]) -> StrictReplay[SharePartitionState]:
    """The state of every share partition after `records`, which come in log order within a state partition.

    The states are those of a broker that replays only the records that count by the founding documents.
    """
    return replay_by_rules(records, apply, snapshots=ShareSnapshot, durable_states=DURABLE_STATES)


def replay_by_rules(
    records: Iterable[RecordAt[Any]],
    apply_record: Callable[[StateT | None, Any], StateT | None],
    *,
    snapshots: type,
    durable_states: frozenset[DeliveryState],
    policy: Policy = Policy.STRICT,
) -> StrictReplay[StateT]:
    """Replay of tombstones, `snapshots`, and updates (all others) by `apply_record`, which returns the state after one.

    Both policies find the same violations; they differ in whether a record that breaks one of `DIFFERING_RULES` is
    applied. Violations of other rules change no state.
    """
    states: dict[SharePartition, StateT] = {}
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


_MONOTONIC: Final = {
    "state_epoch": Rule.STATE_EPOCH_MONOTONIC,
    "leader_epoch": Rule.LEADER_EPOCH_MONOTONIC,
    "start_offset": Rule.START_MONOTONIC_WITHIN_STATE_EPOCH,
}
"""What must not go back from record to record."""


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
