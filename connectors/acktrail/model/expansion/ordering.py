"""Were the records from before an expansion finished before those after it were begun? The words of the answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

NO_POSITION: Final = -1
"""In place of a position: the group was asked and has none."""

CLOCKS_MS: Final = 5_000
"""How far the clocks of brokers and of those who look may be apart."""


class OrderingVerdict(StrEnum):
    """What the observations of one group prove about one dependency. SAFE and VIOLATION are proofs."""

    SAFE = "safe"
    VIOLATION = "violation"
    POSSIBLE_VIOLATION = "possible_violation"
    INDETERMINATE = "indeterminate"
    NOT_STARTED = "not_started"
    NOT_APPLICABLE = "not_applicable"
    UNKNOWN_FENCE = "unknown_fence"


class OrderingReason(StrEnum):
    """Why a verdict is another one than positions alone give."""

    WORK_NOT_RECORDED = "no state record shows when the share group began with the destination"
    WORK_RECORDED = "state records show work on the destination while its start offset stood"
    NO_RECORD_KNOWN = "below the fence there may be transaction markers, aborted or compacted records alone"
    EXPIRED = "the retention took the records below the fence before the group had them"
    NONE_SHOWN_OPEN = "no state record shows an unfinished record below the fence: a start offset below it proves none"
    HIDDEN_COUNT = "another partition count may have lain between the looks"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpansionFence:
    """Between which offsets of a source partition its last record from before the expansion lies.

    Every record below `low` was there before the expansion was seen; no record at or above `high` was written by a
    producer that did not know the new count. None: not known, or (`high`) not known yet. `record_end`: one past
    the newest offset below `low` that is a record's for certain, 0 where none is known; None: each offset below `low`
    is one's. Others can be transaction markers, aborted or compacted records.
    """

    low: int | None
    high: int | None
    record_end: int | None = None


def has_begun(position: int | None, fence: ExpansionFence) -> bool | None:
    """Whether a group at `position` of a destination has begun with its records from after the expansion; None: not
    proven. `fence` is the destination's own; a new partition's is its first offset, low and high.

    In a partition that was there before, records between its two fences may be from before or after. To be past the
    low fence therefore proves no beginning: only a position above the high fence does.
    """
    if position is None:
        return None
    if fence.low is not None and position <= fence.low:
        return False
    return True if fence.high is not None and position > fence.high else None
