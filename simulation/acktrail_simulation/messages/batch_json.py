"""State batches as JSON, under every name that the founding documents gave their fields.

The documents renamed fields on the way; both names are read (``BaseOffset`` and ``FirstOffset``, ``State`` and
``DeliveryState``, ``States`` and ``StateBatches``), the later one is written. A batch may also be a list of its four
numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from acktrail.errors import InputError
from acktrail.model.batches import StateBatch

Fields = Mapping[str, Any]

_BATCH_NAMES: Final = (
    ("FirstOffset", "BaseOffset"),
    ("LastOffset",),
    ("DeliveryState", "State"),
    ("DeliveryCount",),
)
_ARRAY_NAMES: Final = ("StateBatches", "States")


def read_batches(fields: Fields) -> tuple[StateBatch, ...]:
    """The state batches of `fields`, under either name of the array and of its fields; none when there is no array.
    Raises InputError: a field is missing, or given under both names."""
    return tuple(map(_batch, one_of(fields, _ARRAY_NAMES, default=())))


def batch_fields(batch: StateBatch) -> dict[str, int]:
    """One batch under the later names."""
    return {
        "FirstOffset": batch.first_offset,
        "LastOffset": batch.last_offset,
        "DeliveryState": batch.delivery_state,
        "DeliveryCount": batch.delivery_count,
    }


def early_batch_fields(batch: StateBatch) -> dict[str, int]:
    """One batch under the names that the documents had first."""
    return {
        "BaseOffset": batch.first_offset,
        "LastOffset": batch.last_offset,
        "State": batch.delivery_state,
        "DeliveryCount": batch.delivery_count,
    }


def _batch(entry: Fields | Sequence[int]) -> StateBatch:
    numbers = [one_of(entry, names) for names in _BATCH_NAMES] if isinstance(entry, Mapping) else entry
    return StateBatch(
        first_offset=numbers[0], last_offset=numbers[1], delivery_state=numbers[2], delivery_count=numbers[3]
    )


def one_of(fields: Fields, names: Sequence[str], default: Any = None) -> Any:
    """The field under the one of `names` that is there. Raises InputError: it is missing, or given twice."""
    there = [name for name in names if name in fields]
    if len(there) > 1:
        raise InputError(f"{there[0]} is given twice, also as {there[1]}")
    if not there and default is None:
        raise InputError(f"{names[0]} is missing")
    return fields[there[0]] if there else default
