"""Replay of generation ii: from the newest control record backwards, link by link, to its checkpoint.

The share snapshot file says where each group's newest control record lies, so nothing has to be scanned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from acktrail.drafts.batch_merging import Merging
from acktrail.drafts.control_log import (
    ControlState,
    apply_control_delta,
    replay_control_log,
    state_of_control_checkpoint,
)
from acktrail.drafts.draft_records import ControlCheckpoint, ControlDelta, ControlRecord
from acktrail.model.records import RecordAt
from acktrail.model.share_partition import GroupId
from acktrail.model.strict.violations import Rule, Violation


class Recovery(StrEnum):
    """How a group's state was found."""

    CHAIN = "chain"
    SCAN = "scan"
    """The chain is broken; the state is that of a forward scan."""
    UNRECOVERABLE = "unrecoverable"
    """The chain is broken and the scan met no checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackChain:
    """The offsets met on the way back, newest first. `broken` says what stopped it; None: it ends at its checkpoint."""

    offsets: tuple[int, ...]
    broken: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainReplay:
    """One group's recovery. `state` is None only when it is unrecoverable."""

    group_id: GroupId
    recovery: Recovery
    chain: BackChain
    state: ControlState | None
    violations: tuple[Violation, ...]


def head_index(records: Iterable[RecordAt[ControlRecord]]) -> dict[GroupId, int]:
    """The share snapshot file's contents: each group's newest control record, for records in offset order."""
    return {record_at.record.group_id: record_at.offset for record_at in records}


def walk_back(log: Mapping[int, ControlRecord], group_id: GroupId, head: int) -> BackChain:
    """Follow the back offsets of `group_id` from `head`, by offset in `log`, to their checkpoint.

    Every back offset must be lower than its record's own offset, so the walk ends for any log.
    """
    offsets: list[int] = []
    broken = _missing(log, group_id, head)
    offset, epoch = head, log[head].checkpoint_epoch if broken is None else 0
    while broken is None:
        record = log[offset]
        offsets.append(offset)
        if record.checkpoint_epoch != epoch:
            broken = "epoch differs from the checkpoint"
        elif isinstance(record, ControlCheckpoint):
            break
        else:
            broken, offset = _link(log, record, offset)
    return BackChain(offsets=tuple(offsets), broken=broken)


def replay_back_chains(
    records: Iterable[RecordAt[ControlRecord]],
    heads: Mapping[GroupId, int],
    *,
    merging: Merging = Merging.OVERLAY,
) -> dict[GroupId, ChainReplay]:
    """Every group's state by its chain; where a chain is broken, by a forward scan, with a violation."""
    records_at = tuple(records)
    log = {record_at.offset: record_at.record for record_at in records_at}
    partition = records_at[0].partition if records_at else 0
    scan = replay_control_log(records_at, merging=merging, cleaned=True)
    replays = {}
    for group_id, head in heads.items():
        chain = walk_back(log, group_id, head)
        if chain.broken is None:
            state: ControlState | None = _applied(log, chain, merging)
            recovery = Recovery.CHAIN
            violations: tuple[Violation, ...] = ()
        else:
            state = scan.states.get(group_id)
            recovery = Recovery.UNRECOVERABLE if state is None else Recovery.SCAN
            violations = (_violation(group_id, partition, head, chain.broken),)
        replays[group_id] = ChainReplay(
            group_id=group_id, recovery=recovery, chain=chain, state=state, violations=violations
        )
    return replays


def _missing(log: Mapping[int, ControlRecord], group_id: GroupId, offset: int) -> str | None:
    record = log.get(offset)
    if record is None:
        return f"{offset} missing"
    return None if record.group_id == group_id else f"{offset} belongs to another group"


def _link(log: Mapping[int, ControlRecord], record: ControlDelta, offset: int) -> tuple[str | None, int]:
    if record.back_offset is None:
        return f"{offset} has no BackOffset", offset
    if record.back_offset >= offset:
        return "BackOffset is not lower", offset
    return _missing(log, record.group_id, record.back_offset), record.back_offset


def _applied(log: Mapping[int, ControlRecord], chain: BackChain, merging: Merging) -> ControlState | None:
    state: ControlState | None = None
    for offset in reversed(chain.offsets):
        record = log[offset]
        if isinstance(record, ControlCheckpoint):
            state = state_of_control_checkpoint(record, offset)
        elif state is not None:
            state = apply_control_delta(state, record, merging=merging)
    return state


def _violation(group_id: GroupId, partition: int, head: int, broken: str) -> Violation:
    return Violation(
        rule=Rule.CHAIN_UNBROKEN, subject=group_id, partition=partition, offset=head, detail=f"broken: {broken}"
    )
