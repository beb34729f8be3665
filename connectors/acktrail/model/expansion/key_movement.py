"""Which share of a topic's keys an expansion moves to another partition."""

from __future__ import annotations

from fractions import Fraction
from math import gcd


def moving_share(old_count: int, new_count: int) -> Fraction:
    """The share of keys whose partition changes, for a mapping that takes a hash modulo the count.

    Of the lcm(old, new) remainders that a hash can leave, those below `old_count` are the same by both counts, and no
    others: old / lcm = gcd / new of the keys stay. From 2 to 4 half of the keys move, from 2 to 3 two thirds. Exact
    for hashes that are equally frequent.

    Raises:
        ValueError: `new_count` is not above `old_count`, or `old_count` not above 0.
    """
    if not 0 < old_count < new_count:
        raise ValueError(f"no expansion: from {old_count} to {new_count} partitions")
    return 1 - Fraction(gcd(old_count, new_count), new_count)
