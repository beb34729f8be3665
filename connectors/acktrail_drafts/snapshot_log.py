"""Replay of generation iv: snapshots and updates tied by the snapshot epoch, by either policy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from acktrail.model.batches import combine_state_batches
from acktrail.model.records import RecordAt
from acktrail.model.replay import Policy
from acktrail_drafts.draft_records import DraftRecord, DraftSnapshot, DraftUpdate
from acktrail_drafts.offset_window import DOCUMENTED_STATES
from acktrail_drafts.strict_replay import StrictReplay, replay_by_rules

DraftState = DraftSnapshot | DraftUpdate
"""A state is the complete record that could stand for it: a snapshot, or the update without one that became it."""


def replay_draft_log(
    records: Iterable[RecordAt[DraftRecord]], *, policy: Policy = Policy.STRICT
) -> StrictReplay[DraftState]:
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
