"""Which layout a state topic is written in: Kafka 4.0's, or that of 4.1 and later.

Every release writes value version 0, so only the bytes distinguish them. A layout reads a value when it uses every byte
and each field holds what a broker can write. Drafts are not candidates: no cluster ever wrote them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from acktrail.errors import ConfigurationError, InputError, MalformedRecord
from acktrail.format.wire.dialects.dialect import Dialect
from acktrail.format.wire.dialects.released import KAFKA_4_0, KAFKA_4_2
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone

CANDIDATES: Final = (KAFKA_4_0, KAFKA_4_2)
"""4.2 also covers 4.1: it reads 4.1 records the same way, and keeps the count of later records."""

_LATEST_MS: Final = 4_102_444_800_000
"""The year 2100: a later number is not a write time."""

_HINT: Final = "name the dialect that the brokers' release writes: 4.0, or 4.2 for 4.1 and later"


def detect_layout(sample: Iterable[tuple[bytes | None, bytes | None]]) -> Dialect[StateRecord]:
    """The dialect that all records of `sample`, as (key, value), agree on. Tombstones, other record types and records
    that both dialects or none can read decide nothing; where no dialect reads any, it is 4.2's. Raises
    ConfigurationError: they do not agree, or both dialects read all that one of them reads."""
    pairs = ((key, value) for key, value in sample if key is not None and value is not None)
    readers = [tuple(each for each in CANDIDATES if reads(each, *pair)) for pair in pairs]
    alone = {each[0].name: each[0] for each in readers if len(each) == 1}
    if len(alone) == 1 or not any(readers):
        return next(iter(alone.values()), KAFKA_4_2)
    fault = f"the records are of two dialects, {' and '.join(sorted(alone))}" if alone else "the dialect is ambiguous"
    raise ConfigurationError(fault, hint=_HINT)


def reads(dialect: Dialect[StateRecord], key: bytes, value: bytes) -> bool:
    """Whether `value` is exactly one record of `dialect`, with fields that a broker writes."""
    try:
        record = dialect.decode(key, value)
    except InputError:
        return False
    return not isinstance(record, Tombstone) and _is_exact(dialect, key, value, record) and _is_sane(record)


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
