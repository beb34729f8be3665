"""Known states of share partitions as rows of ``HELD_STATES``, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from acktrail.columnar.model_values import STATE_NUMBERS, replayed_state_of, share_partition_of
from acktrail.columnar.schemas.incremental_tables import HELD_STATES, saved_columns
from acktrail.model.offset_history.offset_status import KnownState, OffsetStatusKind
from acktrail.model.replay import SharePartitionState
from acktrail.model.share_partition import SharePartition

HELD_COLUMNS: Final = saved_columns(HELD_STATES)

_STATE: Final = "state"


def known_state_table(state_partition: int, held: Mapping[SharePartition, KnownState]) -> pa.Table:
    """Rows of ``HELD_COLUMNS``, one a share partition."""
    rows = [{"state_partition": state_partition, **_key(key), **_row(value)} for key, value in held.items()]
    return pa.Table.from_pylist(rows, schema=HELD_COLUMNS)


def known_states_of(rows: pa.Table) -> Iterator[tuple[SharePartition, KnownState]]:
    """The known states in rows of ``HELD_STATES``, without the state partition."""
    for row in rows.to_pylist():
        held = replayed_state_of(row) if row["held"] == _STATE else _without_state(row["held"])
        yield share_partition_of(row), held


def _key(key: SharePartition) -> dict[str, Any]:
    return {"group_id": key.group_id, "topic_id": key.topic_id, "partition": key.partition}


def _row(held: KnownState) -> dict[str, Any]:
    if not isinstance(held, SharePartitionState):
        return {"held": held.value}
    plain = {name: getattr(held, name) for name in STATE_NUMBERS}
    batches = [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in held.batches]
    return {"held": _STATE, **plain, "batches": batches}


def _without_state(text: str) -> KnownState:
    return OffsetStatusKind.ABSENT if text == OffsetStatusKind.ABSENT.value else OffsetStatusKind.UNKNOWN
