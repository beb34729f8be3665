"""Records of MirrorMaker 2's internal topics, against the bytes of its own classes."""

from __future__ import annotations

import json
from base64 import b64decode
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from definitions.mirror_encoders import encode_checkpoint, encode_offset_sync
from hypothesis import given
from hypothesis import strategies as st
from samples.random_records import INT32, INT64

from acktrail.errors import MalformedRecord, UnsupportedRecord
from acktrail_plugins.migration.mirror_evidence import (
    MirrorCheckpoint,
    OffsetSync,
    decode_checkpoint,
    decode_offset_sync,
)

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "support/golden/mirror_maker/records.json").read_text("ascii")
)
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=9)
offsets = {"partition": INT32, "upstream_offset": INT64, "downstream_offset": INT64}
syncs = st.builds(OffsetSync, topic=texts, **offsets)
checkpoints = st.builds(MirrorCheckpoint, group_id=texts, topic=texts, metadata=texts, **offsets)
bytes_ = st.binary(max_size=40)


def _golden(name: str) -> list[tuple[dict[str, Any], tuple[bytes, bytes]]]:
    """The fields of records, and their key and value as Kafka 4.3.1 wrote them."""
    rows = [dict(row) for row in GOLDEN[name]]
    return [(row, (b64decode(row.pop("key")), b64decode(row.pop("value")))) for row in rows]


@pytest.mark.parametrize(("fields", "encoded"), _golden("offset_syncs"))
def test_offset_syncs_are_kafkas(fields: dict[str, Any], encoded: tuple[bytes, bytes]) -> None:
    """Byte for byte, in both directions."""
    assert encode_offset_sync(OffsetSync(**fields)) == encoded
    assert decode_offset_sync(*encoded) == OffsetSync(**fields)


@pytest.mark.parametrize(("fields", "encoded"), _golden("checkpoints"))
def test_checkpoints_are_kafkas(fields: dict[str, Any], encoded: tuple[bytes, bytes]) -> None:
    """Byte for byte, in both directions."""
    assert encode_checkpoint(MirrorCheckpoint(**fields)) == encoded
    assert decode_checkpoint(*encoded) == MirrorCheckpoint(**fields)


@given(syncs, checkpoints)
def test_what_is_written_is_read(sync: OffsetSync, checkpoint: MirrorCheckpoint) -> None:
    """Every record survives its bytes; what follows them is skipped, as Kafka does."""
    key, value = encode_offset_sync(sync)
    assert decode_offset_sync(key, value) == decode_offset_sync(key + b"x", value + b"y") == sync
    key, value = encode_checkpoint(checkpoint)
    assert decode_checkpoint(key, value) == decode_checkpoint(key + b"x", value + b"y") == checkpoint


@given(st.one_of(st.none(), bytes_), st.one_of(st.none(), bytes_))
def test_other_bytes_are_refused_with_their_place(key: bytes | None, value: bytes | None) -> None:
    """Any bytes are a record, or an error of acktrail's with key or value in it."""
    for decode in (decode_offset_sync, decode_checkpoint):
        with suppress(MalformedRecord, UnsupportedRecord):
            decode(key, value)
    for decode in (decode_offset_sync, decode_checkpoint):
        with pytest.raises(MalformedRecord, match=r"null (key|value)"):
            decode(key, None) if value is None else decode(None, value)


@given(checkpoints, st.integers(1, 60))
def test_a_record_that_is_cut_off_is_refused(checkpoint: MirrorCheckpoint, cut: int) -> None:
    """At every byte; and so is a version that no release has."""
    key, value = encode_checkpoint(checkpoint)
    with pytest.raises(MalformedRecord):
        decode_checkpoint(key, value[: max(0, len(value) - cut)])
    with pytest.raises(UnsupportedRecord):
        decode_checkpoint(key, b"\x00\x01" + value[2:])


def test_a_string_has_kafkas_longest_length() -> None:
    """32,767 bytes fit, one more does not."""
    longest = OffsetSync(topic="t" * 32_767, partition=0, upstream_offset=0, downstream_offset=0)
    assert decode_offset_sync(*encode_offset_sync(longest)) == longest
    with pytest.raises(ValueError, match="32768 bytes"):
        encode_offset_sync(OffsetSync(topic="t" * 32_768, partition=0, upstream_offset=0, downstream_offset=0))
