"""Dead-letter records beside archived offsets: counts that add up, as a naive comparison has them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from acktrail.reconcile.past.dead_letter_reader import DeadLetterDoubt, doubted, match_dead_letters

RANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)).map(lambda pair: (pair[0], sum(pair))), max_size=8)
OFFSETS = st.lists(st.integers(0, 40), max_size=20)


@given(RANGES, OFFSETS)
def test_counts_are_those_of_sets(archived: list[tuple[int, int]], offsets: list[int]) -> None:
    """Ranges may overlap and offsets come twice: each offset counts once, each record is in one count."""
    found = match_dead_letters(archived, offsets)

    there = {offset for first, last in archived for offset in range(first, last + 1)}
    lettered = set(offsets)
    assert found.archived == len(there)
    assert found.records == len(offsets)
    assert found.with_record == len(there & lettered)
    assert found.without_record == len(there - lettered)
    assert found.not_archived == len(lettered - there)
    assert found.repeated == len(offsets) - len(lettered)
    assert found.archived == found.with_record + found.without_record
    assert found.records == found.with_record + found.not_archived + found.repeated


def test_long_ranges_cost_nothing() -> None:
    """A range of all offsets that there are is no list of them."""
    found = match_dead_letters([(0, 2**63 - 1)], [2**63 - 1])
    assert (found.with_record, found.without_record) == (1, 2**63 - 1)


@given(RANGES, OFFSETS, st.sets(st.sampled_from(DeadLetterDoubt)))
def test_a_doubt_leaves_numbers_unknown(
    archived: list[tuple[int, int]], offsets: list[int], doubts: set[DeadLetterDoubt]
) -> None:
    """What a doubt touches is null and never 0; all else stays, and how many records there are is never in doubt."""
    plain = match_dead_letters(archived, offsets)
    found = doubted(plain, doubts)

    assert (found.records, found.repeated) == (plain.records, plain.repeated)
    assert (found.not_archived is None) == bool(doubts - {DeadLetterDoubt.LETTERS})
    assert (found.without_record is None) == bool(doubts - {DeadLetterDoubt.HISTORY})
    assert (found.with_record is None) == bool(doubts & {DeadLetterDoubt.TOPIC, DeadLetterDoubt.NAME})
    assert found.archived == (None if DeadLetterDoubt.NAME in doubts else plain.archived)
