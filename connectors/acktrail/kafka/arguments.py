"""What callers give to the admin client, looked at before anything is sent. A broker answers some of it with silence,
closes the connection, or takes it for something else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from acktrail.errors import WrongType, WrongValue
from acktrail.kafka.descriptions import TopicPartition

LONGEST_TEXT: Final = 32_767
"""Bytes of UTF-8 in a string of Kafka's protocol (``Readable.readString`` takes an int16's worth, compact or not)."""
_LARGEST_PARTITION: Final = (1 << 31) - 1
_LARGEST_OFFSET: Final = (1 << 63) - 1

_ItemT = TypeVar("_ItemT")


def text_of(kind: str, value: object) -> str:
    """`value` as text that a request can hold. Raises WrongType unless it is a str; WrongValue when it is empty, no
    Unicode (a lone surrogate), or longer than LONGEST_TEXT."""
    if type(value) is not str:
        raise WrongType(f"{value!r:.100} is no {kind}", hint=f"a {kind} is a str")
    if not value:
        raise WrongValue(f"an empty {kind}", hint=f"name the {kind}")
    return check_size(kind, value)


def check_size(kind: str, value: str) -> str:
    """`value`, which may be empty, as text that a request can hold; see `text_of`."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise WrongValue(f"{value!a:.100} is no {kind}", hint="half of a character (a surrogate) is in it") from None
    if size > LONGEST_TEXT:
        raise WrongValue(f"a {kind} of {size} bytes", hint=f"Kafka's protocol has room for {LONGEST_TEXT} bytes")
    return value


def texts_of(kind: str, values: object) -> tuple[str, ...]:
    """Each of `values` once, in their order; raises as `text_of`, and WrongType for one str in place of many."""
    return tuple(dict.fromkeys(text_of(kind, value) for value in _many(f"{kind}s", values)))


def items_of(kind: type[_ItemT], values: object) -> tuple[_ItemT, ...]:
    """All of `values`. Raises WrongType unless they are a collection of `kind`."""
    found = tuple(_many(f"{kind.__name__} values", values))
    for value in found:
        if not isinstance(value, kind):
            raise WrongType(f"{value!r:.100} is no {kind.__name__}")
    return found


def by_name(kind: str, values: object) -> Mapping[str, Any]:
    """`values` by the names of what `kind` says. Raises WrongType unless it is a mapping; as `text_of` for a name."""
    if not isinstance(values, Mapping):
        raise WrongType(f"{values!r:.100} is no mapping by {kind}")
    return {text_of(kind, name): value for name, value in values.items()}


def partitions_of(partitions: object) -> tuple[TopicPartition, ...]:
    """Partitions of topics that Kafka has room for; raises as `text_of` and `partition_of`."""
    found = items_of(TopicPartition, partitions)
    for each in found:
        partition_of(text_of("topic", each.topic), each.partition)
    return found


def indices_of(topics: object) -> dict[str, tuple[int, ...]]:
    """Partitions by topic; raises as `text_of` and `partition_of`."""
    return {
        topic: tuple(partition_of(topic, index) for index in _many(f"partitions of {topic}", indices))
        for topic, indices in by_name("topic", topics).items()
    }


def partition_of(topic: str, partition: object) -> int:
    """Raises WrongType unless `partition` is an int, WrongValue unless Kafka has room for it (int32, from 0 on)."""
    hint = f"partitions count from 0 to {_LARGEST_PARTITION}"
    return _whole(partition, _LARGEST_PARTITION, f"{topic}: {partition!r} is no partition", hint)


def offset_of(where: str, offset: object) -> int:
    """Raises as `partition_of`, for a start offset of `where`: an int64, from 0 on."""
    return _whole(offset, _LARGEST_OFFSET, f"{where}: no such start offset: {offset!r}", "whole numbers, from 0 on")


def time_of(timestamp_ms: object) -> int:
    """Raises as `partition_of`, for milliseconds since the epoch."""
    hint = "whole milliseconds since 1970-01-01T00:00:00Z"
    return _whole(timestamp_ms, _LARGEST_OFFSET, f"{timestamp_ms!r} is no time", hint)


def _whole(number: object, largest: int, message: str, hint: str) -> int:
    """True and False are ints to Python, and no numbers to a caller."""
    if type(number) is not int:
        raise WrongType(message, hint=hint)
    if not 0 <= number <= largest:
        raise WrongValue(message, hint=hint)
    return number


def _many(kind: str, values: object) -> Iterable[Any]:
    """A str is a collection of letters to Python, and one name to a caller."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise WrongType(f"{values!r:.100} where {kind} are wanted", hint="give a list, also of one")
    return values
