"""Numbers that callers hand to the admin client, checked before they are put into a request."""

from __future__ import annotations

from typing import Final

from acktrail.errors import InputError

__all__ = ["check_offset", "check_partition", "check_timestamp"]

_LARGEST_PARTITION: Final = (1 << 31) - 1
_LARGEST_OFFSET: Final = (1 << 63) - 1


def check_partition(topic: str, partition: object) -> None:
    """Raises InputError unless `partition` is an int that Kafka has room for (int32, from 0 on)."""
    if not _is_whole(partition, _LARGEST_PARTITION):
        raise InputError(f"{topic}: {partition!r} is no partition", hint="partitions count from 0 to 2147483647")


def check_offset(topic: str, partition: int, offset: object) -> None:
    """Raises InputError unless `offset` is an int that Kafka has room for (int64, from 0 on)."""
    if not _is_whole(offset, _LARGEST_OFFSET):
        raise InputError(f"{topic}:{partition}: no such start offset: {offset!r}", hint="whole numbers, from 0 on")


def check_timestamp(timestamp_ms: object) -> None:
    """Raises InputError unless `timestamp_ms` is an int of milliseconds since the epoch."""
    if not _is_whole(timestamp_ms, _LARGEST_OFFSET):
        raise InputError(f"{timestamp_ms!r} is no time", hint="whole milliseconds since 1970-01-01T00:00:00Z")


def _is_whole(number: object, largest: int) -> bool:
    """True and False are ints to Python, and no numbers to a caller."""
    return type(number) is int and 0 <= number <= largest
