"""Share-group records of ``__consumer_offsets``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from definitions.dialect_rules import every_cut_is_found
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.kafka_classes import compiled
from oracle.kafka_group_forms import kafka_forms
from samples.random_records import INT32, INT64

from acktrail.errors import MalformedRecord, UnsupportedRecord
from acktrail.format.wire.group_record import OTHER_TYPES, GroupRecordType, ShareGroupRecord, decode, is_about_others
from acktrail.model.share_partition import GroupId, topic_id_text
from acktrail_simulation.messages.group_record_encoder import encode

texts = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), max_size=8)
"""Also what a line of Kafka's answer can hold."""
groups = texts.map(GroupId)
topic_ids = st.binary(min_size=16, max_size=16).map(topic_id_text)
partitions = st.lists(INT32, max_size=3).map(tuple)


def several(items: Any) -> Any:
    return st.lists(items, max_size=2).map(tuple)


def structures(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return several(st.fixed_dictionaries({"topic_id": topic_ids, **fields}))


assigned = structures(partitions=partitions)
named = structures(topic=texts, partitions=partitions)
FIELDS: dict[GroupRecordType, dict[str, st.SearchStrategy[Any]]] = {
    GroupRecordType.MEMBER_METADATA: {
        "rack_id": st.one_of(st.none(), texts),
        "client_id": texts,
        "client_host": texts,
        "subscribed_topics": several(texts),
    },
    GroupRecordType.METADATA: {"epoch": INT32, "metadata_hash": INT64},
    GroupRecordType.TARGET_ASSIGNMENT_METADATA: {
        "assignment_epoch": INT32,
        "assignment_timestamp_ms": st.one_of(st.none(), INT64.filter(bool)),
    },
    GroupRecordType.TARGET_ASSIGNMENT_MEMBER: {"assigned": assigned},
    GroupRecordType.CURRENT_MEMBER_ASSIGNMENT: {
        "member_epoch": INT32,
        "previous_member_epoch": INT32,
        "state": st.integers(-128, 127),
        "assigned": assigned,
    },
    GroupRecordType.STATE_PARTITION_METADATA: {
        "initializing": named,
        "initialized": named,
        "deleting": structures(topic=texts),
    },
}
RECORDS = {
    kind: st.builds(
        ShareGroupRecord,
        record_type=st.just(kind),
        group_id=groups,
        member_id=texts if kind.has_member else st.none(),
        fields=st.fixed_dictionaries(fields),
    )
    for kind, fields in FIELDS.items()
}
KINDS = pytest.mark.parametrize("kind", list(GroupRecordType))


@KINDS
@given(data=st.data())
def test_truncated_anywhere(kind: GroupRecordType, data: st.DataObject) -> None:
    """A key or value cut off at any byte is a MalformedRecord that names a byte of it."""
    every_cut_is_found(decode, encode(data.draw(RECORDS[kind])))


@KINDS
@given(data=st.data())
def test_unknown_tags_and_bytes_after(kind: GroupRecordType, data: st.DataObject) -> None:
    """A later release's tagged field and bytes after the message change nothing, as in Kafka's readers."""
    record = data.draw(RECORDS[kind])
    key, value = encode(record)
    assert value is not None

    assert decode(key, value + b"more") == record
    if value[-1] == 0 and kind is not GroupRecordType.TARGET_ASSIGNMENT_METADATA:
        assert decode(key, value[:-1] + b"\x01\x07\x02ab") == record


@pytest.mark.parametrize("count", ["ffffffff0f", "ffffff7f", "7f"])
def test_impossible_counts_are_malformed(count: str) -> None:
    """A count beyond the bytes that are left is refused before anything is read for it."""
    key = bytes.fromhex("000d 0001 67 0001 6d")
    with pytest.raises(MalformedRecord, match="items announced"):
        decode(key, bytes.fromhex(f"0000 {count}") + bytes(30))
    with pytest.raises(MalformedRecord, match="null array"):
        decode(key, bytes.fromhex("0000 00"))
    with pytest.raises(MalformedRecord, match="null string"):
        decode(bytes.fromhex("000a 0001 67 0001 6d"), bytes.fromhex("0000 00 00"))


def test_what_is_unsupported() -> None:
    """A null key, another type, another version."""
    with pytest.raises(MalformedRecord, match="null key"):
        decode(None, None)
    with pytest.raises(UnsupportedRecord, match="24"):
        decode(b"\x00\x18", None)
    with pytest.raises(UnsupportedRecord, match="unknown value version 1"):
        decode(bytes.fromhex("000b 0001 67"), b"\x00\x01")
    assert [kind for kind in range(30) if is_about_others(kind.to_bytes(2, "big"))] == [*range(9), *range(16, 24)]
    assert not is_about_others(None)
    assert not is_about_others(b"\x00")
    for member, kind in (("m", GroupRecordType.METADATA), (None, GroupRecordType.MEMBER_METADATA)):
        with pytest.raises(ValueError, match="names a member exactly when"):
            encode(ShareGroupRecord(record_type=kind, group_id=GroupId("g"), member_id=member, fields=None))


def line_of(key: bytes, value: bytes | None) -> str:
    return f"{key.hex()} {'-' if value is None else value.hex()}"


def drawn(count: int) -> list[Any]:
    """Records and tombstones of every type."""
    found: list[Any] = []

    @settings(max_examples=count)
    @given(st.sampled_from(list(GroupRecordType)).flatmap(RECORDS.__getitem__))
    def draw(record: Any) -> None:
        found.append(record)

    draw()
    return found


@pytest.mark.broker
def test_kafka_reads_and_writes_the_same(tmp_path: Path) -> None:
    """Kafka reads each record as we do and writes the same bytes; its types are those that we know or skip."""
    main_class = "org.apache.kafka.coordinator.group.KafkaGroupRecords"
    program = compiled(("KafkaGroupRecords.java",), main_class, "4.3.1", tmp_path)
    written = [encode(record) for record in drawn(300)]
    pairs = [*written, *((key, None) for key, _ in written[::10])]

    types, *answers = program.run("\n".join(line_of(*pair) for pair in pairs))

    known = {int(number): name for number, _, name in (each.partition("=") for each in types.split())}
    own = {number: name for number, name in known.items() if number not in OTHER_TYPES}
    assert own == {kind.value: f"SHARE_GROUP_{kind.name}" for kind in GroupRecordType}
    assert len(answers) == 3 * len(pairs)
    for pair, key, content, again in zip(pairs, answers[::3], answers[1::3], answers[2::3], strict=True):
        assert (json.loads(key), json.loads(content), again) == (*kafka_forms(decode(*pair)), line_of(*pair))
