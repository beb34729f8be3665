"""Generation ii: a new leader recovers each group's state by its chain of back offsets, without a scan of the log.

The share snapshot file says where a group's newest control record lies; from there back offsets lead, link by link, to
the checkpoint. In a log without findings the chain and the scan (``replay_control_log``) give one state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from acktrail.model.records import RecordAt
from acktrail.model.share_partition import GroupId
from acktrail_copied_logs.drafts.draft_logs import replay_control_log
from acktrail_copied_logs.drafts.draft_records import ControlCheckpoint, ControlRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainReplay:
    """One group's recovery. `offsets` were met on the way back, newest first; `broken` says what stopped it, None: it
    ends at its checkpoint. `state` is that of a forward scan where the chain is broken; None: that met no checkpoint
    either."""

    offsets: tuple[int, ...]
    broken: str | None
    state: ControlCheckpoint | None


def head_index(records: Iterable[RecordAt[ControlRecord]]) -> dict[GroupId, int]:
    """The share snapshot file's contents: each group's newest control record, for records in offset order."""
    return {record_at.record.group_id: record_at.offset for record_at in records}


def replay_back_chains(
    records: Sequence[RecordAt[ControlRecord]], heads: Mapping[GroupId, int]
) -> dict[GroupId, ChainReplay]:
    """Every group's state by its chain; where a chain is broken, by a forward scan."""
    log = {record_at.offset: record_at for record_at in records}
    scan = replay_control_log(records)
    replays = {}
    for group_id, head in heads.items():
        offsets, broken = _walk_back(log, group_id, head)
        linked = [log[offset] for offset in reversed(offsets)]
        state = (scan if broken else replay_control_log(linked)).states.get(group_id)
        replays[group_id] = ChainReplay(offsets=offsets, broken=broken, state=state)
    return replays


def _walk_back(
    log: Mapping[int, RecordAt[ControlRecord]], group_id: GroupId, head: int
) -> tuple[tuple[int, ...], str | None]:
    """Follow the back offsets of `group_id` from `head`, by offset in `log`, to their checkpoint: those met, and what
    stopped it. Every back offset must be lower than its record's own offset, so the walk ends for any log."""
    offsets: list[int] = []
    broken = _missing(log, group_id, head)
    offset, epoch = head, log[head].record.checkpoint_epoch if broken is None else 0
    while broken is None:
        record = log[offset].record
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
    return tuple(offsets), broken


def _missing(log: Mapping[int, RecordAt[ControlRecord]], group_id: GroupId, offset: int) -> str | None:
    found = log.get(offset)
    if found is None:
        return f"{offset} missing"
    return None if found.record.group_id == group_id else f"{offset} belongs to another group"
