"""Every release's dialect against the printed schemas, and against itself; which one a sample of records is of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from definitions import dialect_rules
from extras.copied_logs.dialect_dumps import KEY, RELEASED_RECORDS, shipped
from hypothesis import given
from hypothesis import strategies as st
from jobs.world import batch, snapshot
from samples.golden_vectors import wire
from samples.random_records import disjoint_batches, keys

from acktrail.errors import ConfigurationError, MalformedRecord, UnknownName, UnsupportedRecord
from acktrail.model.records import ShareSnapshot, Tombstone
from acktrail_copied_logs.copied_files import dialect_named
from acktrail_copied_logs.dialects import KAFKA_4_0, KAFKA_4_1, KAFKA_4_2, RELEASED, Dialect, detect_layout, reads

NAMES = sorted(RELEASED_RECORDS)
TWO = (batch(110, 110, 0), batch(119, 119))
UNTIMED = dict.fromkeys(("delivery_complete_count", "create_timestamp_ms", "write_timestamp_ms"))
SNAPSHOT = snapshot(KEY, 110, TWO, snapshot_epoch=3, state_epoch=7, leader_epoch=2, **UNTIMED)
TIMED = replace(SNAPSHOT, create_timestamp_ms=1_700_000_000_000, write_timestamp_ms=1_700_000_000_001)


def encode(name: str, record: Any) -> tuple[bytes, bytes | None]:
    written = RELEASED[name].encode
    assert written is not None
    return written(record)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data(), tail=st.binary(max_size=9))
def test_round_trip_whatever_follows(name: str, data: st.DataObject, tail: bytes) -> None:
    """R002-08, R002-09: every record that a dialect has room for decodes from its own bytes. Cut short at any byte they
    are a MalformedRecord that names a byte of them; bytes after the message change nothing, as in Kafka's generated
    readers."""
    dialect = RELEASED[name]
    record = data.draw(RELEASED_RECORDS[name])
    key, value = encode(name, record)

    assert dialect.decode(key, None if value is None else value + tail) == record
    dialect_rules.every_cut_is_found(dialect.decode, (key, value))


def test_an_unknown_type_is_named() -> None:
    """R002-81: a type nobody specified as a state record says which one it is: that of share-group metadata."""
    with pytest.raises(UnsupportedRecord) as caught:
        RELEASED["4.0"].decode(bytes.fromhex("000b" + "00" * 30), wire("W-40-snapshot-value"))

    assert caught.value.number == 11


@pytest.mark.parametrize("name", NAMES)
def test_a_later_value_version_is_unsupported(name: str) -> None:
    """A value version above the known one is named, never guessed at."""
    dialect_rules.a_later_version_is_named(RELEASED[name], wire("W-4x-snapshot-key"))


@pytest.mark.parametrize(
    ("name", "record"),
    [
        pytest.param("4.0", TIMED, id="timestamps in 4.0"),
        pytest.param("4.0", replace(SNAPSHOT, snapshot_epoch=65_536), id="epoch above uint16 in 4.0"),
        pytest.param("4.1", replace(TIMED, delivery_complete_count=0), id="count in 4.1"),
    ],
)
def test_nothing_is_dropped_on_the_way_out(name: str, record: Any) -> None:
    """What a dialect has no room for is refused, never left out."""
    with pytest.raises(ValueError):
        encode(name, record)


@pytest.mark.parametrize("name", NAMES)
def test_huge_counts_allocate_nothing(name: str) -> None:
    """A value that announces two thousand million batches is refused at its count."""
    before = wire("W-40-snapshot-value")[:20] if name == "4.0" else wire("W-41-snapshot-value")[:38]

    with pytest.raises(MalformedRecord, match="announced"):
        RELEASED[name].decode(wire("W-4x-snapshot-key"), before + b"\xff\xff\xff\xff\x07")


def test_dialects_are_found_by_name() -> None:
    """Every name finds its dialect; later releases find the one they write; a wrong name is answered with names."""
    assert {name: dialect_named(name).name for name in NAMES} == dict(zip(NAMES, NAMES, strict=True))
    assert dialect_named("4.4") is RELEASED["4.2"]
    with pytest.raises(UnknownName) as caught:
        dialect_named("no such")
    assert set(RELEASED) <= set(caught.value.nearest)


Pair = tuple[bytes | None, bytes | None]
TIMES = st.integers(1_600_000_000_000, 2_000_000_000_000)


def plausible(**fields: Any) -> st.SearchStrategy[Any]:
    """Records such as a broker writes."""
    ordered = st.integers(0, 2**33).flatmap(lambda start: disjoint_batches(start=start))
    few, starts = st.integers(0, 2**16 - 1), st.integers(0, 2**40)
    return shipped(epochs=few, numbers=st.integers(0, 2**20), starts=starts, batches=ordered, **fields)


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
