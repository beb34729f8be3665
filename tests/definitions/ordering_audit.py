"""What observations of one group prove about the order of one dependency: the definition, look by look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from acktrail.model.expansion.ordering import ExpansionFence, OrderingReason, OrderingVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPosition:
    """One observation of one group: where it is in the source partition (None: not known), and whether it had begun
    with records of the destination that came after the expansion (`has_begun`; None: perhaps). `restarted`: the group
    was reset since the observation before, or the topic or the log is another one; what was before proves nothing any
    more. `is_gone`: by then the retention had taken all known records of the source from below its low fence;
    `is_cleared`: and all from below its high one. `doubt`: why the position in the destination alone does not rule a
    beginning out; `started` False is then what is known, and no proof."""

    source: int | None
    started: bool | None
    restarted: bool = False
    is_gone: bool = False
    is_cleared: bool = False
    doubt: OrderingReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderingAudit:
    """The verdict, and the indices of the two observations that it rests on, those that know the position in the
    source: the last before the destination was begun, and the first with it begun. `reason`: why it is another
    verdict than positions alone give."""

    verdict: OrderingVerdict
    before: int | None = None
    at: int | None = None
    reason: OrderingReason | None = None


def audit_ordering(positions: Sequence[GroupPosition], fence: ExpansionFence, *, at_once: bool = True) -> OrderingAudit:
    """Judge one dependency by the observations of one group, oldest first, since its last restart.

    Let k be the first observation that saw the destination begun for certain, and m the one after the last before k
    that rules it out without a doubt. Positions only grow, so: below the low fence at k or later, with a record left
    there for certain, proves that the destination began too early; at or above the high fence before m proves that it
    did not, as does a source that was empty. The rest is not proven either way. Cost: O(len(positions)).

    `at_once` False: source and destination of one observation were read one after the other, in either order (share
    groups keep each partition's state apart). Then a source read with a destination proves nothing: the source of the
    next observation counts for "at k or later", and that of the one before for "before m".
    """
    first = max((index for index, each in enumerate(positions) if each.restarted), default=0)
    end = len(positions)
    begun = next((index for index in range(first, end) if positions[index].started), None)
    earlier = range(first, end if begun is None else begun)
    idle = [index for index in earlier if positions[index].started is False]
    if max(idle, default=first - 1) == end - 1:
        return OrderingAudit(verdict=OrderingVerdict.NOT_STARTED)
    perhaps = 1 + max((index for index in idle if positions[index].doubt is None), default=first - 1)
    apart = 0 if at_once else 1
    at = _known(positions, range((perhaps if begun is None else begun) + apart, end))
    before = _known(positions, range(perhaps - 1 - apart, first - 1, -1))
    verdict = _verdict(
        fence,
        earlier=None if before is None else positions[before].source,
        now=None if at is None else positions[at].source,
        is_certain=begun is not None,
    )
    verdict, reason = _with_retention(
        verdict,
        is_cleared=perhaps > first and positions[perhaps - 1].is_cleared,
        is_gone=at is not None and positions[at].is_gone,
        is_below=begun is not None and at is not None and (positions[at].source or 0) < (fence.low or 0),
    )
    doubts = [each.doubt for each in positions[perhaps : earlier.stop] if each.doubt is not None]
    if reason is None and doubts and verdict in _OPEN:
        reason = doubts[-1]
    return OrderingAudit(verdict=verdict, before=before, at=at, reason=reason)


def _with_retention(
    verdict: OrderingVerdict, *, is_cleared: bool, is_gone: bool, is_below: bool
) -> tuple[OrderingVerdict, OrderingReason | None]:
    """What is left of a verdict, and why. `is_cleared`: nothing was left below the high fence before the destination
    was begun; `is_gone`: nor a known record below the low one at the reading after that; `is_below`: the group was
    below the low one there, and had begun."""
    if verdict not in (*_OPEN, OrderingVerdict.VIOLATION):
        return verdict, None
    if is_cleared:
        return OrderingVerdict.SAFE, OrderingReason.EXPIRED
    if is_below and is_gone:
        return OrderingVerdict.POSSIBLE_VIOLATION, OrderingReason.EXPIRED
    return verdict, OrderingReason.NO_RECORD_KNOWN if is_below and verdict in _OPEN else None


_OPEN: Final = (OrderingVerdict.POSSIBLE_VIOLATION, OrderingVerdict.INDETERMINATE)


def _known(positions: Sequence[GroupPosition], indices: range) -> int | None:
    """The first of `indices` whose observation knows the position in the source."""
    return next((index for index in indices if positions[index].source is not None), None)


def _verdict(fence: ExpansionFence, *, earlier: int | None, now: int | None, is_certain: bool) -> OrderingVerdict:
    if fence.low is None:
        return OrderingVerdict.UNKNOWN_FENCE
    if is_certain and now is not None and now < fence.low:
        is_proven = fence.record_end is None or now < fence.record_end
        return OrderingVerdict.VIOLATION if is_proven else OrderingVerdict.POSSIBLE_VIOLATION
    if fence.high is not None and (earlier or 0) >= fence.high:
        return OrderingVerdict.SAFE
    if earlier is None or now is None or (fence.high is not None and now >= fence.high):
        return OrderingVerdict.INDETERMINATE
    return OrderingVerdict.POSSIBLE_VIOLATION
