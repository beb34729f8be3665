"""Reading the state of one share partition, record by record."""

from __future__ import annotations

from state_topics.coordinator_log import batch, share_partition

from acktrail.format.wire.dialects import encode
from acktrail.format.wire.raw_record import AddressedRecord, RawRecord, decode_raw
from acktrail.kafka.state.state_lookup import PartitionReading, after_record
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone

KEY = share_partition()
SNAPSHOT = ShareSnapshot(
    key=KEY,
    snapshot_epoch=3,
    state_epoch=1,
    leader_epoch=0,
    start_offset=7,
    delivery_complete_count=0,
    create_timestamp_ms=1,
    write_timestamp_ms=1,
    batches=(),
)
UPDATE = ShareUpdate(
    key=KEY,
    snapshot_epoch=3,
    leader_epoch=0,
    start_offset=None,
    delivery_complete_count=1,
    batches=(batch(7, 7),),
)


def read(*records: StateRecord | None) -> PartitionReading:
    """The reading after these records; None: one that cannot be read."""
    reading = PartitionReading(state_partition=0)
    for offset, record in enumerate(records):
        reading = after_record(reading, addressed(offset, record))
    return reading


def addressed(offset: int, record: StateRecord | None) -> AddressedRecord[StateRecord]:
    key, value = encode(record or SNAPSHOT)
    damaged = value if record is not None else b"\0"
    return decode_raw(RawRecord(state_partition=0, offset=offset, timestamp_ms=1, key=key, value=damaged))


def test_the_state_is_that_of_the_records() -> None:
    """Snapshot, update, and the address of the last one."""
    reading = read(SNAPSHOT, UPDATE)
    assert reading.state is not None
    assert (reading.state.start_offset, reading.state.batches, reading.offset) == (7, UPDATE.batches, 1)


def test_after_a_record_that_cannot_be_read_nothing_is_known() -> None:
    """It may have been a snapshot: what updates add to is unknown."""
    reading = read(SNAPSHOT, None, UPDATE)
    assert reading.state is None
    assert "offset 1" in (reading.unreadable or "")


def test_a_snapshot_makes_the_state_known_again() -> None:
    """It replaces all earlier records; so does a tombstone."""
    again = read(None, UPDATE, SNAPSHOT, UPDATE)
    assert again.unreadable is None
    assert again.state == read(SNAPSHOT, UPDATE).state
    gone = read(SNAPSHOT, None, Tombstone(key=KEY))
    assert (gone.unreadable, gone.state) == (None, None)
