"""Which partitions of a reset are to wait for others, so that it is done in phases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from acktrail.model.expansion.dependencies import destinations_of
from acktrail.model.expansion.reset_order import Beginnings, FencedExpansion, is_finished


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
    """
    beginnings, ends = Beginnings(targets, log_starts or {}), log_ends or {}
    found: dict[int, set[int]] = defaultdict(set)
    for index, left in enumerate(expansions):
        unfinished = [
            source
            for source in range(left.old_count)
            if not is_finished(targets.get(source), left.fences.get(source), ends.get(source))
        ]
        for source in unfinished:
            for destination in _made_since(expansions[index:], source, beginnings):
                found[destination].add(source)
    return {destination: tuple(sorted(found[destination])) for destination in sorted(found)}


def _made_since(expansions: Sequence[FencedExpansion], source: int, beginnings: Beginnings) -> set[int]:
    """The partitions made by the first of `expansions` or a later one that depend on `source` and have not begun."""
    left = expansions[0]
    return {
        destination
        for reached in expansions
        for destination in destinations_of(source, left.old_count, reached.new_count, left.mapping)
        if destination >= left.old_count and beginnings.has_begun(reached, destination) is False
    }
