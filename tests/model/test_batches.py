"""The combiner against its pointwise specification; ``tests/replay/test_kafka_replay.py`` has Kafka's own answers."""

from __future__ import annotations

from itertools import pairwise

from definitions.batch_laws import in_order
from hypothesis import given
from hypothesis import strategies as st
from jobs.world import batch
from samples.random_records import batches

from acktrail.model.batches import StateBatch, combine_state_batches

starts = st.one_of(st.none(), st.integers(0, 45))


def pointwise(found: tuple[StateBatch, ...], start: int | None) -> dict[int, tuple[int, int]]:
    """(count, state) of every covered offset at or above `start`: the naive version."""
    winners: dict[int, tuple[int, int]] = {}
    for each in found:
        for offset in range(max(each.first_offset, start or 0), each.last_offset + 1):
            candidate = (each.delivery_count, each.delivery_state)
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


def test_a_single_batch_is_not_changed() -> None:
    """One batch, even inverted, is returned as it stands; beside others an inverted one covers nothing."""
    inverted, other = batch(9, 5, 0), batch(20, 29)

    assert combine_state_batches((inverted,), (), None) == (inverted,)
    assert combine_state_batches((inverted,), (other,), None) == (other,)


def test_the_largest_offset_does_not_overflow() -> None:
    """A batch that ends at the largest offset there is does not overflow."""
    top = 2**63 - 1
    combined = combine_state_batches((batch(top - 5, top, 0),), (batch(top, top),), None)

    assert combined == (batch(top - 5, top - 1, 0), batch(top, top))
