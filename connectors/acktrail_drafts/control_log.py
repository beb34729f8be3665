"""Replay of generations i and ii: control records of one topic partition, scanned forwards or by chains backwards.

A checkpoint replaces a group's state; a delta with the checkpoint's epoch is applied to it; a delta with another epoch
is skipped. The start offset moves only over terminal batches, for no delta carries one. In generation ii the share
snapshot file says where each group's newest control record lies, so nothing has to be scanned: back offsets lead from
there, link by link, to the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from acktrail.model.records import RecordAt
from acktrail.model.share_partition import GroupId
from acktrail_drafts.draft_records import (
    ControlCheckpoint,
    ControlDelta,
    ControlRecord,
    Rule,
    Violation,
    batch_violations,
    overlay_state_batches,
    violations_of,
    window_violations,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlReplay:
    """The state of every group with a checkpoint, and the violations in log order.

    A state's `start_offset` is the checkpoint's own, its `end_offset` the highest recorded.
    """

    states: Mapping[GroupId, ControlCheckpoint]
    violations: tuple[Violation, ...]


def replay_control_log(records: Iterable[RecordAt[ControlRecord]], *, cleaned: bool = False) -> ControlReplay:
    """The state of every group after `records`, which come in offset order.

    `cleaned`: a cleaner may have been there. Then a group's log may begin in the middle of an epoch: deltas before its
    first checkpoint and skipped checkpoint epochs are no violations.
    """
    states: dict[GroupId, ControlCheckpoint] = {}
    violations: list[Violation] = []
    for record_at in records:
        record, state = record_at.record, states.get(record_at.record.group_id)
        kind = "checkpoint" if isinstance(record, ControlCheckpoint) else "delta"
        rules = _broken_rules(state, record, cleaned=cleaned)
        violations += violations_of(record_at, rules, record.group_id, f"{kind} of epoch {record.checkpoint_epoch}")
        if isinstance(record, ControlCheckpoint):
            states[record.group_id] = record
        elif state is not None and record.checkpoint_epoch == state.checkpoint_epoch:
            states[record.group_id] = apply_control_delta(state, record)
    return ControlReplay(states=states, violations=tuple(violations))


def apply_control_delta(state: ControlCheckpoint, delta: ControlDelta) -> ControlCheckpoint:
    """`state` with a delta of its epoch applied; the end offset grows with the delta's batches."""
    return replace(
        state,
        end_offset=max([state.end_offset, *(batch.last_offset + 1 for batch in delta.batches)]),
        batches=overlay_state_batches(state.batches, delta.batches, state.start_offset),
    )


def _broken_rules(state: ControlCheckpoint | None, record: ControlRecord, *, cleaned: bool) -> Iterator[Rule]:
    if isinstance(record, ControlCheckpoint):
        # Epochs of these generations start at 1 and grow by one; none is specified after 65,535: a violation.
        step = record.checkpoint_epoch - (0 if state is None else state.checkpoint_epoch)
        if step != 1 and not (cleaned and step > 0):
            yield Rule.CHECKPOINT_EPOCH_STEP
        yield from window_violations(record.start_offset, record.end_offset, record.batches)
        return
    if state is None and not cleaned:
        yield Rule.DELTA_HAS_CHECKPOINT
    elif state is not None and record.checkpoint_epoch != state.checkpoint_epoch:
        yield Rule.DELTA_EPOCH_MATCHES
    yield from batch_violations(record.batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackChain:
    """The offsets met on the way back, newest first. `broken` says what stopped it; None: it ends at its checkpoint."""

    offsets: tuple[int, ...]
    broken: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainReplay:
    """One group's recovery. `state` is that of a forward scan where the chain is broken; None: that met no checkpoint
    either."""

    chain: BackChain
    state: ControlCheckpoint | None
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
        elif record.back_offset is None:
            broken = f"{offset} has no BackOffset"
        elif record.back_offset >= offset:
            broken = "BackOffset is not lower"
        else:
            offset = record.back_offset
            broken = _missing(log, group_id, offset)
    return BackChain(offsets=tuple(offsets), broken=broken)


def _missing(log: Mapping[int, ControlRecord], group_id: GroupId, offset: int) -> str | None:
    record = log.get(offset)
    if record is None:
        return f"{offset} missing"
    return None if record.group_id == group_id else f"{offset} belongs to another group"


def replay_back_chains(
    records: Sequence[RecordAt[ControlRecord]], heads: Mapping[GroupId, int]
) -> dict[GroupId, ChainReplay]:
    """Every group's state by its chain; where a chain is broken, by a forward scan, with a violation."""
    log = {record_at.offset: record_at.record for record_at in records}
    partition = records[0].partition if records else 0
    scan = replay_control_log(records, cleaned=True)
    replays = {}
    for group_id, head in heads.items():
        chain = walk_back(log, group_id, head)
        linked = [
            RecordAt(partition=partition, offset=offset, record=log[offset]) for offset in reversed(chain.offsets)
        ]
        broken = Violation(
            rule=Rule.CHAIN_UNBROKEN,
            subject=group_id,
            partition=partition,
            offset=head,
            detail=f"broken: {chain.broken}",
        )
        states = (scan if chain.broken else replay_control_log(linked)).states
        violations = (broken,) if chain.broken else ()
        replays[group_id] = ChainReplay(chain=chain, state=states.get(group_id), violations=violations)
    return replays
