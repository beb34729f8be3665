"""Random records of every draft, for property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from samples.random_records import INT64, any_batches, keys
from samples.released_records import known_or_none

from acktrail.model.records import Tombstone
from acktrail.model.share_partition import GroupId
from acktrail_drafts.draft_records import (
    Checkpoint,
    ControlCheckpoint,
    ControlDelta,
    Delta,
    DeltaTombstone,
    DraftSnapshot,
    DraftUpdate,
)

UINT8 = st.integers(0, 2**8 - 1)
UINT16 = st.integers(0, 2**16 - 1)
UINT32 = st.integers(0, 2**32 - 1)
OFFSETS = st.integers(0, 2**63 - 1)


groups = st.text(st.characters(exclude_categories=("Cs",)), max_size=12).map(GroupId)


def _control(back_offset: st.SearchStrategy[int | None]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(
            ControlCheckpoint,
            group_id=groups,
            checkpoint_epoch=UINT16,
            start_offset=OFFSETS,
            end_offset=OFFSETS,
            batches=any_batches,
        ),
        st.builds(ControlDelta, group_id=groups, checkpoint_epoch=UINT16, back_offset=back_offset, batches=any_batches),
    )


def _draft(*, state_epoch: Any, snapshot_epoch: st.SearchStrategy[int]) -> st.SearchStrategy[Any]:
    fields: dict[str, Any] = {
        "key": keys,
        "state_epoch": state_epoch,
        "snapshot_epoch": snapshot_epoch,
        "start_offset": known_or_none(INT64),
        "batches": any_batches,
    }
    return st.one_of(
        st.builds(DraftSnapshot, **fields), st.builds(DraftUpdate, **fields), st.builds(Tombstone, key=keys)
    )


_keyed: dict[str, Any] = {
    "key": keys,
    "checkpoint_epoch": UINT16,
    "start_offset": known_or_none(INT64),
    "batches": any_batches,
}

DRAFT_RECORDS: dict[str, st.SearchStrategy[Any]] = {
    "i": _control(st.none()),
    "ii": _control(OFFSETS),
    "iii": st.one_of(
        st.builds(Checkpoint, **_keyed),
        st.builds(Delta, delta_index=UINT8, **_keyed),
        st.builds(Tombstone, key=keys),
        st.builds(DeltaTombstone, key=keys, delta_index=UINT8),
    ),
    "iv": _draft(state_epoch=UINT32, snapshot_epoch=UINT32),
    "iv-json": _draft(state_epoch=st.none(), snapshot_epoch=UINT16),
}
"""By dialect, records that the dialect has room for."""
