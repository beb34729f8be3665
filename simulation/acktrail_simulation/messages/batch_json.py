"""State batches as JSON, under every name that the founding documents gave their fields.

The documents renamed fields on the way; both names are read (``BaseOffset`` and ``FirstOffset``, ``State`` and
``DeliveryState``, ``States`` and ``StateBatches``), the later one is written. A batch may also be a list of its four
numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from acktrail.errors import InputError
from acktrail.model.batches import StateBatch

Fields = Mapping[str, object]

_BATCH_NAMES: Final = (
    ("FirstOffset", "BaseOffset"),
    ("LastOffset",),
    ("DeliveryState", "State"),
    ("DeliveryCount",),
)
_ARRAY_NAMES: Final = ("StateBatches", "States")


def read_batches(fields: Fields) -> tuple[StateBatch, ...]:
    """The state batches of `fields`, under either name of the array and of its fields; none when there is no array.

    Raises:
        InputError: for a field that is missing, given under both names, or no integer.
    """
    found = one_of(fields, _ARRAY_NAMES, default=())
    if not isinstance(found, Sequence) or isinstance(found, str):
        raise InputError(f"{_ARRAY_NAMES[0]} is no list")
    return tuple(_batch(entry) for entry in found)


def batch_fields(batch: StateBatch) -> dict[str, int]:
    """One batch under the later names."""
    return {
        "FirstOffset": batch.first_offset,
        "LastOffset": batch.last_offset,
        "DeliveryState": batch.delivery_state,
        "DeliveryCount": batch.delivery_count,
    }


def _batch(entry: object) -> StateBatch:
    if isinstance(entry, Mapping):
        numbers = [number(one_of(entry, names), names[0]) for names in _BATCH_NAMES]
    elif isinstance(entry, Sequence) and len(entry) == len(_BATCH_NAMES) and not isinstance(entry, str):
        numbers = [number(value, names[0]) for value, names in zip(entry, _BATCH_NAMES, strict=True)]
    else:
        raise InputError("a state batch is no object and no list of four numbers")
    return StateBatch(
        first_offset=numbers[0], last_offset=numbers[1], delivery_state=numbers[2], delivery_count=numbers[3]
    )


def one_of(fields: Fields, names: Sequence[str], default: object = None) -> object:
    """The field under the one of `names` that is there. Raises InputError: it is missing, or given twice."""
    there = [name for name in names if name in fields]
    if len(there) > 1:
        raise InputError(f"{there[0]} is given twice, also as {there[1]}")
    if not there and default is None:
        raise InputError(f"{names[0]} is missing")
    return fields[there[0]] if there else default


def number(value: object, name: str) -> int:
    """An integer. Raises InputError: it is none."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"{name} is no integer")
    return value
