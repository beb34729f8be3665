"""State records as Kafka 4.1 (preview) wrote them: the 4.2 layout without the complete count.

A 4.1 reader skips the tag of the count that 4.2 added, and so does this one: a 4.2 record loses its count here. Dialect
4.2 reads 4.1 records the same way; use this one only to see what a 4.1 broker reads.
"""

from __future__ import annotations

from dataclasses import replace

from acktrail.model.records import StateRecord, Tombstone
from acktrail.wire.dialects import kafka_4_2


def decode(key: bytes | None, value: bytes | None) -> StateRecord:
    """The record encoded in a key and a value; raises as ``kafka_4_2.decode``."""
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
