"""What is proven of one group, a source and a destination of an expansion, by looks at the group's positions.

Committed positions are progress. Of all looks since the last restart of the group in a partition a few instants
suffice (`Marks`), so that no look has to be kept. A restart is a position that fell or is gone, or a reset.

Example: keys moved from partition 0, whose records from before end at offset 60, to partition 2. At look 1 the group is
at 60 in partition 0, and has no position in 2; at look 2 it is at 5 there, at look 3 at 9.

    >>> source = Marks(finished_at=1, idle_until=NEVER_YET)
    >>> destination = Marks(idle_until=1, begun_at=3)
    >>> judge_by_looks(destination, source, low=60, high=60, last_record=59).verdict
    <OrderVerdict.SAFE: 'safe'>
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from acktrail_expansion.law.verdict import WORST_FIRST, NotProven, OrderVerdict

NEVER_YET: Final = -1
"""In place of an instant: there is no such look."""
NEVER: Final = 2**63 - 1
"""In place of a first instant: no look shows it."""
_REASONS: Final = tuple(NotProven)


@dataclass(frozen=True, slots=True)
class Marks:
    """What the looks since the last restart show of one group in one partition, for one expansion; all are instants in
    one unit, but `below`.

    `restarted_at`: the first look after the last restart. `idle_until`: the newest look that rules out that the group
    had begun with records from after the expansion; `begun_at`: the first that shows it. `finished_at`: the first with
    all records from before the expansion finished; `below_at`: the newest with some unfinished below the low fence, and
    `below` its position.
    """

    restarted_at: int = NEVER_YET
    idle_until: int = NEVER_YET
    begun_at: int = NEVER
    finished_at: int = NEVER
    below_at: int = NEVER_YET
    below: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A verdict on one source of one destination. `first_open` to `last_open` (a record for certain): what was open in
    the source when the destination was begun, `open_records` how many (None: not known). `shown_at`: the look that
    shows the source so. State records are pairs of state partition and offset."""

    verdict: OrderVerdict
    reason: NotProven | None = None
    evidence: str | None = None
    source: int | None = None
    fence: tuple[int | None, int | None] = (None, None)
    first_open: int | None = None
    last_open: int | None = None
    open_records: int | None = None
    shown_at: int | None = None
    begun_at: int | None = None
    source_record: tuple[int, int] | None = None
    begun_record: tuple[int, int] | None = None


def judge_by_looks(
    destination: Marks,
    source: Marks,
    *,
    low: int | None,
    high: int | None,
    last_record: int = -1,
    partition: int | None = None,
    is_share: bool = False,
) -> Judged:
    """Judge by looks. `low` and `high`: the fence of the source, which is `partition`. `last_record`: an offset below
    the low end that is a record's for certain, the newest; -1: none is known.

    A committing group's offsets in one look are of one moment. Share groups keep each partition's state apart: of them
    only a strictly earlier look comes before, and nothing is ever shown to be open.
    """
    verdict, reason, shown_at = _by_looks(destination, source, low, high, last_record, is_share=is_share)
    is_below = shown_at is not None and shown_at == source.below_at
    is_proof = verdict is not OrderVerdict.NOT_PROVEN
    return Judged(
        verdict=verdict,
        reason=reason,
        evidence=("lag" if is_share else "commits") if is_proof else None,
        source=partition,
        fence=(low, high),
        first_open=source.below if is_below else None,
        last_open=last_record if verdict is OrderVerdict.BROKEN else None,
        shown_at=None if shown_at == NEVER else shown_at,
        begun_at=None if destination.begun_at == NEVER else destination.begun_at,
    )


def _by_looks(
    to: Marks, source: Marks, low: int | None, high: int | None, last_record: int, *, is_share: bool
) -> tuple[OrderVerdict, NotProven | None, int | None]:
    """The verdict, why nothing is proven, and the look that shows the source so."""
    if high == 0 or (high is not None and source.finished_at <= to.idle_until - is_share):
        return OrderVerdict.SAFE, None, source.finished_at
    reasons = (
        (NotProven.NO_FENCE, low is None),
        (NotProven.NOT_BEGUN, to.begun_at == NEVER),
        (NotProven.NOT_RECORDED, is_share),
        (NotProven.RESET, source.restarted_at > to.idle_until),
    )
    reason = next((reason for reason, applies in reasons if applies), None)
    if reason is not None:
        return OrderVerdict.NOT_PROVEN, reason, None
    if source.below_at >= to.begun_at:
        if last_record < source.below:
            return OrderVerdict.NOT_PROVEN, NotProven.NO_RECORD_KNOWN, source.below_at
        return OrderVerdict.BROKEN, None, source.below_at
    if high is None:
        return OrderVerdict.NOT_PROVEN, NotProven.NO_FENCE, None
    is_between = source.finished_at > to.begun_at and (low or 0) < high
    return OrderVerdict.NOT_PROVEN, NotProven.BETWEEN_FENCES if is_between else NotProven.BETWEEN_LOOKS, None


def worst(direct: Sequence[Judged], earlier: Iterable[Judged], *, is_single: bool, is_moved: bool) -> Judged:
    """The verdict on a destination by those on its sources: `direct` ones of the expansion, and those of `earlier`
    counts, by which keys can have come past a partition that has no record of theirs; these can spoil a safe verdict
    alone. `is_single`: no other count can have been in between; `is_moved`: or keys moved so with each."""
    broken = [each for each in direct if each.verdict is OrderVerdict.BROKEN]
    if broken and (is_single or is_moved):
        return max(broken, key=lambda each: each.open_records or 0)
    every = [*direct, *(each for each in earlier if each.verdict is not OrderVerdict.BROKEN)]
    every += [
        replace(each, verdict=OrderVerdict.NOT_PROVEN, reason=NotProven.BETWEEN_LOOKS)
        for each in earlier
        if each.verdict is OrderVerdict.BROKEN
    ]
    found = min(every, key=_badness)
    if not is_single:
        return replace(found, verdict=OrderVerdict.NOT_PROVEN, reason=NotProven.SEVERAL_EXPANSIONS, evidence=None)
    return found


def _badness(found: Judged) -> tuple[int, int, int]:
    reason = _REASONS.index(found.reason) if found.reason else 0
    return WORST_FIRST.index(found.verdict), reason, -(found.open_records or found.shown_at or 0)
