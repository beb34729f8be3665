"""Was each key of each producer consumed in the order in which it was produced?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from acktrail_simulation.expansion.expansion_world import Delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class Inversion:
    """`overtaken` was produced before `early` and delivered after it."""

    overtaken: Delivery
    early: Delivery


def inversions(delivered: Iterable[Delivery]) -> list[Inversion]:
    """Each record that came too late, with the first that overtook it from each partition. Cost: linear where the
    order is kept."""
    latest: dict[tuple[int, bytes], dict[int, list[Delivery]]] = {}
    found: list[Inversion] = []
    for each in delivered:
        by_partition = latest.setdefault((each.record.producer, each.record.key), {})
        for others in by_partition.values():
            if others[-1].record.sequence > each.record.sequence:
                early = next(other for other in others if other.record.sequence > each.record.sequence)
                found.append(Inversion(overtaken=each, early=early))
        by_partition.setdefault(each.partition, []).append(each)
    return found
