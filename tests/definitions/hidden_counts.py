"""What a verdict is worth where another partition count may have lain between two observations.

Seen are 2 partitions and then 4. If there were 3 for a while, records of partition 3 follow records of 0, 1 and 2, and
not of 1 alone, as the counts that were seen have it. So nothing is safe then. A violation of what these counts have
stays one where keys can have moved that way with each count in between.
"""

from __future__ import annotations

from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.expansion.ordering import OrderingVerdict


def moves_with_every_count(
    destination: int, source_count: int, old_count: int, new_count: int, mapping: KeyMapping
) -> bool:
    """Whether what a group began with in `destination` of an expansion from `old_count` to `new_count` may follow
    records of the sources that it has with `source_count`, by whichever count between both it was written.

    A partition that was there before is begun by records of the new count alone. A new one may hold records of a count
    in between; where the new count is a multiple, a source is equal to the destination modulo `source_count`, and so by
    each divisor.
    """
    return mapping is KeyMapping.NONE or destination < old_count or new_count % source_count == 0


def provable(verdict: OrderingVerdict, *, is_single: bool, is_moved: bool) -> OrderingVerdict:
    """What is left of `verdict`. `is_single`: no count can have been between those of the destination's expansion, nor
    between those of the sources' (SAFE needs both). `is_moved`: no count between those of the destination's can have
    been, or keys moved with each (`moves_with_every_count`)."""
    if verdict is OrderingVerdict.SAFE and not is_single:
        return OrderingVerdict.INDETERMINATE
    if verdict is OrderingVerdict.VIOLATION and not is_moved:
        return OrderingVerdict.POSSIBLE_VIOLATION
    return verdict
