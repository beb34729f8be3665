"""Which layout a state topic is written in: Kafka 4.0's, or that of 4.1 and later.

Every release writes value version 0, so only the bytes distinguish them. A layout reads a value when it uses every byte
and each field holds what a broker can write. Drafts are not candidates: no cluster ever wrote them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from acktrail.errors import ConfigurationError, InputError, MalformedRecord
from acktrail.format.wire.dialects.dialect import Dialect
from acktrail.format.wire.dialects.released import KAFKA_4_0, KAFKA_4_2, decode_key
from acktrail.format.wire.primitives import batches_form
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone

CANDIDATES: Final = (KAFKA_4_0, KAFKA_4_2)
"""4.2 also covers 4.1: it reads 4.1 records the same way, and keeps the count of later records."""

_LATEST_MS: Final = 4_102_444_800_000
"""The year 2100: a later number is not a write time."""

_HINT: Final = "name the dialect that the brokers' release writes: 4.0, or 4.2 for 4.1 and later"


def detect_layout(sample: Iterable[tuple[bytes | None, bytes | None]]) -> str:
    """The name of the dialect that all records of `sample`, as (key, value), agree on. Tombstones, other record types
    and records that both dialects or none can read decide nothing. Raises ConfigurationError when they do not agree,
    when both dialects read all there is, or when nothing can be read; `data["readings"]` has a record of each
    reading."""
    witnesses: dict[str, tuple[bytes, bytes]] = {}
    counts = dict.fromkeys((c.name for c in CANDIDATES), 0)
    both: tuple[bytes, bytes] | None = None
    unread = 0
    for key, value in sample:
        if key is None or value is None or not _has_known_key(key):
            continue
        readers = [candidate.name for candidate in CANDIDATES if reads(candidate, key, value)]
        if len(readers) == 1:
            witnesses.setdefault(readers[0], (key, value))
            counts[readers[0]] += 1
        elif readers:
            both = both or (key, value)
        else:
            unread += 1
    if len(witnesses) != 1:
        raise _undecided(witnesses, counts, both, unread)
    return next(iter(witnesses))


def reads(dialect: Dialect[StateRecord], key: bytes, value: bytes) -> bool:
    """Whether `value` is exactly one record of `dialect`, with fields that a broker writes."""
    try:
        record = dialect.decode(key, value)
    except InputError:
        return False
    return not isinstance(record, Tombstone) and _is_exact(dialect, key, value, record) and _is_sane(record)


def _has_known_key(key: bytes) -> bool:
    try:
        decode_key(key)
    except InputError:
        return False
    return True


def _is_exact(dialect: Dialect[StateRecord], key: bytes, value: bytes, record: StateRecord) -> bool:
    """Whether no byte is left over. No release adds tagged fields to 4.0, so there the encoded bytes must be equal."""
    if dialect is KAFKA_4_0 and dialect.encode is not None:
        return dialect.encode(record)[1] == value
    try:
        dialect.decode(key, value[:-1])
    except MalformedRecord:
        return True
    return False


def _is_sane(record: ShareSnapshot | ShareUpdate) -> bool:
    numbers = [record.snapshot_epoch, record.leader_epoch or 0]
    if isinstance(record, ShareSnapshot):
        times = (record.create_timestamp_ms or 0, record.write_timestamp_ms or 0)
        if max(times) >= _LATEST_MS:
            return False
        numbers += [record.state_epoch, *times]
    return min(numbers) >= 0 and all(
        0 <= batch.first_offset <= batch.last_offset and batch.delivery_state >= 0 and batch.delivery_count >= 0
        for batch in record.batches
    )


def _undecided(
    witnesses: dict[str, tuple[bytes, bytes]], counts: dict[str, int], both: tuple[bytes, bytes] | None, unread: int
) -> ConfigurationError:
    readings = {}
    if witnesses:
        readings = {name: _reading(name, *record) for name, record in witnesses.items()}
        shown = "; ".join(f"{counts[name]} as {name}, such as {reading}" for name, reading in readings.items())
        fault = f"the records are of two dialects: {shown}"
    elif both is not None:
        readings = {candidate.name: _reading(candidate.name, *both) for candidate in CANDIDATES}
        shown = "; ".join(f"{name} reads {reading}" for name, reading in readings.items())
        fault = f"the dialect is ambiguous: {shown}"
    else:
        reason = f"none of {unread} records can be read" if unread else "no record with a value was given"
        fault = f"the dialect is not known: {reason}"
    return ConfigurationError(fault, hint=_HINT, data={"readings": readings})


def _reading(name: str, key: bytes, value: bytes) -> str:
    dialect = next(candidate for candidate in CANDIDATES if candidate.name == name)
    record = dialect.decode(key, value)
    if isinstance(record, Tombstone):
        return "tombstone"
    kind = "snapshot" if isinstance(record, ShareSnapshot) else "update"
    more = f" and {len(record.batches) - 3} more" if len(record.batches) > 3 else ""
    return (
        f"{kind} with snapshot_epoch {record.snapshot_epoch}, leader_epoch {record.leader_epoch},"
        f" start_offset {record.start_offset}, batches {batches_form(record.batches[:3])}{more}"
    )
