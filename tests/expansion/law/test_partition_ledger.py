"""Expansions and fences out of observations: nothing is called a fence that is none."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from acktrail_expansion.law.partition_ledger import (
    ExpansionFence,
    ExpansionStatus,
    FenceGap,
    TopicObservation,
    expansion_id,
    read_ledger,
)

SETTLE_MS = 10


def look(at: int, *ends: int | None, is_consistent: bool = True) -> TopicObservation:
    starts = tuple(0 for _ in ends)
    return TopicObservation(observed_at_ms=at, log_ends=ends, log_starts=starts, is_consistent=is_consistent)


def test_an_expansion_with_its_fences() -> None:
    """R003-09: the low fence is the last end with the old count, the high one the first after the settle time."""
    looks = [
        look(0, 5, 6),
        look(3, 7, 8),
        look(5, 9, 9, 0),
        look(14, 11, 11, 1),
        look(15, 12, 13, 2),
        look(30, 20, 20, 3),
    ]
    [found] = read_ledger("c", "t", looks, SETTLE_MS)

    assert (found.old_count, found.new_count, found.is_single) == (2, 3, True)
    assert (found.last_seen_old_at_ms, found.first_seen_new_at_ms, found.settles_at_ms) == (3, 5, 15)
    assert found.fences == (ExpansionFence(low=7, high=12), ExpansionFence(low=8, high=13))
    assert found.status is ExpansionStatus.SETTLED
    assert found.event_id == expansion_id("c", "t", 2, 3) != expansion_id("other", "t", 2, 3)


def test_what_is_not_known_of_a_fence_has_a_reason() -> None:
    """R003-09: looks that straddle a change give no low fence, a lost log end no fence, a log that was not asked the
    end of another look, and before the settle time there is no high one."""
    straddling = [look(0, 5, is_consistent=False), look(5, 9, 0), look(20, 10, 1)]
    [found] = read_ledger("c", "t", straddling, SETTLE_MS)
    assert (found.fences, found.gaps) == ((ExpansionFence(low=None, high=10),), (FenceGap.NOT_SEEN_BEFORE,))

    truncated = [look(0, 5), look(5, 4, 0), look(20, 10, 1)]
    [found] = read_ledger("c", "t", truncated, SETTLE_MS)
    assert (found.fences, found.gaps) == ((ExpansionFence(low=None, high=None),), (FenceGap.TRUNCATED,))

    silent = [look(0, 5), look(2, None), look(5, 7, 0), look(20, None, 1), look(21, 12, 1)]
    [found] = read_ledger("c", "t", silent, SETTLE_MS)
    assert found.fences == (ExpansionFence(low=5, high=12),)
    [found] = read_ledger("c", "t", silent[:-1], SETTLE_MS)
    assert (found.fences, found.gaps) == ((ExpansionFence(low=5, high=None),), (FenceGap.NOT_SEEN_AFTER,))
    [found] = read_ledger("c", "t", silent[:-2], SETTLE_MS)
    assert (found.status, found.gaps) == (ExpansionStatus.SETTLING, (FenceGap.SETTLING,))


def test_producers_settle_from_when_every_broker_knows_the_count() -> None:
    """R003-09: a look that straddles the change does not begin the settle time, for a broker may have told producers
    the old count after it. The first consistent one does, after its last list, also with a higher count; without one
    nothing settles, with any settle time."""
    looks = [look(0, 5), look(5, 9, 0, is_consistent=False), look(15, 10, 1), look(25, 12, 2)]
    [found] = read_ledger("c", "t", looks, SETTLE_MS)
    assert (found.first_seen_new_at_ms, found.settles_at_ms) == (5, 25)
    assert found.fences == (ExpansionFence(low=5, high=12),)

    slow = [*looks[:2], replace(looks[2], listed_at_ms=17), *looks[3:], look(27, 13, 2)]
    [found] = read_ledger("c", "t", slow, SETTLE_MS)
    assert (found.settles_at_ms, found.fences) == (27, (ExpansionFence(low=5, high=13),))

    for settle_ms in (0, SETTLE_MS):
        [found] = read_ledger("c", "t", looks[:2], settle_ms)
        assert (found.settles_at_ms, found.status) == (None, ExpansionStatus.SETTLING)
        assert (found.fences, found.gaps) == ((ExpansionFence(low=5, high=None),), (FenceGap.SETTLING,))
    first, _ = read_ledger("c", "t", [*looks[:2], look(15, 10, 1, 0)], SETTLE_MS)
    assert first.settles_at_ms == 25


def test_a_count_that_falls_makes_no_second_expansion() -> None:
    """A broker with old metadata, or a clock that was set back: the expansion stays the one it was, with its fences."""
    looks = [look(0, 5), look(5, 9, 0), look(6, 10), look(8, 11, 0), look(20, 12, 1), look(21, 12, 1, 0)]
    found = read_ledger("c", "t", looks, SETTLE_MS)

    assert [(each.old_count, each.new_count) for each in found] == [(1, 2), (2, 3)]
    assert found[0].fences == (ExpansionFence(low=5, high=12),)
    assert read_ledger("c", "t", [], SETTLE_MS) == ()


@given(st.integers(0, 10**9))
def test_order_and_repetition_change_nothing(seed: int) -> None:
    """R003-09: the same observations in any order and more than once are the same ledger, and counts are chained."""
    chance = Random(seed)
    looks, ends, at = [], [chance.randint(0, 3)], 0
    for _ in range(12):
        at += chance.randint(1, 9)
        ends = [end + chance.randint(0, 3) for end in ends] + [0] * (chance.random() < 0.3)
        seen = [None if chance.random() < 0.1 else end for end in ends]
        looks.append(replace(look(at, *seen), is_consistent=chance.random() < 0.8))
    found = read_ledger("c", "t", looks, SETTLE_MS)
    mixed = [*looks, *chance.choices(looks, k=5)]
    chance.shuffle(mixed)

    assert read_ledger("c", "t", mixed, SETTLE_MS) == found
    counts = [(each.old_count, each.new_count) for each in found]
    assert all(before[1] == after[0] for before, after in pairwise(counts))
    for each in found:
        assert all(fence.low is None or fence.high is None or fence.low <= fence.high for fence in each.fences)
        assert all(
            (gap is None) == (None not in (f.low, f.high)) for f, gap in zip(each.fences, each.gaps, strict=True)
        )
