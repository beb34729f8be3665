"""A record with its address: decoded, or kept with the reason why it could not be."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeVar

from acktrail.errors import MalformedRecord, UnsupportedRecord
from acktrail.format.wire.state_record import decode
from acktrail.model.records import StateRecord

RecordT = TypeVar("RecordT")
_FINGERPRINT_HEAD: Final = struct.Struct(">qq?q?")


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
        if error.part == "key":
            status = DecodeStatus.NULL_KEY if raw.key is None else DecodeStatus.MALFORMED_KEY
        else:
            status = DecodeStatus.NULL_UPDATE if raw.value is None else DecodeStatus.MALFORMED_VALUE
        return AddressedRecord(raw=raw, status=status, reason=error.message, record=None)
    return AddressedRecord(raw=raw, status=DecodeStatus.DECODED, reason=None, record=record)


def record_fingerprint(offset: int, timestamp_ms: int | None, key: bytes | None, value: bytes | None) -> int:
    """A positive 63-bit number of a record's offset in Kafka's log, its timestamp and its bytes.

    Two logs that have the same record at an offset have the same records before it (Kafka: replicas agree up to the
    high watermark), so one comparison shows whether a log is the one that was read before.
    """
    time = -1 if timestamp_ms is None else timestamp_ms
    head = _FINGERPRINT_HEAD.pack(offset, time, key is None, len(key or b""), value is None)
    digest = hashlib.sha256(head + (key or b"") + (value or b"")).digest()
    return int.from_bytes(digest[:8], "big") >> 1 or 1
