"""The headers of a dead letter: read as a broker writes them, or refused with a reason."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples.dead_letters import headers_of
from state_topics.segment_bytes import header_bytes

from acktrail.errors import InputError, MalformedRecord, UnsupportedRecord
from acktrail.format.wire.dead_letter_headers import ShareDeadLetter, read_dead_letter
from acktrail.format.wire.record_batch import record_headers

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
LETTERS = st.builds(
    ShareDeadLetter,
    group_id=TEXT,
    topic=TEXT,
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    delivery_count=st.none() | st.integers(0, 2**15 - 1),
    message=st.none() | TEXT,
)


@given(LETTERS, st.lists(st.tuples(st.binary(max_size=9), st.none() | st.binary(max_size=9)), max_size=3), st.randoms())
def test_what_a_broker_writes_is_read(
    letter: ShareDeadLetter, others: list[tuple[bytes, bytes | None]], random: Random
) -> None:
    """Any names and numbers, in any order, between any other headers."""
    headers = [*headers_of(letter), *others]
    random.shuffle(headers)
    assert record_headers(header_bytes(headers)) == tuple(headers)
    assert read_dead_letter(header_bytes(headers)) == letter


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    """Nothing else than an error of the input is raised."""
    try:
        read_dead_letter(raw)
    except InputError:
        return


LETTER = ShareDeadLetter(group_id="g", topic="t", partition=1, offset=2, delivery_count=3, message="m")


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("offset", b"-1", "no number"),
        ("offset", b"9223372036854775808", "no number"),
        ("offset", "٣".encode(), "no number"),
        ("offset", b"01", "no number"),
        ("partition", b"2147483648", "no number"),
        ("delivery.count", b"32768", "no number"),
        ("delivery.count", b"", "no number"),
        ("group", b"\xff", "not UTF-8"),
        ("topic", None, "null"),
    ],
)
def test_a_value_that_no_broker_writes(name: str, value: bytes | None, fault: str) -> None:
    """Is malformed, and the reason names the header; a missing or repeated one too."""
    full = f"__dlq.errors.{name}".encode()
    others = [pair for pair in headers_of(LETTER) if pair[0] != full]
    with pytest.raises(MalformedRecord, match=f"{name}.*{fault}"):
        read_dead_letter(header_bytes([*others, (full, value)]))
    with pytest.raises(MalformedRecord, match=f"{name} is there twice"):
        read_dead_letter(header_bytes([*headers_of(LETTER), *(p for p in headers_of(LETTER) if p[0] == full)]))
    if name != "delivery.count":
        with pytest.raises(MalformedRecord, match=f"{name} is missing"):
            read_dead_letter(header_bytes(others))
    else:
        assert read_dead_letter(header_bytes(others)) == replace(LETTER, delivery_count=None)


def test_a_record_of_someone_else() -> None:
    """A record without any of the headers is no dead letter, which is another reason than damage."""
    with pytest.raises(UnsupportedRecord, match="no header of a dead letter"):
        read_dead_letter(header_bytes([(b"__dlq.other", b"1"), (b"\xff", None)]))
