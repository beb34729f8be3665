"""Delivery states, batches of offsets that share one, and how lists of batches are combined into one.

Kafka: ``PersisterStateBatchCombiner``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any, Final

HIGHEST_DELIVERY_COUNT: Final = 25
"""The highest that ``group.share.max.delivery.count.limit`` can be set to: no configuration allows more deliveries."""


def prune_state_batches(batches: Iterable[StateBatch], start_offset: int | None) -> tuple[StateBatch, ...]:
    """Drop what is below `start_offset` and clip the batch that crosses it; an unknown start keeps all."""
    if start_offset is None:
        return tuple(batches)
    return tuple(
        batch if batch.first_offset >= start_offset else replace(batch, first_offset=start_offset)
        for batch in batches
        if batch.last_offset >= start_offset
    )


def first_unfinished_offset(start_offset: int | None, batches: Iterable[StateBatch]) -> int | None:
    """The start offset a share-partition leader takes on load: past the leading terminal batches.

    The recorded one may be behind: a leader does not write a record only to advance it (Kafka: ``SharePartition``).
    """
    offset = start_offset
    for batch in batches:
        if batch.first_offset != offset or not batch.is_terminal:
            break
        offset = batch.last_offset + 1
    return offset


def end_offset(start_offset: int | None, batches: Iterable[StateBatch]) -> int | None:
    """One past the last offset that start offset and batches mention: a lower bound of the SPEO, which only the drafts
    i and ii record."""
    ends = [batch.last_offset + 1 for batch in batches]
    return max(ends if start_offset is None else [start_offset, *ends], default=None)


def combine_state_batches(
    so_far: Sequence[StateBatch], new: Sequence[StateBatch], start_offset: int | None
) -> tuple[StateBatch, ...]:
    """Combine two lists of batches into the shortest cover without overlaps.

    Returns:
        Ascending, disjoint batches. The winner at an offset is the batch with the highest delivery count and, at equal
        counts, the highest delivery state, whichever list it came from; neighbours with equal state and count are one
        batch; offsets that no batch covers stay gaps.

    The invariant: the result is a function of the *set* of (offset, count, state) only, so merges commute, associate
    and repeat without effect. Nothing or one batch left after pruning is returned as it stands, also when inverted;
    an inverted batch beside others covers no offset. Cost: O(n log n) for n batches, O(n) where they are combined
    already.

    Kafka before 4.4 gives the same cover but may leave equal neighbours unjoined (KAFKA-20691).

    Offsets 0-9 are available after one delivery; a member acknowledges 5-9 at the second:

    >>> available = StateBatch(first_offset=0, last_offset=9, delivery_state=0, delivery_count=1)
    >>> acknowledged = StateBatch(first_offset=5, last_offset=9, delivery_state=2, delivery_count=2)
    >>> for batch in combine_state_batches([available], [acknowledged], start_offset=2):
    ...     print(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
    2 4 0 1
    5 9 2 2
    """
    batches = prune_state_batches((*so_far, *new), start_offset)
    if len(batches) < 2 or _is_combined(batches):
        return batches
    return cover(batches, [(-batch.delivery_count, -batch.delivery_state) for batch in batches])


def _is_combined(batches: Sequence[StateBatch]) -> bool:
    """Whether the batches ascend, do not overlap, and no two neighbours could be one batch."""
    return all(b.first_offset <= b.last_offset for b in batches) and all(
        batch.last_offset + 1 < later.first_offset
        or (
            batch.last_offset + 1 == later.first_offset
            and (batch.delivery_state, batch.delivery_count) != (later.delivery_state, later.delivery_count)
        )
        for batch, later in pairwise(batches)
    )


def cover(batches: Sequence[StateBatch], ranks: Sequence[Any]) -> tuple[StateBatch, ...]:
    """The shortest cover, in which the batch with the least rank wins at an offset.

    A sweep over the boundaries; the heap holds the open batches, the one of the least rank first.
    """
    pairs = [
        (rank, batch) for rank, batch in zip(ranks, batches, strict=True) if batch.first_offset <= batch.last_offset
    ]
    upcoming = sorted(pairs, key=lambda pair: pair[1].first_offset, reverse=True)
    boundaries = sorted({edge for _, batch in pairs for edge in (batch.first_offset, batch.last_offset + 1)})
    result: list[StateBatch] = []
    open_batches: list[tuple[Any, int, int, int]] = []  # rank, last offset, state, count
    for begin, end in pairwise(boundaries):
        while upcoming and upcoming[-1][1].first_offset == begin:
            rank, batch = upcoming.pop()
            heappush(open_batches, (rank, batch.last_offset, batch.delivery_state, batch.delivery_count))
        while open_batches and open_batches[0][1] < begin:
            heappop(open_batches)
        if open_batches:
            _, _, state, count = open_batches[0]
            first, last = begin, result[-1] if result else None
            if last and last.last_offset + 1 == begin and (last.delivery_state, last.delivery_count) == (state, count):
                first = result.pop().first_offset
            result.append(
                StateBatch(first_offset=first, last_offset=end - 1, delivery_state=state, delivery_count=count)
            )
    return tuple(result)


class DeliveryState(IntEnum):
    """The delivery state of a record within one group (Kafka: ``RecordState``)."""

    AVAILABLE = 0
    ACQUIRED = 1
    """An in-memory lock; the broker never persists it."""
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """Waiting for the dead letter queue (KIP-1191, Kafka 4.4)."""
    ARCHIVED = 4


TERMINAL_STATES: Final = frozenset({DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED})
"""States that never change again and count as complete. Archiving is not one of them."""


DURABLE_STATES: Final = frozenset(
    {DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVING, DeliveryState.ARCHIVED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBatch:
    """Offsets `first_offset` to `last_offset`, both inclusive, in one delivery state with one delivery count.

    `delivery_state` stays a plain integer: numbers that no release defines yet pass through unchanged
    (Kafka: ``PersisterStateBatch``).
    """

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int

    @property
    def is_terminal(self) -> bool:
        return self.delivery_state in TERMINAL_STATES


def covered(batch: StateBatch, start_offset: int | None) -> int:
    """How many offsets of `batch` lie at or above `start_offset` (all of them when it is unknown)."""
    first = batch.first_offset if start_offset is None else max(batch.first_offset, start_offset)
    return max(0, batch.last_offset - first + 1)


def state_name(number: int) -> str:
    """The delivery state's name in lower case, or ``state-N`` for a number no release defines."""
    try:
        return DeliveryState(number).name.lower()
    except ValueError:
        return f"state-{number}"
