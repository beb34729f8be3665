"""A point in a copied log, and the records up to it: an offset of each state partition, or a time, which cuts each
before its first record with a later timestamp, as Kafka's lookup of an offset by time does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from acktrail.errors import InputError
from acktrail.format.wire.raw_record import RawRecord
from acktrail.times import instant_ms

_EARLIEST_TIME_MS: Final = 100_000_000_000
"""March 1973: a lower number is no time, but an offset without its state partition."""
_LATEST_MS: Final = 1 << 63
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_PAIR: Final = re.compile(r"([0-9]{1,10}):([0-9]{1,19})")
_HINT: Final = "give PARTITION:OFFSET,..., a time (2026-08-01T12:00:00Z), how long ago (1h), or epoch ms"
_Kept = Iterator[tuple[RawRecord, bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOffsets:
    """The last offset of each state partition, inclusive; no record of others is included."""

    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTime:
    """ms since the epoch, inclusive."""

    timestamp_ms: int


LogPoint = AtOffsets | AtTime


@dataclass(slots=True, kw_only=True)
class LogCut:
    """What a point includes, filled in while records are read: the last offset of each state partition, and the numbers
    of records after the point (`later`) and in state partitions that it does not name (`unnamed`)."""

    last_offsets: dict[int, int] = field(default_factory=dict)
    later: int = 0
    unnamed: dict[int, int] = field(default_factory=dict)


def parse_log_point(text: str) -> LogPoint:
    """``3:120,7:45`` are offsets by state partition; a lone number is epoch ms; ``1h`` is that long ago;
    everything else must be an RFC 3339 time with its offset from UTC. Fractions below a ms are cut off. Raises
    InputError: it is none of these."""
    if _NUMBER.fullmatch(text):
        number = _fitting(int(text), text)
        if number < _EARLIEST_TIME_MS:
            raise InputError(f"--at {text!r} is no moment: an offset needs its state partition", hint=_HINT)
        return AtTime(timestamp_ms=number)
    pairs = [pair for part in text.split(",") if (pair := _PAIR.fullmatch(part.strip()))]
    if len(pairs) == text.count(",") + 1:
        offsets: dict[int, int] = {}
        for pair in pairs:
            partition, offset = int(pair[1]), _fitting(int(pair[2]), text)
            if offsets.setdefault(partition, offset) != offset:
                raise InputError(f"--at {text!r} gives state partition {partition} two offsets")
        return AtOffsets(offsets=offsets)
    return AtTime(timestamp_ms=instant_ms("--at", text, kind="moment", hint=_HINT))


def up_to(records: Iterable[RawRecord], point: LogPoint, cut: LogCut) -> Iterator[RawRecord]:
    """Those of `records` (in log order per state partition) up to `point`; fills in `cut`. Raises InputError where the
    point does not fit: a state partition that has no record, or a time for
    records without timestamp."""
    match point:
        case AtOffsets():
            kept = _by_offsets(records, point.offsets, cut)
        case AtTime():
            kept = _by_time(records, point.timestamp_ms)
    for record, is_included in kept:
        if is_included:
            cut.last_offsets[record.state_partition] = record.offset
            yield record
        else:
            cut.later += 1


def _by_offsets(records: Iterable[RawRecord], offsets: Mapping[int, int], cut: LogCut) -> _Kept:
    seen: set[int] = set()
    for record in records:
        last = offsets.get(record.state_partition)
        if last is None:
            cut.unnamed[record.state_partition] = cut.unnamed.get(record.state_partition, 0) + 1
            continue
        seen.add(record.state_partition)
        yield record, record.offset <= last
    missing = sorted(offsets.keys() - seen)
    if missing:
        raise InputError(f"--at names state partition {missing[0]}, but the files have no record of it")


def _by_time(records: Iterable[RawRecord], latest_ms: int) -> _Kept:
    over: set[int] = set()
    for record in records:
        if record.timestamp_ms < 0:
            raise InputError(
                f"state partition {record.state_partition}, offset {record.offset} has no timestamp: "
                "the state at a time is not known",
                hint="give --at PARTITION:OFFSET,...",
            )
        if record.timestamp_ms > latest_ms:
            over.add(record.state_partition)
        yield record, record.state_partition not in over


def _fitting(number: int, text: str) -> int:
    if number >= _LATEST_MS:
        raise InputError(f"--at {text!r} is out of range", hint=_HINT)
    return number
