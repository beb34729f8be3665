"""Which partitions of a reset are to wait for others, so that it is done in phases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import gcd

from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.expansion.reset_order import Beginnings, FencedExpansion, hides_counts, is_finished

_Class = tuple[int, int, int]
"""Sources of an expansion that are alike: its number, that of the expansion reached, and the remainder of both."""


def waiting(
    targets: Mapping[int, int | None],
    expansions: Sequence[FencedExpansion],
    *,
    log_starts: Mapping[int, int] | None = None,
    log_ends: Mapping[int, int] | None = None,
) -> dict[int, tuple[int, ...]]:
    """The partitions that begin at their beginning and depend on partitions that are not finished: each, ascending,
    with these sources, ascending. Arguments as of ``check_reset``; a source whose fence is not known is not finished
    before its end.

    Only partitions that an expansion made wait: where keys move between partitions that were there before, the records
    from before and from after lie in the same logs, and none can be held back alone. A source is always a lower
    partition than one that waits for it, so the lowest waits for none of the others, and phases come to an end.

    Partitions that wait for the same sources share one tuple. Cost: the number of partitions for each two expansions,
    and the lengths of these tuples.
    """
    beginnings, ends = Beginnings(targets, log_starts or {}), log_ends or {}
    found: dict[int, list[_Class]] = defaultdict(list)
    sources: dict[_Class, list[int]] = defaultdict(list)
    for index, left in enumerate(expansions):
        unfinished = [
            source
            for source in range(left.old_count)
            if not is_finished(targets.get(source), left.fences.get(source), ends.get(source))
        ]
        for number, reached in enumerate(expansions[index:], start=index):
            is_wide = left.mapping is KeyMapping.NONE or hides_counts(expansions[index : number + 1])
            step = 1 if is_wide else gcd(left.old_count, reached.new_count)
            for source in unfinished:
                sources[index, number, source % step].append(source)
            for destination in range(left.old_count, reached.new_count):
                own = index, number, destination % step
                if own in sources and beginnings.has_begun(reached, destination) is False:
                    found[destination].append(own)
    joined: dict[tuple[_Class, ...], tuple[int, ...]] = {}
    for classes in {tuple(each) for each in found.values()}:
        joined[classes] = tuple(sorted({source for each in classes for source in sources[each]}))
    return {destination: joined[tuple(found[destination])] for destination in sorted(found)}
