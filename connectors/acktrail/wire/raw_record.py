"""A record with its address: decoded, or kept with the reason why it could not be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from acktrail.errors import MalformedRecord, UnsupportedRecord
from acktrail.model.records import StateRecord
from acktrail.wire.dialects.kafka_4_2 import decode

RecordT = TypeVar("RecordT")


class DecodeStatus(StrEnum):
    """The outcome of decoding a record."""

    DECODED = "decoded"
    NULL_KEY = "null_key"
    MALFORMED_KEY = "malformed_key"
    UNKNOWN_TYPE = "unknown_type"
    NULL_UPDATE = "null_update"
    """A null value under an update key."""
    UNKNOWN_VERSION = "unknown_version"
    MALFORMED_VALUE = "malformed_value"


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRecord:
    """One record of the state topic, undecoded; `timestamp_ms` is ms since the epoch."""

    state_partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressedRecord(Generic[RecordT]):
    """A raw record and its content: `record` is None exactly when `status` is not DECODED; `reason` says why."""

    raw: RawRecord
    status: DecodeStatus
    reason: str | None
    record: RecordT | None


def decode_raw(raw: RawRecord) -> AddressedRecord[StateRecord]:
    """Decode one record as Kafka 4.1 and later write it; never raises for its content."""
    return decode_with(decode, raw)


def decode_with(decoder: Callable[[bytes | None, bytes | None], RecordT], raw: RawRecord) -> AddressedRecord[RecordT]:
    """Decode one record with a dialect's decoder; never raises for its content."""
    try:
        record = decoder(raw.key, raw.value)
    except UnsupportedRecord as error:
        status = DecodeStatus.UNKNOWN_TYPE if error.part == "key" else DecodeStatus.UNKNOWN_VERSION
        return AddressedRecord(raw=raw, status=status, reason=error.message, record=None)
    except MalformedRecord as error:
        return AddressedRecord(raw=raw, status=_malformed(raw, error), reason=error.message, record=None)
    return AddressedRecord(raw=raw, status=DecodeStatus.DECODED, reason=None, record=record)


def _malformed(raw: RawRecord, error: MalformedRecord) -> DecodeStatus:
    if error.part == "key":
        return DecodeStatus.NULL_KEY if raw.key is None else DecodeStatus.MALFORMED_KEY
    return DecodeStatus.NULL_UPDATE if raw.value is None else DecodeStatus.MALFORMED_VALUE
