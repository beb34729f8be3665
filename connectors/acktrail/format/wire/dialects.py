"""State records as releases of Kafka write them.

Layout (Kafka: ``ShareSnapshotValue.json``, ``ShareUpdateValue.json``): a value is an int16 version, 0 in every release,
and a flexible body. 4.0 (early access) has a uint16 snapshot epoch and no timestamps; 4.1 (preview) an int32 one, and
timestamps; 4.2 adds the delivery complete count as tag 0 (KIP-1226). Unknown tagged fields and bytes after the message
are skipped, as Kafka's generated readers do.

Keys are the same in every release since Kafka 4.0 (``ShareSnapshotKey.json``, ``ShareUpdateKey.json``): int16 type
(0 snapshot, 1 update), string group id, 16-byte topic id, int32 partition, not flexible.

Every release writes value version 0, so only the bytes distinguish them (``detect_layout``). A layout reads a value
when it uses every byte and each field holds what a broker can write. Drafts are not candidates: no cluster ever wrote
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from struct import Struct
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from acktrail.errors import ConfigurationError, InputError, MalformedRecord, UnsupportedRecord
from acktrail.format.wire.primitives import (
    INT16,
    INT32,
    INT64,
    UINT16,
    Reader,
    absent_if_none,
    batches_form,
    none_if_absent,
    packed,
    read_compact_batch_array,
    read_version,
    write_compact_batch_array,
)
from acktrail.model.records import RecordAt, ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.replay import Policy, SharePartitionState
from acktrail.model.share_partition import TOPIC_ID_BYTES, GroupId, SharePartition, topic_id_bytes, topic_id_text

SNAPSHOT_TYPE: Final = 0
UPDATE_TYPE: Final = 1
_VALUE_VERSION: Final = 0
_ABSENT: Final = -1
_COUNT_TAG: Final = 0
_LATEST_MS: Final = 4_102_444_800_000
"""The year 2100: a later number is not a write time."""
_HINT: Final = "name the dialect that the brokers' release writes: 4.0, or 4.2 for 4.1 and later"
RecordT = TypeVar("RecordT")
JsonForm = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectReplay:
    """What a log's replay leaves, as JSON: an object a share partition, and one a finding, which is a rule that one
    record broke, in the order of the log. `differences` are the findings about skipped records, which a broker would
    have applied."""

    states: Sequence[JsonForm]
    findings: Sequence[JsonForm] = ()
    differences: Sequence[JsonForm] = ()


Replay = Callable[[Iterable[RecordAt[Any]], Policy], DialectReplay]
"""Replay of records that come in log order within a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect(Generic[RecordT]):
    """One byte layout of records.

    `decode` takes key and value and raises MalformedRecord or UnsupportedRecord; `encode` is its inverse, raises
    ValueError for a field or number that the layout cannot hold, and is None for a draft. Records `in_control_batches`
    of the topic itself are read from files only: on a live cluster types 5 and 6 are KRaft's. A draft has a form of its
    own: `content` is that of a record, which lies on a partition; and rules of its own: `replay`.
    """

    name: str
    decode: Callable[[bytes | None, bytes | None], RecordT]
    encode: Callable[[RecordT], tuple[bytes, bytes | None]] | None = None
    in_control_batches: bool = False
    content: Callable[[RecordT, int], JsonForm] | None = None
    replay: Replay | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """What differs between the releases' values."""

    release: str
    epoch: Struct = INT32
    has_times: bool = True
    has_count: bool = True


_4_2: Final = _Layout(release="4.2")


def decode(key: bytes | None, value: bytes | None, layout: _Layout = _4_2) -> StateRecord:
    """The record encoded in a key and a value, as Kafka 4.2 and later write them (and 4.1 without the complete count).

    Raises:
        UnsupportedRecord: for an unknown record type or value version.
        MalformedRecord: for bytes that are not such a record, with the byte position; also for a null key and for a
            null value under an update key: no broker writes them, and a broker fails to load them.
    """
    if key is None:
        raise MalformedRecord("null key", part="key", position=0)
    kind, share_partition = decode_key(key)
    if value is None:
        if kind == UPDATE_TYPE:
            raise MalformedRecord("null value under an update key", part="value", position=0)
        return Tombstone(key=share_partition)
    reader = Reader(value, "value")
    read_version(reader, (_VALUE_VERSION,))
    return (_read_snapshot if kind == SNAPSHOT_TYPE else _read_update)(share_partition, reader, layout)


def encode(record: StateRecord, layout: _Layout = _4_2) -> tuple[bytes, bytes | None]:
    """Key and value of `record` as Kafka 4.2 and later write them; an unknown complete count is left out. Raises
    ValueError for a snapshot without timestamps (Kafka 4.0), or a number that does not fit."""
    if isinstance(record, Tombstone):
        return encode_key(SNAPSHOT_TYPE, record.key), None
    count = record.delivery_complete_count
    if count is not None and not layout.has_count:
        raise ValueError(f"a record of Kafka {layout.release} has no complete count")
    fields = [INT16.pack(_VALUE_VERSION), packed(layout.epoch, record.snapshot_epoch, "snapshot epoch")]
    if isinstance(record, ShareSnapshot):
        fields.append(packed(INT32, record.state_epoch, "state epoch"))
    fields.append(packed(INT32, absent_if_none(record.leader_epoch), "leader epoch"))
    fields.append(packed(INT64, absent_if_none(record.start_offset), "start offset"))
    if isinstance(record, ShareSnapshot):
        times = (record.create_timestamp_ms, record.write_timestamp_ms)
        if any((time is not None) != layout.has_times for time in times):
            number = "two" if layout.has_times else "no"
            raise ValueError(f"a snapshot of Kafka {layout.release} has {number} timestamps")
        fields += [packed(INT64, time, "timestamp") for time in times if time is not None]
    fields.append(write_compact_batch_array(record.batches))
    fields.append(b"\x00" if count is None else b"\x01\x00\x04" + packed(INT32, count, "complete count"))
    kind = SNAPSHOT_TYPE if isinstance(record, ShareSnapshot) else UPDATE_TYPE
    return encode_key(kind, record.key), b"".join(fields)


def _read_snapshot(key: SharePartition, reader: Reader, layout: _Layout) -> ShareSnapshot:
    return ShareSnapshot(
        key=key,
        snapshot_epoch=reader.integer(layout.epoch),
        state_epoch=reader.integer(INT32),
        leader_epoch=reader.integer(INT32),
        start_offset=none_if_absent(reader.integer(INT64)),
        create_timestamp_ms=reader.integer(INT64) if layout.has_times else None,
        write_timestamp_ms=reader.integer(INT64) if layout.has_times else None,
        batches=read_compact_batch_array(reader),
        delivery_complete_count=_read_count(reader, layout),
    )


def _read_update(key: SharePartition, reader: Reader, layout: _Layout) -> ShareUpdate:
    return ShareUpdate(
        key=key,
        snapshot_epoch=reader.integer(layout.epoch),
        leader_epoch=none_if_absent(reader.integer(INT32)),
        start_offset=none_if_absent(reader.integer(INT64)),
        batches=read_compact_batch_array(reader),
        delivery_complete_count=_read_count(reader, layout),
    )


def _read_count(reader: Reader, layout: _Layout) -> int | None:
    """The delivery complete count from the message's tag buffer; None where it is absent or -1, and for a release that
    skips its tag."""
    if layout.has_count:
        return none_if_absent(reader.tagged_integer(_COUNT_TAG, INT32, _ABSENT))
    reader.skip_tagged_fields()
    return None


def _dialect(layout: _Layout) -> Dialect[StateRecord]:
    return Dialect(name=layout.release, decode=partial(decode, layout=layout), encode=partial(encode, layout=layout))


_4_0: Final = _Layout(release="4.0", epoch=UINT16, has_times=False, has_count=False)


KAFKA_4_0: Final = _dialect(_4_0)


KAFKA_4_1: Final = _dialect(_Layout(release="4.1", has_count=False))
"""A 4.2 record loses its count here. 4.2 reads 4.1 records the same way; use this one only to see what a 4.1 broker
reads."""


KAFKA_4_2: Final = _dialect(_4_2)


def decode_key(key: bytes) -> tuple[int, SharePartition]:
    """The record type and the share partition of a key.

    Raises:
        UnsupportedRecord: for a type other than snapshot and update.
        MalformedRecord: when the key is cut off or malformed.
    """
    reader = Reader(key, "key")
    kind = reader.integer(INT16)
    if kind not in (SNAPSHOT_TYPE, UPDATE_TYPE):
        raise UnsupportedRecord("unknown record type", part="key", number=kind)
    return kind, read_share_partition(reader)


def read_share_partition(reader: Reader) -> SharePartition:
    """Group id, topic id and partition, as every key of the state topic has them."""
    return SharePartition(
        group_id=GroupId(reader.string()),
        topic_id=topic_id_text(reader.raw(TOPIC_ID_BYTES)),
        partition=reader.integer(INT32),
    )


def key_form(share_partition: SharePartition) -> dict[str, object]:
    """In JSON: group, topic id and partition."""
    return {
        "group": share_partition.group_id,
        "topic_id": share_partition.topic_id,
        "partition": share_partition.partition,
    }


def state_json(state: SharePartitionState) -> JsonForm:
    """The replayed state of one share partition; `state_epoch` is -1 where only updates were seen."""
    return {
        **key_form(state.key),
        "state_epoch": absent_if_none(state.state_epoch),
        "snapshot_epoch": state.snapshot_epoch,
        "leader_epoch": absent_if_none(state.leader_epoch),
        "start_offset": absent_if_none(state.start_offset),
        "delivery_complete_count": state.delivery_complete_count,
        "batches": batches_form(state.batches),
    }


def encode_key(kind: int, share_partition: SharePartition) -> bytes:
    """The key of a record of type `kind`."""
    group_id = share_partition.group_id.encode("utf-8")
    head = INT16.pack(kind) + INT16.pack(len(group_id)) + group_id
    return head + topic_id_bytes(share_partition.topic_id) + INT32.pack(share_partition.partition)


RELEASED: Final[Mapping[str, Dialect[StateRecord]]] = MappingProxyType(
    {"4.0": KAFKA_4_0, "4.1": KAFKA_4_1, "4.2": KAFKA_4_2, "4.3": KAFKA_4_2, "4.4": KAFKA_4_2}
)
"""By the number of a release: the dialect that it writes."""


CANDIDATES: Final = (KAFKA_4_0, KAFKA_4_2)
"""4.2 also covers 4.1: it reads 4.1 records the same way, and keeps the count of later records."""


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
