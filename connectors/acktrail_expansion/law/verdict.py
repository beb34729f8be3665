"""What is proven of one group and one partition that keys moved to. The only names of verdicts and of reasons."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class OrderVerdict(StrEnum):
    """SAFE, BROKEN and SKIPPED are proofs."""

    SAFE = "safe"
    """Every record below the fence was finished before the first record above it was begun."""
    BROKEN = "broken"
    """A record below the fence is shown that was open when a record above it was begun."""
    SKIPPED = "skipped"
    """The group never got the first records of a new partition (KAFKA-20742)."""
    NOT_PROVEN = "not_proven"


WORST_FIRST: Final = (OrderVerdict.BROKEN, OrderVerdict.SKIPPED, OrderVerdict.NOT_PROVEN, OrderVerdict.SAFE)


class NotProven(StrEnum):
    """The one reason why nothing is proven: the first that applies, in this order."""

    SEVERAL_EXPANSIONS = "several_expansions"
    """Another partition count may have lain between two looks."""
    NO_FENCE = "no_fence"
    """Where the records from before end in the source is not known: `expansion_fences` says why."""
    NOT_BEGUN = "not_begun"
    """The group was not seen to have begun with the destination."""
    NOT_RECORDED = "not_recorded"
    """State records that would show it were not exported, or cannot be read, or are not in the history yet."""
    RESET = "reset"
    """The group was reset, or its position fell, after what would prove it."""
    NO_RECORD_KNOWN = "no_record_known"
    """What was open below the fence may be transaction markers, aborted or compacted records alone: read the keys."""
    EXPIRED = "expired"
    """The retention took the records below the fence."""
    BETWEEN_FENCES = "between_fences"
    """What was open lies between the low and the high end of the fence: read the keys."""
    BETWEEN_LOOKS = "between_looks"
    """Both happened between two looks, or too close in time on two state partitions to know which came first."""
