"""State records as Kafka 4.1 (preview) wrote them: the 4.2 layout without the complete count.

A 4.1 reader passes over the tag that 4.2 gave a meaning, and so does this one: a 4.2 record loses its count here. Read
4.1 records with dialect 4.2, whose reading of them is the same, unless 4.1's own reading is what is asked for.
"""

from __future__ import annotations

from dataclasses import replace

from acktrail.model.records import StateRecord, Tombstone
from acktrail.wire.dialects import kafka_4_2

__all__ = ["decode", "encode"]


def decode(key: bytes | None, value: bytes | None) -> StateRecord:
    """The record that a key and a value spell; raises what `kafka_4_2.decode` raises."""
    record = kafka_4_2.decode(key, value)
    return record if isinstance(record, Tombstone) else replace(record, delivery_complete_count=None)


def encode(record: StateRecord) -> tuple[bytes, bytes | None]:
    """Key and value of `record`.

    Raises:
        ValueError: for a complete count, or a snapshot without timestamps.
    """
    if not isinstance(record, Tombstone) and record.delivery_complete_count is not None:
        raise ValueError("a record of Kafka 4.1 has no complete count")
    return kafka_4_2.encode(record)
