"""The kind of record batches from their headers, and which of their offsets are records of a group."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acktrail.change.collection.delivered_records import hidden_offsets
from acktrail.kafka.logs import Batch, BatchKind, batches_in

CONTROL, TRANSACTIONAL = 0x20, 0x10


def raw(base: int, last: int, *, producer: int = -1, attributes: int = 0, records: int | None = None) -> bytes:
    """A batch of version 2 with a payload of no meaning."""
    count = last - base + 1 if records is None else records
    body = struct.pack(">ibIhiqqqhii", 0, 2, 0, attributes, last - base, 0, 0, producer, 0, 0, count) + b"\x00" * 7
    return struct.pack(">qi", base, len(body)) + body


def kinds(data: bytes, *aborted: tuple[int, int]) -> list[tuple[int, int, str]]:
    return [(batch.first_offset, batch.last_offset, batch.kind.value) for batch in batches_in(data, aborted)]


def test_aborted_records_lie_between_the_first_offset_and_the_marker() -> None:
    """Of one producer only, up to its marker; another transaction of it is another matter."""
    data = b"".join(
        [
            raw(0, 2, producer=7, attributes=TRANSACTIONAL),
            raw(3, 4, producer=8, attributes=TRANSACTIONAL),
            raw(5, 5, producer=7, attributes=TRANSACTIONAL | CONTROL),
            raw(6, 6, producer=7, attributes=TRANSACTIONAL),
            raw(7, 7, producer=8, attributes=TRANSACTIONAL | CONTROL),
            raw(8, 9),
        ]
    )
    assert kinds(data, (7, 0)) == [
        (0, 2, "aborted"),
        (3, 4, "data"),
        (5, 5, "control"),
        (6, 6, "data"),
        (7, 7, "control"),
        (8, 9, "data"),
    ]
    assert [kind for *_, kind in kinds(data, (8, 3))] == ["data", "aborted", "control", "data", "control", "data"]


@given(st.integers(0, 200))
def test_a_batch_that_is_cut_off_is_left_out(cut: int) -> None:
    """A fetch ends anywhere; nothing is read beyond it."""
    whole = raw(0, 3) + raw(4, 9)
    found = kinds(whole[: len(whole) - cut])
    assert found == [(0, 3, "data"), (4, 9, "data")][: len(found)]
    assert (len(found) == 2) is (cut == 0)


def test_another_format_ends_the_reading() -> None:
    """Batches of old formats have no such header."""
    old = bytearray(raw(0, 3))
    old[16] = 1
    assert kinds(bytes(old)) == []


def batch(first: int, last: int, kind: BatchKind = BatchKind.DATA, *gaps: tuple[int, int]) -> Batch:
    return Batch(first_offset=first, last_offset=last, kind=kind, gaps=gaps)


CLOSED = [
    batch(8, 12),
    batch(13, 13, BatchKind.CONTROL),
    batch(14, 16, BatchKind.ABORTED),
    batch(17, 17, BatchKind.CONTROL),
    batch(20, 29, BatchKind.DATA, (22, 23), (27, 27)),
    batch(35, 40),
]


@pytest.mark.parametrize(
    ("batches", "level", "hidden"),
    [
        (CLOSED, "read_uncommitted", ((13, 13), (17, 19), (22, 23), (27, 27), (30, 34))),
        (CLOSED, "read_committed", ((13, 19), (22, 23), (27, 27), (30, 34))),
        (CLOSED, None, None),
        ([batch(8, 12), batch(13, 13, BatchKind.CONTROL), batch(14, 38)], None, ((13, 13),)),
        ([batch(8, 35), batch(36, 38, BatchKind.OPEN)], "read_committed", None),
        ([batch(8, 35), batch(36, 38, BatchKind.OPEN)], "read_uncommitted", ()),
        ([], None, ((10, 38),)),
    ],
    ids=["uncommitted", "committed", "unknown", "unknown-but-equal", "open-committed", "open-uncommitted", "empty"],
)
def test_what_is_no_record_of_a_group_depends_on_its_isolation_level(
    batches: list[Batch], level: str | None, hidden: tuple[tuple[int, int], ...] | None
) -> None:
    """Markers and what compaction removed never are, aborted records only for read_uncommitted groups. Where an unknown
    level or an open transaction decides, it is not known."""
    assert hidden_offsets(batches, 10, 38, level) == hidden


def test_a_batch_with_gaps_says_which_offsets_it_has() -> None:
    """Compaction leaves the batch's offsets and takes records away: those that are left are decoded."""
    body = b"".join(b"\x0c\x00\x00" + bytes([2 * delta]) + b"\x01\x01\x00" for delta in (1, 2, 5))
    header = raw(100, 107, records=3)[12:-7] + body
    (found,) = batches_in(struct.pack(">qi", 100, len(header)) + header, ())
    assert found.gaps == ((100, 100), (103, 104), (106, 107))
