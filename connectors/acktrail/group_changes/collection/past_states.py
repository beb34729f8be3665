"""What exported state records say of share partitions at a moment. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from acktrail.model.records import ShareSnapshot
from acktrail.model.replay import SharePartitionState, apply
from acktrail.model.share_partition import SharePartition
from acktrail.wire.raw_record import RawRecord, decode_raw
from acktrail.wire.state_key import decode_key

__all__ = ["HistoryRecord", "StateAt", "state_at"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRecord:
    """One row of ``state_records`` whose key can be read: address, broker's append time, raw key and value."""

    state_partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateAt:
    """Where a share partition stood. `snapshot_offset` is that of its last snapshot record: what was exported from
    there on must be whole. `reason`: why it is not known."""

    state_partition: int
    snapshot_offset: int
    effective_start_offset: int | None
    reason: str | None


def state_at(records: Iterable[HistoryRecord], moment_ms: int) -> dict[SharePartition, StateAt]:
    """The state of every share partition after its records up to `moment_ms` (inclusive); a deleted one is left out.

    Records may come in any order. Cost: a sort, and one decode a record.
    """
    states: dict[SharePartition, SharePartitionState] = {}
    snapshots: dict[SharePartition, tuple[int, int]] = {}
    unreadable: dict[SharePartition, int] = {}
    for row in sorted(records, key=lambda row: (row.state_partition, row.offset)):
        if row.timestamp_ms > moment_ms:
            continue
        _take(row, states, snapshots, unreadable)
    return {key: _at(key, state, snapshots, unreadable) for key, state in states.items()}


def _take(
    row: HistoryRecord,
    states: dict[SharePartition, SharePartitionState],
    snapshots: dict[SharePartition, tuple[int, int]],
    unreadable: dict[SharePartition, int],
) -> None:
    addressed = decode_raw(
        RawRecord(
            state_partition=row.state_partition,
            offset=row.offset,
            timestamp_ms=row.timestamp_ms,
            key=row.key,
            value=row.value,
        )
    )
    record = addressed.record
    if record is None:
        _, key = decode_key(row.key)
        unreadable.setdefault(key, row.offset)
        return
    after = apply(states.get(record.key), record)
    if after is None:
        states.pop(record.key, None)
        return
    states[record.key] = after
    if isinstance(record, ShareSnapshot):
        snapshots[record.key] = (row.state_partition, row.offset)
        unreadable.pop(record.key, None)


def _at(
    key: SharePartition,
    state: SharePartitionState,
    snapshots: dict[SharePartition, tuple[int, int]],
    unreadable: dict[SharePartition, int],
) -> StateAt:
    partition, offset = snapshots.get(key, (-1, -1))
    reason = None
    if key not in snapshots:
        reason = "the snapshot below its updates was not exported"
    elif key in unreadable:
        reason = f"the record at offset {unreadable[key]} of state partition {partition} cannot be read"
    return StateAt(
        state_partition=partition,
        snapshot_offset=offset,
        effective_start_offset=state.effective_start_offset,
        reason=reason,
    )
