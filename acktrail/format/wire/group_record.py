"""Records of ``__consumer_offsets`` about share groups, types 10 to 15 (Kafka: ``CoordinatorRecordType``), to fields:
members, epochs, assignments, lifecycle of state.

A key is int16 type, string group id and, for types 10, 13 and 14, string member id; not flexible. A value is int16
version 0 and a flexible body (Kafka 4.1 and later: ``ShareGroup*Key/Value.json`` of the group coordinator; 4.0 had
other layouts under the same version). Unknown tagged fields and bytes after the message are skipped, as Kafka does.
The topic is compacted: of every key only the newest record is certain to be there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from operator import methodcaller
from typing import Any, Final

from acktrail.errors import MalformedRecord, UnsupportedRecord
from acktrail.format.wire.primitives import INT8, INT16, INT32, INT64, Reader, read_version
from acktrail.model.share_partition import TOPIC_ID_BYTES, GroupId, TopicId, topic_id_text

OTHER_TYPES: Final = frozenset({*range(9), *range(16, 24)})
"""Offsets (0, 1), classic groups (2), consumer groups (3 to 8, 16) and streams groups (17 to 23)."""
VALUE_VERSION: Final = 0
_TIMESTAMP_TAG: Final = 0
_NO_TIMESTAMP: Final = 0

_Read = Callable[[Reader], Any]


class GroupRecordType(IntEnum):
    """The type that a key begins with; Kafka's names without ``SHARE_GROUP``."""

    MEMBER_METADATA = 10
    """A member, and what it subscribed to."""
    METADATA = 11
    """The group epoch, and a hash over the metadata of the subscribed topics."""
    TARGET_ASSIGNMENT_METADATA = 12
    """The epoch of the target assignment. Its time in ms is known from Kafka 4.3 on (KIP-1263)."""
    TARGET_ASSIGNMENT_MEMBER = 13
    """What a member is to have."""
    CURRENT_MEMBER_ASSIGNMENT = 14
    """What a member has; `state` is Kafka's number (``MemberState``)."""
    STATE_PARTITION_METADATA = 15
    """Which share partitions have state, are getting it, or are losing it; a topic is ``<UNKNOWN>`` where the
    coordinator does not know the name."""

    @property
    def has_member(self) -> bool:
        """The record is of one member of the group."""
        return self in (self.MEMBER_METADATA, self.TARGET_ASSIGNMENT_MEMBER, self.CURRENT_MEMBER_ASSIGNMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupRecord:
    """One record. `member_id` None: its type has none. `fields`: those of ``LAYOUTS``; None: it was removed."""

    record_type: GroupRecordType
    group_id: GroupId
    member_id: str | None
    fields: Mapping[str, Any] | None

    @property
    def address(self) -> dict[str, str]:
        """Group and, where the type has one, member."""
        return {"group_id": self.group_id, **({} if self.member_id is None else {"member_id": self.member_id})}


def _timestamp(reader: Reader) -> int | None:
    """The one tagged field of its record, whose tag buffer is read with it."""
    return reader.tagged_integer(_TIMESTAMP_TAG, INT64, _NO_TIMESTAMP) or None


def _topic_id(reader: Reader) -> TopicId:
    return topic_id_text(reader.raw(TOPIC_ID_BYTES))


def _array(least: int, **fields: _Read) -> _Read:
    """An array of structures of `fields`, of at least `least` bytes behind the topic id."""

    def one(reader: Reader) -> Any:
        found = {name: read(reader) for name, read in fields.items()}
        reader.skip_tagged_fields()
        return found

    return lambda reader: reader.compact_array(lambda: one(reader), least=TOPIC_ID_BYTES + least)


_epoch: Final[_Read] = methodcaller("integer", INT32)
_ids: Final[dict[str, _Read]] = {"topic_id": _topic_id, "topic": Reader.compact_string}
_partitions: Final[dict[str, _Read]] = {"partitions": Reader.compact_int32s}
_assigned: Final = _array(2, topic_id=_topic_id, **_partitions)
_named: Final = _array(3, **_ids, **_partitions)

LAYOUTS: Final[Mapping[GroupRecordType, Mapping[str, _Read]]] = {
    GroupRecordType.MEMBER_METADATA: {
        "rack_id": Reader.compact_nullable_string,
        "client_id": Reader.compact_string,
        "client_host": Reader.compact_string,
        "subscribed_topics": lambda reader: reader.compact_array(reader.compact_string, least=1),
    },
    GroupRecordType.METADATA: {"epoch": _epoch, "metadata_hash": methodcaller("integer", INT64)},
    GroupRecordType.TARGET_ASSIGNMENT_METADATA: {"assignment_epoch": _epoch, "assignment_timestamp_ms": _timestamp},
    GroupRecordType.TARGET_ASSIGNMENT_MEMBER: {"assigned": _assigned},
    GroupRecordType.CURRENT_MEMBER_ASSIGNMENT: {
        "member_epoch": _epoch,
        "previous_member_epoch": _epoch,
        "state": methodcaller("integer", INT8),
        "assigned": _assigned,
    },
    GroupRecordType.STATE_PARTITION_METADATA: {
        "initializing": _named,
        "initialized": _named,
        "deleting": _array(2, **_ids),
    },
}
"""How the fields of each type's value are read, in their order."""


def is_about_others(key: bytes | None) -> bool:
    """Whether a key belongs to a record of the same topic that is not about share groups."""
    return key is not None and len(key) >= INT16.size and INT16.unpack_from(key)[0] in OTHER_TYPES


def decode(key: bytes | None, value: bytes | None) -> ShareGroupRecord:
    """The record encoded in a key and a value.

    Raises:
        UnsupportedRecord: for a type other than 10 to 15, or an unknown value version.
        MalformedRecord: for bytes that are not such a record, with the byte position.
    """
    if key is None:
        raise MalformedRecord("null key", part="key", position=0)
    keys = Reader(key, "key")
    number = keys.integer(INT16)
    if number not in LAYOUTS:
        raise UnsupportedRecord("no record type of share groups", part="key", number=number)
    kind = GroupRecordType(number)
    group_id = GroupId(keys.string())
    member_id = keys.string() if kind.has_member else None
    fields = None if value is None else _fields(kind, Reader(value, "value"))
    return ShareGroupRecord(record_type=kind, group_id=group_id, member_id=member_id, fields=fields)


def _fields(kind: GroupRecordType, values: Reader) -> dict[str, Any]:
    read_version(values, (VALUE_VERSION,))
    fields = {name: read(values) for name, read in LAYOUTS[kind].items()}
    if kind is not GroupRecordType.TARGET_ASSIGNMENT_METADATA:
        values.skip_tagged_fields()
    return fields
