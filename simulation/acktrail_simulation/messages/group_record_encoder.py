"""Records of ``__consumer_offsets`` about share groups, to bytes: the inverse of ``group_record.decode``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from acktrail.format.wire.group_record import LAYOUTS, VALUE_VERSION, GroupRecordType, ShareGroupRecord
from acktrail.format.wire.primitives import INT8, INT16, INT32, INT64, write_unsigned_varint
from acktrail.model.share_partition import topic_id_bytes

_NO_TAGS: Final = b"\x00"
_TIMESTAMP: Final = b"\x01\x00\x08"
_IN_STRUCTURES: Final = ("topic_id", "topic", "partitions")


def encode(record: ShareGroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value of `record` as Kafka 4.1 and later write them.

    Raises:
        ValueError: for a record with a member where its type has none, or without one where it has.
    """
    kind, fields = record.record_type, record.fields
    if kind.has_member != (record.member_id is not None):
        raise ValueError(f"a record of type {kind.name} names a member exactly when the type has one")
    texts = [text.encode("utf-8") for text in record.address.values()]
    key = INT16.pack(kind) + b"".join(INT16.pack(len(raw)) + raw for raw in texts)
    if fields is None:
        return key, None
    tags = b"" if kind is GroupRecordType.TARGET_ASSIGNMENT_METADATA else _NO_TAGS
    body = b"".join(_WRITERS[name](fields[name]) for name in LAYOUTS[kind])
    return key, INT16.pack(VALUE_VERSION) + body + tags


def _compact_string_bytes(text: str | None) -> bytes:
    """The inverse of ``Reader.compact_nullable_string``."""
    if text is None:
        return b"\x00"
    raw = text.encode("utf-8")
    return write_unsigned_varint(len(raw) + 1) + raw


def _compact_array_bytes(items: Iterable[bytes]) -> bytes:
    """The inverse of ``Reader.compact_array``, of encoded items."""
    encoded = [*items]
    return write_unsigned_varint(len(encoded) + 1) + b"".join(encoded)


def _structures_bytes(structures: Iterable[Mapping[str, Any]]) -> bytes:
    """An array of structures: each has its fields, and no tag."""
    fields = ((_WRITERS[name](each[name]) for name in _IN_STRUCTURES if name in each) for each in structures)
    return _compact_array_bytes(b"".join(each) + _NO_TAGS for each in fields)


def _time_bytes(time: int | None) -> bytes:
    return _NO_TAGS if time is None else _TIMESTAMP + INT64.pack(time)


_WRITERS: Final[Mapping[str, Callable[[Any], bytes]]] = MappingProxyType(
    {
        **dict.fromkeys(("rack_id", "client_id", "client_host", "topic"), _compact_string_bytes),
        **dict.fromkeys(("epoch", "assignment_epoch", "member_epoch", "previous_member_epoch"), INT32.pack),
        **dict.fromkeys(("assigned", "initializing", "initialized", "deleting"), _structures_bytes),
        "subscribed_topics": lambda topics: _compact_array_bytes(map(_compact_string_bytes, topics)),
        "partitions": lambda numbers: _compact_array_bytes(map(INT32.pack, numbers)),
        "metadata_hash": INT64.pack,
        "state": INT8.pack,
        "assignment_timestamp_ms": _time_bytes,
        "topic_id": topic_id_bytes,
    }
)
"""How the fields of values are written, by name."""
