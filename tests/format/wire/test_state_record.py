"""The strict decoder against Kafka's own bytes, and against itself."""

from __future__ import annotations

import pytest

from acktrail.format.wire.dialects import decode, encode
from acktrail.format.wire.raw_record import DecodeStatus, RawRecord, decode_raw
from acktrail.model.batches import StateBatch
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.share_partition import GroupId, SharePartition, TopicId

KEY = SharePartition(group_id=GroupId("g1"), topic_id=TopicId("AQIDBAUGBwgJCgsMDQ4PEA"), partition=7)
BATCHES = (
    StateBatch(first_offset=100, last_offset=109, delivery_state=0, delivery_count=1),
    StateBatch(first_offset=110, last_offset=110, delivery_state=2, delivery_count=2),
)
NOW = 1_700_000_000_000


def snapshot(
    *, epochs: tuple[int, int, int], start: int | None, count: int | None, batches: tuple[StateBatch, ...]
) -> ShareSnapshot:
    return ShareSnapshot(
        key=KEY,
        snapshot_epoch=epochs[0],
        state_epoch=epochs[1],
        leader_epoch=epochs[2],
        start_offset=start,
        delivery_complete_count=count,
        create_timestamp_ms=NOW,
        write_timestamp_ms=NOW,
        batches=batches,
    )


def update(count: int | None) -> ShareUpdate:
    return ShareUpdate(
        key=KEY, snapshot_epoch=3, leader_epoch=5, start_offset=100, delivery_complete_count=count, batches=BATCHES
    )


SNAPSHOT_KEY = "0000 0002 6731 0102030405060708 090a0b0c0d0e0f10 00000007"
UPDATE_KEY = "0001 0002 6731 0102030405060708 090a0b0c0d0e0f10 00000007"
TWO_BATCHES = "0000000000000064 000000000000006d 00 0001 00 000000000000006e 000000000000006e 02 0002 00"
SNAPSHOT = f"0000 00000003 00000004 00000005 0000000000000064 0000018bcfe56800 0000018bcfe56800 03 {TWO_BATCHES}"
UPDATE = f"0000 00000003 00000005 0000000000000064 03 {TWO_BATCHES}"
INITIAL = "0000 00000000 00000001 00000000 ffffffffffffffff 0000018bcfe56800 0000018bcfe56800 01 00"

KAFKAS_OWN = [
    pytest.param(
        SNAPSHOT_KEY, SNAPSHOT + "00", snapshot(epochs=(3, 4, 5), start=100, count=None, batches=BATCHES), id="snapshot"
    ),
    pytest.param(
        SNAPSHOT_KEY,
        SNAPSHOT + "01 00 04 0000012c",
        snapshot(epochs=(3, 4, 5), start=100, count=300, batches=BATCHES),
        id="snapshot-with-count",
    ),
    pytest.param(UPDATE_KEY, UPDATE + "00", update(None), id="update"),
    pytest.param(UPDATE_KEY, UPDATE + "01 00 04 00000000", update(0), id="update-with-count"),
    pytest.param(
        SNAPSHOT_KEY, INITIAL, snapshot(epochs=(0, 1, 0), start=None, count=None, batches=()), id="first-initialize"
    ),
    pytest.param(SNAPSHOT_KEY, None, Tombstone(key=KEY), id="tombstone"),
]


@pytest.mark.parametrize(("key", "value", "record"), KAFKAS_OWN)
def test_kafkas_own_bytes(key: str, value: str | None, record: StateRecord) -> None:
    """Bytes that Kafka's serde produced decode to their record and encode back to the same bytes."""
    raw = (bytes.fromhex(key), None if value is None else bytes.fromhex(value))

    assert decode(*raw) == record
    assert encode(record) == raw


def test_unknown_tagged_fields_are_skipped() -> None:
    """A tag nobody knows, in the message and in a batch, leaves the rest readable."""
    batch = "0000000000000064 000000000000006d 00 0001 01 09 02 ffff"
    value = bytes.fromhex(f"0000 00000003 00000005 0000000000000064 02 {batch} 02 00 04 00000007 05 03 abcdef")

    record = decode(bytes.fromhex(UPDATE_KEY), value)

    assert isinstance(record, ShareUpdate)
    assert (record.delivery_complete_count, record.batches) == (7, BATCHES[:1])


@pytest.mark.parametrize(
    ("key", "value", "status"),
    [
        pytest.param(None, b"", DecodeStatus.NULL_KEY, id="null-key"),
        pytest.param(b"\x00", b"", DecodeStatus.MALFORMED_KEY, id="short-key"),
        pytest.param(bytes.fromhex("0000ffff"), b"", DecodeStatus.MALFORMED_KEY, id="null-group"),
        pytest.param(bytes.fromhex("00000002fffe") + bytes(20), b"", DecodeStatus.MALFORMED_KEY, id="not-utf-8"),
        pytest.param(b"\x00\x0b" + bytes(30), b"", DecodeStatus.UNKNOWN_TYPE, id="type-11"),
        pytest.param(bytes.fromhex(UPDATE_KEY), None, DecodeStatus.NULL_UPDATE, id="null-update"),
        pytest.param(bytes.fromhex(UPDATE_KEY), b"\x00\x01", DecodeStatus.UNKNOWN_VERSION, id="version-1"),
        pytest.param(
            bytes.fromhex(UPDATE_KEY),
            bytes.fromhex("0000 00000003 00000005 0000000000000064 ffffffff0f"),
            DecodeStatus.MALFORMED_VALUE,
            id="four-billion-batches",
        ),
        pytest.param(
            bytes.fromhex(UPDATE_KEY),
            bytes.fromhex("0000 00000003 00000005 0000000000000064 00"),
            DecodeStatus.MALFORMED_VALUE,
            id="null-batches",
        ),
    ],
)
def test_errors_name_the_damage(key: bytes | None, value: bytes | None, status: DecodeStatus) -> None:
    """Each kind of damage has its own status."""
    addressed = decode_raw(RawRecord(state_partition=0, offset=1, timestamp_ms=2, key=key, value=value))

    assert addressed.status is status
