"""The two rules by which a partial record changes the batches before it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from heapq import heappop, heappush
from itertools import pairwise

from acktrail.model.batches import append_joined, combine_state_batches, prune_state_batches
from acktrail.model.delivery import StateBatch


class Merging(StrEnum):
    """Which rule."""

    OVERLAY = "overlay"
    """The last writer wins at every offset: how the founding documents read (generations i to iii)."""
    COMBINER = "combiner"
    """The highest delivery count, then the highest state, wins: Kafka's own (generation iv and shipped)."""


def merge_state_batches(
    merging: Merging, so_far: Sequence[StateBatch], new: Sequence[StateBatch], start_offset: int | None
) -> tuple[StateBatch, ...]:
    """`new` on top of `so_far` by the chosen rule, pruned at `start_offset`."""
    merge = overlay_state_batches if merging is Merging.OVERLAY else combine_state_batches
    return merge(so_far, new, start_offset)


def overlay_state_batches(
    so_far: Sequence[StateBatch], new: Sequence[StateBatch], start_offset: int | None
) -> tuple[StateBatch, ...]:
    """The last writer wins at every offset; within one list, the later batch.

    Returns:
        Ascending, disjoint batches at or above `start_offset`; neighbours with equal state and count are one batch.
        An inverted batch covers no offset. Cost: O(n log n) for n batches.
    """
    layers = [b for b in prune_state_batches((*so_far, *new), start_offset) if b.first_offset <= b.last_offset]
    opening = sorted(range(len(layers)), key=lambda rank: layers[rank].first_offset, reverse=True)
    edges = sorted({edge for b in layers for edge in (b.first_offset, b.last_offset + 1)})
    pieces: list[StateBatch] = []
    top: list[int] = []  # negated ranks of the open layers: the uppermost first
    for begin, end in pairwise(edges):
        while opening and layers[opening[-1]].first_offset == begin:
            heappush(top, -opening.pop())
        while top and layers[-top[0]].last_offset < begin:
            heappop(top)
        if top:
            layer = layers[-top[0]]
            append_joined(pieces, begin, end - 1, layer.delivery_state, layer.delivery_count)
    return tuple(pieces)
