"""The kind of record batches from their headers, and their records counted within the offsets of a plan."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reset.scenes import a_plan, a_request, a_snapshot, partition_facts

from acktrail.broker.logs import Batch, BatchKind, batches_in
from acktrail.group_changes.collection.delivered_records import counts_of
from acktrail.model.delivery import StateBatch

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


def batch(first: int, last: int, records: int | None = None, kind: BatchKind = BatchKind.DATA) -> Batch:
    width = last - first + 1
    return Batch(first_offset=first, last_offset=last, records=width if records is None else records, kind=kind)


@pytest.mark.parametrize(
    ("batches", "numbers"),
    [
        ([batch(0, 99)], (90, 0, 40, 0)),
        ([batch(0, 49), batch(50, 50, kind=BatchKind.CONTROL), batch(51, 99)], (89, 0, 40, 0)),
        ([batch(0, 19), batch(20, 29, 10, BatchKind.ABORTED), batch(30, 99)], (80, 10, 30, 10)),
        ([batch(0, 9, 1), batch(10, 41), batch(42, 99, 58)], (90, 0, 40, 0)),
        ([batch(0, 19, 19), batch(20, 99)], None),
    ],
    ids=["one", "marker", "aborted", "compacted-before", "an-edge-within-gaps"],
)
def test_records_are_counted_in_the_offsets_of_a_plan(
    batches: list[Batch], numbers: tuple[int, int, int, int] | None
) -> None:
    """From the target on, and among what was done with: below the start offset and finished in the state."""
    finished = (StateBatch(first_offset=45, last_offset=54, delivery_state=2, delivery_count=1),)
    facts = partition_facts(40, (10, 100), finished)
    (row,) = a_plan(a_request(), a_snapshot(facts)).partitions
    counts = counts_of(row, batches)
    if numbers is None:
        assert counts is None
        return
    assert counts is not None
    marker = sum(b.kind is BatchKind.CONTROL for b in batches)
    found = (counts.to_deliver, counts.to_deliver_aborted, counts.delivered_again, counts.delivered_again_aborted)
    assert found == (numbers[0], numbers[1], numbers[2] - marker, numbers[3])
