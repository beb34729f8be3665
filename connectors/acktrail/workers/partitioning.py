"""State partitions shared among workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["shares_of"]

T = TypeVar("T")


def shares_of(items: Iterable[T], weight: Callable[[T], int], count: int) -> list[tuple[T, ...]]:
    """At most `count` shares of neighbours, in the order of `items`, none empty.

    Neighbours, because a commit's rows lie in files by state partition: what a worker reads is one piece of each. No
    share is heavier than an equal one by more than its heaviest item.
    """
    given = list(items)
    weights = [weight(item) for item in given]
    total, reached = sum(weights), 0
    shares: dict[int, list[T]] = {}
    for item, own in zip(given, weights, strict=True):
        place = (2 * reached + own) * count // (2 * total) if total else 0
        shares.setdefault(min(place, count - 1), []).append(item)
        reached += own
    return [tuple(share) for share in shares.values()]
