"""The layout that a sample of records is of, and tagged fields that nobody knows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs.world import batch
from samples.golden_vectors import wire
from samples.random_records import disjoint_batches, keys

from acktrail.errors import ConfigurationError
from acktrail.format.wire.dialects import (
    KAFKA_4_0,
    KAFKA_4_1,
    KAFKA_4_2,
    RELEASED,
    Dialect,
    decode,
    detect_layout,
    reads,
)
from acktrail.model.records import ShareSnapshot, ShareUpdate, Tombstone


def test_unknown_tagged_fields_are_skipped() -> None:
    """A tag nobody knows, in the message and in a batch, leaves the rest readable."""
    tagged = "0000000000000064 000000000000006d 00 0001 01 09 02 ffff"
    value = bytes.fromhex(f"0000 00000003 00000005 0000000000000064 02 {tagged} 02 00 04 00000007 05 03 abcdef")

    record = decode(wire("W-4x-update-key"), value)

    assert isinstance(record, ShareUpdate)
    assert (record.delivery_complete_count, record.batches) == (7, (batch(100, 109, 0),))


Pair = tuple[bytes | None, bytes | None]
EPOCHS = st.integers(0, 2**16 - 1)
STARTS = st.one_of(st.none(), st.integers(0, 2**40))
TIMES = st.integers(1_600_000_000_000, 2_000_000_000_000)


def plausible(*, times: Any, count: Any) -> st.SearchStrategy[Any]:
    """Records such as a broker writes."""
    ordered = st.integers(0, 2**33).flatmap(lambda start: disjoint_batches(start=start))
    update = st.builds(
        ShareUpdate,
        key=keys,
        snapshot_epoch=EPOCHS,
        leader_epoch=st.one_of(st.none(), st.integers(0, 2**20)),
        start_offset=STARTS,
        delivery_complete_count=count,
        batches=ordered,
    )
    snapshot = st.builds(
        ShareSnapshot,
        key=keys,
        snapshot_epoch=EPOCHS,
        state_epoch=st.integers(0, 2**20),
        leader_epoch=st.integers(0, 2**20),
        start_offset=STARTS,
        delivery_complete_count=count,
        create_timestamp_ms=times,
        write_timestamp_ms=times,
        batches=ordered,
    )
    return st.one_of(snapshot, update)


WRITTEN: list[Any] = [
    pytest.param(KAFKA_4_0, plausible(times=st.none(), count=st.none()), "4.0", id="4.0"),
    pytest.param(KAFKA_4_1, plausible(times=TIMES, count=st.none()), "4.2", id="4.1"),
    pytest.param(KAFKA_4_2, plausible(times=TIMES, count=st.one_of(st.none(), st.integers(0, 999))), "4.2", id="4.2"),
]


@pytest.mark.parametrize(("dialect", "records", "expected"), WRITTEN)
@given(data=st.data())
def test_tombstones_and_damage_decide_nothing(
    dialect: Dialect[Any], records: Any, expected: str, data: st.DataObject
) -> None:
    """Beside records that one layout reads."""
    sample: list[Pair] = [dialect.encode(record) for record in data.draw(st.lists(records, min_size=1, max_size=5))]
    damaged = (sample[0][0], (sample[0][1] or b"")[:-2])
    gone = dialect.encode(Tombstone(key=data.draw(keys)))

    assert detect_layout([gone, damaged, *sample, (None, b"")]).name == expected


def test_a_sample_of_two_dialects_is_refused() -> None:
    """Records that disagree, and a value that both layouts use up to its last byte; one record that only one layout
    reads settles that."""
    key, update_key = wire("W-4x-snapshot-key"), wire("W-4x-update-key")
    update = KAFKA_4_0.decode(update_key, bytes.fromhex("0000 0003 00000002 000000000000006e 02" + "00" * 20 + "00"))
    # As 4.1 and later: no batches, one unknown tagged field of sixteen bytes.
    first = int.from_bytes(bytes.fromhex("0001010510000000"), "big")
    batch = replace(update.batches[0], first_offset=first, last_offset=first + 9, delivery_state=2, delivery_count=1)
    both = KAFKA_4_0.encode(replace(update, batches=(batch,)))

    with pytest.raises(ConfigurationError, match=r"two dialects, 4\.0 and 4\.2"):
        detect_layout([(key, wire("W-40-snapshot-value")), *[(key, wire("W-42-snapshot-value"))] * 2])
    with pytest.raises(ConfigurationError, match="ambiguous"):
        detect_layout([both])
    assert detect_layout([both, (update_key, wire("W-41-update-value"))]) is KAFKA_4_2


@pytest.mark.parametrize("name", ["4.0", "4.2"])
def test_a_byte_too_many_is_no_reading(name: str) -> None:
    """A value that goes on behind the message is read by Kafka and is no evidence of its layout."""
    key, value = wire("W-4x-snapshot-key"), wire(f"W-{name.replace('.', '')}-snapshot-value")

    assert reads(RELEASED[name], key, value)
    assert not reads(RELEASED[name], key, value + b"\x00")


@pytest.mark.parametrize("name", ["4.0", "4.2"])
def test_fields_that_no_broker_writes_are_no_reading(name: str) -> None:
    """A time beyond 2100 or a negative epoch is no evidence of the layout; nor is an inverted batch, a negative offset,
    state or count."""
    dialect = RELEASED[name]
    key, value = wire("W-4x-snapshot-key"), wire(f"W-{name.replace('.', '')}-snapshot-value")
    record = dialect.decode(key, value)
    assert isinstance(record, ShareSnapshot)
    times = [{"write_timestamp_ms": 4_102_444_800_000}, {"create_timestamp_ms": -1}, {"snapshot_epoch": -1}]
    fields: list[dict[str, int]] = [{"state_epoch": -2}, {"leader_epoch": -2}, *(times if name == "4.2" else [])]
    batches = [{"last_offset": 1}, {"first_offset": -1}, {"delivery_state": -1}, {"delivery_count": -1}]
    for odd in (
        *(replace(record, **change) for change in fields),
        *(replace(record, batches=(replace(record.batches[0], **each), *record.batches[1:])) for each in batches),
    ):
        assert not reads(dialect, key, dialect.encode(odd)[1] or b""), odd
