"""How work is shared among workers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from acktrail.executors import balanced_shares
from acktrail.reconcile.observed_run import Coverage, StateLog
from acktrail.reconcile.replay_resume import ReplayStart, replay_shares


@given(st.lists(st.integers(0, 50), max_size=12), st.integers(1, 5))
def test_shares_are_neighbours_of_about_the_same_weight(weights: list[int], count: int) -> None:
    """Every item once, in order; no more shares than asked; none that outweighs an equal share by more than its
    heaviest item."""
    items = list(enumerate(weights))
    shares = balanced_shares(items, lambda item: item[1], count)
    assert [item for share in shares for item in share] == items
    assert len(shares) <= count
    assert all(shares)
    for share in shares:
        own = [weight for _, weight in share]
        assert sum(own) <= sum(weights) / count + max(own)


def test_there_are_as_many_shares_as_workers_however_many_records() -> None:
    """Each share of whole state partitions reads what is not compacted: more of them would read it more often."""
    for records in (10, 90_000, 2_000_000):
        coverages = {n: Coverage(state_partition=n, log=StateLog(), end_offset=records) for n in range(50)}
        shares = replay_shares(coverages, ReplayStart(), 2)
        assert [each.state_partition for share in shares for each in share] == list(range(50))
        assert len(shares) == 2
