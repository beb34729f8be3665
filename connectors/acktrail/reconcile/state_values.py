"""A state as the columns that tell it, and back."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from acktrail.columnar.model_values import STATE_NUMBERS, replayed_state_of
from acktrail.model.delivery import DeliveryState, StateBatch
from acktrail.model.lag import counts_by_state
from acktrail.model.replay import SharePartitionState

__all__ = ["NO_STATE", "int64", "state_columns", "state_of"]

_INT64_MAX: Final = 2**63 - 1

_BATCH: Final = tuple(StateBatch.__slots__)

_COUNTED: Final = {
    "available_records": DeliveryState.AVAILABLE,
    "acknowledged_records": DeliveryState.ACKNOWLEDGED,
    "archiving_records": DeliveryState.ARCHIVING,
    "archived_records": DeliveryState.ARCHIVED,
}

NO_STATE: Final[Mapping[str, Any]] = MappingProxyType(
    dict.fromkeys((*STATE_NUMBERS, "effective_start_offset", "end_offset", *_COUNTED, "max_delivery_count", "batches"))
)
"""The columns of a share partition whose state is not known."""


def int64(number: int | None) -> int | None:
    """`number`, or None where it is too great for a column: records can name any offset."""
    return number if number is None or abs(number) <= _INT64_MAX else None


def state_columns(state: SharePartitionState) -> dict[str, Any]:
    """The columns of ``SHARE_PARTITION_STATES`` that a state alone decides."""
    counts = counts_by_state(state)
    return {
        **{name: getattr(state, name) for name in STATE_NUMBERS},
        "effective_start_offset": int64(state.effective_start_offset),
        "end_offset": int64(state.end_offset),
        **{name: int64(counts[kind]) for name, kind in _COUNTED.items()},
        "max_delivery_count": max((batch.delivery_count for batch in state.batches), default=None),
        "batches": [{name: getattr(batch, name) for name in _BATCH} for batch in state.batches],
    }


def state_of(row: Mapping[str, Any]) -> SharePartitionState | None:
    """The state that a row of ``SHARE_PARTITION_STATES`` tells; None when it has none."""
    return None if row["snapshot_epoch"] is None else replayed_state_of(row)
