"""Which partitions had the records of a key before an expansion, for each partition that has them after it.

A key with hash h was in partition h mod the old count and is in h mod the new one. Both leave the same remainder by
their greatest common divisor, and every pair that does is some key's. Where the mapping of keys is not known, each new
partition depends on every old one, and nothing is known to move between old ones.

Example: from 4 to 6 partitions 4 has keys of 0 and 2, and 0 has keys of 2.

    >>> sources_of(4, 4, 6, KeyMapping.MURMUR2), sources_of(0, 4, 6, KeyMapping.MURMUR2)
    ((0, 2), (2,))
"""

from __future__ import annotations

from math import gcd

from acktrail_expansion.law.key_mapping import KeyMapping


def sources_of(destination: int, old_count: int, new_count: int, mapping: KeyMapping) -> tuple[int, ...]:
    """The partitions that `destination` depends on, ascending; none where no key moves to it."""
    if mapping is KeyMapping.NONE:
        return tuple(range(old_count)) if destination >= old_count else ()
    step = gcd(old_count, new_count)
    return tuple(found for found in range(destination % step, old_count, step) if found != destination)


def moves_with_every_count(destination: int, old_count: int, new_count: int, mapping: KeyMapping) -> bool:
    """Whether records of `destination` may follow those of its sources by whichever count that may have lain between
    both. A partition that was there before is begun by records of the new count alone. A new one may hold records of a
    count in between; where the new count is a multiple, keys of a source can be in it with each."""
    return mapping is KeyMapping.NONE or destination < old_count or new_count % old_count == 0
