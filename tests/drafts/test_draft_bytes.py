"""Every draft's dialect against the printed schemas, and against itself."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from definitions import dialect_laws
from drafts.random_drafts import DRAFT_RECORDS
from hypothesis import given
from hypothesis import strategies as st
from samples.golden_vectors import SEED, wire

from acktrail.errors import MalformedRecord, UnsupportedRecord
from acktrail.format.wire.dialects import CANDIDATES
from acktrail.model.batches import StateBatch
from acktrail.model.records import Tombstone
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail.offline.copied_files import dialect_named
from acktrail_drafts.dialects import DRAFTS
from acktrail_drafts.draft_records import (
    Checkpoint,
    ControlCheckpoint,
    ControlDelta,
    Delta,
    DeltaTombstone,
    DraftSnapshot,
)
from acktrail_simulation.drafts.record_encoders import encode_in

KEY = SharePartition(group_id=GroupId("G1"), topic_id=TopicId(SEED["wire_vectors"]["topic_id"]), partition=0)


def batch(first: int, last: int, state: int, count: int) -> StateBatch:
    return StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)


TWO = (batch(110, 110, 0, 1), batch(119, 119, 2, 1))

PRINTED = [
    pytest.param("i", "W-i-cp-key", "W-i-cp-value", id="R000-45 R000-47 generation i checkpoint"),
    pytest.param("ii", "W-i-delta-key", "W-ii-delta-value", id="R001-07 R001-38 generation ii delta"),
    pytest.param("iii", "W-iii-cp-key", "W-iii-cp-value", id="R000-25 R000-26 checkpoint"),
    pytest.param("iii", "W-iii-delta-key-7", "W-iii-delta-value", id="R000-27 R000-28 delta"),
    pytest.param("iii", "W-iii-cp-key", None, id="R000-37 checkpoint tombstone"),
    pytest.param("iii", "W-iii-delta-key-7", None, id="R000-37 delta tombstone"),
    pytest.param("iv-json", "W-4x-snapshot-key", "W-iv-seed-snapshot-value", id="R002-75 iv by JSON schema"),
]

READINGS: dict[tuple[str, str], Any] = {
    ("i", "W-i-cp-value"): ControlCheckpoint(
        group_id=GroupId("G1"), checkpoint_epoch=1, start_offset=100, end_offset=100, batches=()
    ),
    ("ii", "W-ii-delta-value"): ControlDelta(
        group_id=GroupId("G1"), checkpoint_epoch=1, back_offset=130, batches=(batch(100, 109, 2, 1),)
    ),
    ("iii", "W-iii-cp-value"): Checkpoint(key=KEY, checkpoint_epoch=2, start_offset=110, batches=TWO),
    ("iii", "W-iii-delta-value"): Delta(key=KEY, delta_index=7, checkpoint_epoch=2, start_offset=None, batches=TWO[:1]),
    ("iv-json", "W-iv-seed-snapshot-value"): DraftSnapshot(
        key=KEY, state_epoch=None, snapshot_epoch=3, start_offset=110, batches=TWO
    ),
}


@pytest.mark.parametrize(("name", "key", "value"), PRINTED)
def test_printed_bytes(name: str, key: str, value: str | None) -> None:
    """Bytes of the printed schemas decode to their record and encode back: R000-25 to R000-28, R000-45,
    R000-47, R000-51, R000-64, R001-02, R001-38, R002-75."""
    dialect = DRAFTS[name]
    raw = (wire(key), None if value is None else wire(value))

    record = dialect.decode(*raw)

    assert encode_in(dialect.name, record) == raw
    if value is not None:
        assert record == READINGS[name, value]
    else:
        assert record in (Tombstone(key=KEY), DeltaTombstone(key=KEY, delta_index=7))


def test_every_dialect_has_its_random_records() -> None:
    """The laws below are held for all dialects there are."""
    assert set(DRAFT_RECORDS) == set(DRAFTS)


@pytest.mark.parametrize("name", DRAFTS)
@given(data=st.data(), tail=st.binary(min_size=2, max_size=9))
def test_round_trip(name: str, data: st.DataObject, tail: bytes) -> None:
    """R000-29, R001-39: every record that a dialect has room for decodes from its own bytes. Cut short at any byte they
    are a MalformedRecord that names a byte of them, or another record type whose key ends there (a checkpoint's key
    begins a delta's when the delta is written as version 0). Bytes after the message of a draft are refused: nobody
    specified what they mean."""
    decode = DRAFTS[name].decode
    record = data.draw(DRAFT_RECORDS[name])
    key, value = encode_in(name, record)

    assert decode(key, value) == record
    dialect_laws.every_cut_is_found(DRAFTS[name], (key, value))
    for longer in ((key + tail, value), *([] if value is None else [(key, value + tail)])):
        with pytest.raises(MalformedRecord):
            decode(*longer)


@pytest.mark.parametrize("name", DRAFTS)
@given(key=st.one_of(st.none(), st.binary(max_size=60)), value=st.one_of(st.none(), st.binary(max_size=120)))
def test_random_bytes(name: str, key: bytes | None, value: bytes | None) -> None:
    """Any bytes are a record or an InputError, and a record can be written again."""
    dialect_laws.any_bytes_are_a_record_or_refused(DRAFTS[name], partial(encode_in, name), key, value)


def test_a_delta_key_is_read_in_both_versions() -> None:
    """R000-24, ER-3: version 1 is what is written; version 0 with an index byte is the same delta."""
    key, value = wire("W-iii-delta-key-7"), wire("W-iii-delta-value")
    decode = DRAFTS["iii"].decode

    assert decode(b"\x00\x00" + key[2:], value) == decode(key, value)
    with pytest.raises(MalformedRecord):
        decode(key[:-1], value)


@pytest.mark.parametrize(
    ("name", "key", "value", "number"),
    [
        pytest.param("i", "00000004", "W-i-cp-value", 4, id="leader change is no state"),
        pytest.param("ii", "00010005", "W-i-cp-value", 1, id="control key version 1"),
        pytest.param("iii", "0002" + "00" * 30, "W-iii-cp-value", 2, id="iii key version 2"),
    ],
)
def test_unknown_numbers_are_named(name: str, key: str, value: str, number: int) -> None:
    """R000-24: a type or version nobody specified says which one it is."""
    with pytest.raises(UnsupportedRecord) as caught:
        DRAFTS[name].decode(bytes.fromhex(key), wire(value))

    assert caught.value.number == number


@pytest.mark.parametrize("name", DRAFTS)
def test_a_later_value_version_is_unsupported(name: str) -> None:
    """A value version above the known one is named, never guessed at."""
    key = bytes.fromhex("00000005") if name in ("i", "ii") else wire("W-4x-snapshot-key")
    dialect_laws.a_later_version_is_named(DRAFTS[name], key)


@pytest.mark.parametrize(
    ("name", "record"),
    [
        pytest.param("i", READINGS["ii", "W-ii-delta-value"], id="back offset in i"),
        pytest.param("ii", replace(READINGS["ii", "W-ii-delta-value"], back_offset=None), id="no back offset in ii"),
        pytest.param("iii", replace(READINGS["iii", "W-iii-delta-value"], delta_index=256), id="R000-18 index 256"),
        pytest.param("i", replace(READINGS["i", "W-i-cp-value"], start_offset=-1), id="no start offset in i"),
        pytest.param("iv", READINGS["iv-json", "W-iv-seed-snapshot-value"], id="no state epoch in iv"),
    ],
)
def test_nothing_is_dropped_on_the_way_out(name: str, record: Any) -> None:
    """What a dialect has no room for is refused, never left out: R000-18, R001-39."""
    with pytest.raises(ValueError):
        encode_in(name, record)


@pytest.mark.parametrize("name", DRAFTS)
def test_huge_counts_allocate_nothing(name: str) -> None:
    """A value that announces two thousand million batches is refused at its count."""
    if name in ("i", "ii"):
        value = wire("W-i-cp-value")[:-4] + b"\x7f\xff\xff\xff"
    elif name == "iii":
        value = wire("W-iii-cp-value")[:12] + b"\x7f\xff\xff\xff"
    else:
        value = bytes({"iv": 18, "iv-json": 12}[name]) + b"\xff\xff\xff\xff\x07"
    key = wire("W-i-cp-key") if name in ("i", "ii") else wire("W-4x-snapshot-key")

    with pytest.raises(MalformedRecord, match="announced"):
        DRAFTS[name].decode(key, value)


def test_drafts_are_found_by_name_and_never_probed() -> None:
    """R000-45, R001-02: control types 5 and 6 and the other drafts are read when asked for by name, never found."""
    assert {name: dialect_named(name) for name in DRAFTS} == DRAFTS
    assert not {candidate.name for candidate in CANDIDATES} & set(DRAFTS)


@pytest.mark.parametrize(
    ("name", "key", "value", "at"),
    [
        pytest.param("i", "W-i-cp-key", "W-i-cp-value", 8, id="start offset"),
        pytest.param("i", "W-i-cp-key", "W-i-cp-value", 16, id="end offset"),
        pytest.param("ii", "W-i-delta-key", "W-ii-delta-value", 8, id="back offset"),
    ],
)
def test_control_records_have_real_offsets(name: str, key: str, value: str, at: int) -> None:
    """R000-47, R001-07: no document gives -1 a meaning in a control record, so it is refused at its byte."""
    negative = wire(value)[:at] + b"\xff" * 8 + wire(value)[at + 8 :]

    with pytest.raises(MalformedRecord, match="negative") as caught:
        DRAFTS[name].decode(wire(key), negative)
    assert caught.value.position == at
