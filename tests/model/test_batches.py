"""The combiner against its pointwise specification and Kafka's own answers."""

from __future__ import annotations

from itertools import pairwise

import pytest
from definitions.batch_laws import in_order
from hypothesis import given
from hypothesis import strategies as st
from samples.random_records import batches

from acktrail.model.batches import StateBatch, combine_state_batches

starts = st.one_of(st.none(), st.integers(0, 45))


def parse(text: str) -> tuple[StateBatch, ...]:
    """``first-last state count; ...``"""
    found = []
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        bounds, state, count = part.split()
        first, last = bounds.split("-")
        found.append(
            StateBatch(
                first_offset=int(first), last_offset=int(last), delivery_state=int(state), delivery_count=int(count)
            )
        )
    return tuple(found)


def pointwise(found: tuple[StateBatch, ...], start: int | None) -> dict[int, tuple[int, int]]:
    """(count, state) of every covered offset at or above `start`: the naive version."""
    winners: dict[int, tuple[int, int]] = {}
    for batch in found:
        for offset in range(max(batch.first_offset, start or 0), batch.last_offset + 1):
            candidate = (batch.delivery_count, batch.delivery_state)
            winners[offset] = max(winners.get(offset, candidate), candidate)
    return winners


@given(batches(), batches(), starts)
def test_combining_equals_the_pointwise_rule(
    so_far: tuple[StateBatch, ...], new: tuple[StateBatch, ...], start: int | None
) -> None:
    """At every offset the highest count, then the highest state wins; nothing else is covered."""
    combined = combine_state_batches(so_far, new, start)

    assert pointwise(combined, None) == pointwise(so_far + new, start)


@given(batches(), batches(), starts)
def test_is_the_shortest_ordered_cover(
    so_far: tuple[StateBatch, ...], new: tuple[StateBatch, ...], start: int | None
) -> None:
    """Two or more batches come out ascending, disjoint, and with no equal neighbours."""
    combined = combine_state_batches(so_far, new, start)

    assert in_order(combined)
    for left, right in pairwise(combined):
        same = (left.delivery_state, left.delivery_count) == (right.delivery_state, right.delivery_count)
        assert not (same and left.last_offset + 1 == right.first_offset)


@given(batches(), batches(), batches(), starts)
def test_the_order_of_batches_does_not_matter(
    a: tuple[StateBatch, ...], b: tuple[StateBatch, ...], c: tuple[StateBatch, ...], start: int | None
) -> None:
    """Merging commutes, associates and repeats without effect, offset by offset."""
    left = combine_state_batches(combine_state_batches(a, b, start), c, start)
    right = combine_state_batches(a, combine_state_batches(c, b, start), start)

    assert pointwise(left, None) == pointwise(right, None)
    assert combine_state_batches(left, left, start) == combine_state_batches(left, (), start)


KAFKAS_ANSWERS = [
    ("", "", None, ""),
    ("100-109 0 1", "111-119 0 1", None, "100-109 0 1; 111-119 0 1"),
    ("100-109 0 1", "110-119 0 1", None, "100-119 0 1"),
    ("100-109 0 1", "110-119 2 1", None, "100-109 0 1; 110-119 2 1"),
    ("100-109 0 1", "100-109 0 2", None, "100-109 0 2"),
    ("100-109 0 3", "100-109 0 2", None, "100-109 0 3"),
    ("100-109 0 1", "100-109 2 1", None, "100-109 2 1"),
    ("100-109 4 1", "100-109 2 1", None, "100-109 4 1"),
    ("100-109 2 1", "100-109 0 2", None, "100-109 0 2"),
    ("100-109 0 1", "100-119 0 2", None, "100-119 0 2"),
    ("100-109 0 2", "100-119 0 1", None, "100-109 0 2; 110-119 0 1"),
    ("100-119 0 1", "100-109 2 1", None, "100-109 2 1; 110-119 0 1"),
    ("100-119 2 2", "100-109 0 1", None, "100-119 2 2"),
    ("100-119 0 1", "105-109 2 2", None, "100-104 0 1; 105-109 2 2; 110-119 0 1"),
    ("100-119 0 2", "105-109 2 1", None, "100-119 0 2"),
    ("100-119 0 1", "110-119 2 1", None, "100-109 0 1; 110-119 2 1"),
    ("100-119 2 2", "110-119 0 1", None, "100-119 2 2"),
    ("100-109 0 1", "105-114 2 1", None, "100-104 0 1; 105-114 2 1"),
    ("100-109 0 2", "105-114 2 1", None, "100-109 0 2; 110-114 2 1"),
    ("105-114 0 1", "100-109 2 1", None, "100-109 2 1; 110-114 0 1"),
    ("100-109 0 1", "105-114 0 1", None, "100-114 0 1"),
    ("100-109 0 1; 110-119 0 2; 120-129 0 1", "105-124 2 2", None, "100-104 0 1; 105-124 2 2; 125-129 0 1"),
    ("100-109 2 1", "110-119 0 1", 110, "110-119 0 1"),
    ("100-109 2 1", "110-119 0 1", 105, "105-109 2 1; 110-119 0 1"),
    ("100-109 2 1", "110-119 0 1", 200, ""),
    ("100-110 3 2", "100-110 4 2", None, "100-110 4 2"),
    ("0-9 2 1", "10-19 0 1; 10-29 2 1", None, "0-29 2 1"),
    ("100-110 0 1", "100-110 0 2; 100-110 0 3", None, "100-110 0 3"),
    ("0-5 2 1", "0-5 2 1; 11-15 0 1", None, "0-5 2 1; 11-15 0 1"),
]


@pytest.mark.parametrize(("so_far", "new", "start", "expected"), KAFKAS_ANSWERS)
def test_combining_equals_recorded_results_of_kafka(so_far: str, new: str, start: int | None, expected: str) -> None:
    """What Kafka's PersisterStateBatchCombiner (4.4) answered to these lists."""
    assert combine_state_batches(parse(so_far), parse(new), start) == parse(expected)


def test_a_single_batch_is_not_changed() -> None:
    """One batch, even inverted, is returned as it stands; beside others an inverted one covers nothing."""
    inverted = parse("9-5 0 1")

    assert combine_state_batches(inverted, (), None) == inverted
    assert combine_state_batches(inverted, parse("20-29 2 1"), None) == parse("20-29 2 1")


def test_the_largest_offset_does_not_overflow() -> None:
    """A batch that ends at the largest offset there is does not overflow."""
    top = 2**63 - 1

    assert combine_state_batches(parse(f"{top - 5}-{top} 0 1"), parse(f"{top}-{top} 2 1"), None) == parse(
        f"{top - 5}-{top - 1} 0 1; {top}-{top} 2 1"
    )
