"""How work is shared among workers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from acktrail_jobs.sharing import shares_of


@given(st.lists(st.integers(0, 50), max_size=12), st.integers(1, 5))
def test_shares_are_neighbours_of_about_the_same_weight(weights: list[int], count: int) -> None:
    """Every item once, in order; no more shares than asked; none that outweighs an equal share by more than its
    heaviest item."""
    items = list(enumerate(weights))
    shares = shares_of(items, lambda item: item[1], count)
    assert [item for share in shares for item in share] == items
    assert len(shares) <= count
    assert all(shares)
    for share in shares:
        own = [weight for _, weight in share]
        assert sum(own) <= sum(weights) / count + max(own)
