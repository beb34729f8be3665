"""What is proven of one group, a source and a destination of an expansion, by looks at the group's positions.

Committed positions are progress. Of all looks since the last restart of the group in a partition a few instants
suffice (`Marks`), so that no look has to be kept. A restart is a position that fell or is gone, or a reset.

Example: keys moved from partition 0, whose records from before end at offset 60, to partition 2. At look 1 the group is
at 60 in partition 0, and has no position in 2; at look 2 it is at 5 there, at look 3 at 9.

    >>> source = Marks(finished_at=1, idle_until=NEVER_YET)
    >>> destination = Marks(idle_until=1, begun_at=3)
    >>> judge_by_looks(destination, source, SourceFence(partition=0, low=60, high=60)).verdict
    <OrderVerdict.SAFE: 'safe'>

A key with hash h was in partition h mod the old count and is in h mod the new one. Both leave the same remainder by
their greatest common divisor, and every pair that does is some key's. Where the mapping of keys is not known, each new
partition depends on every old one, and nothing is known to move between old ones. From 4 to 6 partitions 4 has keys of
0 and 2, and 0 has keys of 2.

    >>> sources_of(4, 4, 6, KeyMapping.MURMUR2), sources_of(0, 4, 6, KeyMapping.MURMUR2)
    ((0, 2), (2,))

Here, too: the fence that an expansion leaves in a partition. A broker bumps no leader epoch when partitions are added,
and producers learn the count when they refresh their metadata. So a fence is an interval of offsets, taken from looks
before and after.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import gcd
from typing import Final

NEVER_YET: Final = -1
"""In place of an instant: there is no such look."""
NEVER: Final = 2**63 - 1
"""In place of a first instant: no look shows it."""


class OrderVerdict(StrEnum):
    """SAFE, BROKEN and SKIPPED are proofs."""

    SAFE = "safe"
    """Every record below the fence was finished before the first record above it was begun."""
    BROKEN = "broken"
    """A record below the fence is shown that was open when a record above it was begun."""
    SKIPPED = "skipped"
    """The group never got the first records of a new partition (KAFKA-20742)."""
    NOT_PROVEN = "not_proven"


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
    """What was open below the fence may only be transaction markers, aborted or compacted records: read the keys."""
    EXPIRED = "expired"
    """The retention took the records below the fence."""
    BETWEEN_FENCES = "between_fences"
    """What was open lies between the low and the high end of the fence: read the keys."""
    BETWEEN_LOOKS = "between_looks"
    """Both happened between two looks, or too close in time on two state partitions to know which came first."""


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
class SourceFence:
    """A source, and between which offsets its last record from before the expansion lies (None: not known).

    `last_record`: the newest offset below the low end that is a record's for certain (-1: none is known); `is_gapless`:
    every offset is. `before`: what was delivered below it is from before as well, and may be of an aborted transaction:
    share groups get such records unless their isolation level says no."""

    partition: int
    low: int | None
    high: int | None
    last_record: int = -1
    is_gapless: bool = False
    before: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A verdict on one source of one destination, as columns of ``expansion_verdicts``; instants in microseconds.
    `last_open`: the last record for certain that was open in the source when the destination was begun."""

    verdict: OrderVerdict = OrderVerdict.NOT_PROVEN
    reason: NotProven | None = None
    evidence: str | None = None
    source_partition: int | None = None
    fence_low: int | None = None
    fence_high: int | None = None
    source_offset: int | None = None
    open_records: int | None = None
    last_open: int | None = None
    source_shown_at: int | None = None
    begun_at: int | None = None
    source_state_partition: int | None = None
    source_state_offset: int | None = None
    begun_state_partition: int | None = None
    begun_state_offset: int | None = None


def nothing_of(source: SourceFence) -> Judged:
    """Nothing is proven of a source yet."""
    return Judged(source_partition=source.partition, fence_low=source.low, fence_high=source.high)


def judge_by_looks(destination: Marks, source: Marks, fence: SourceFence, *, is_share: bool = False) -> Judged:
    """Judge by looks at a destination and a source with its fence.

    A committing group's offsets in one look are of one moment. Share groups keep each partition's state apart: of them
    only a strictly earlier look comes before, and nothing is ever shown to be open.
    """
    verdict, reason, shown_at = _by_looks(destination, source, fence, is_share=is_share)
    is_broken = verdict is OrderVerdict.BROKEN
    is_proof = verdict is not OrderVerdict.NOT_PROVEN
    return replace(
        nothing_of(fence),
        verdict=verdict,
        reason=reason,
        evidence=("lag" if is_share else "commits") if is_proof else None,
        source_offset=source.below if shown_at == source.below_at else None,
        open_records=(fence.low or 0) - source.below if is_broken and fence.is_gapless else None,
        last_open=fence.last_record if is_broken else None,
        source_shown_at=None if shown_at == NEVER else shown_at,
        begun_at=None if destination.begun_at == NEVER else destination.begun_at,
    )


def _by_looks(
    to: Marks, source: Marks, fence: SourceFence, *, is_share: bool
) -> tuple[OrderVerdict, NotProven | None, int | None]:
    """The verdict, why nothing is proven, and the look that shows the source so."""
    low, high = fence.low, fence.high
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
        if fence.last_record < source.below:
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
    others = (
        _unproven(each, NotProven.BETWEEN_LOOKS) if each.verdict is OrderVerdict.BROKEN else each for each in earlier
    )
    found = min([*direct, *others], key=_badness)
    return found if is_single else _unproven(found, NotProven.SEVERAL_EXPANSIONS)


def _unproven(found: Judged, reason: NotProven) -> Judged:
    return replace(found, verdict=OrderVerdict.NOT_PROVEN, reason=reason, evidence=None)


def _badness(found: Judged) -> tuple[int, int, int]:
    reason = _REASONS.index(found.reason) if found.reason else 0
    return WORST_FIRST.index(found.verdict), reason, -(found.open_records or found.source_shown_at or 0)


WORST_FIRST: Final = (OrderVerdict.BROKEN, OrderVerdict.SKIPPED, OrderVerdict.NOT_PROVEN, OrderVerdict.SAFE)


def sources_of(destination: int, old_count: int, new_count: int, mapping: KeyMapping) -> tuple[int, ...]:
    """The partitions that `destination` depends on, ascending; none where no key moves to it."""
    if mapping is KeyMapping.NONE:
        return tuple(range(old_count)) if destination >= old_count else ()
    step = gcd(old_count, new_count)
    return tuple(found for found in range(destination % step, old_count, step) if found != destination)


def moves_with_every_count(destination: int, old_count: int, new_count: int, mapping: KeyMapping) -> bool:
    """Whether records of `destination` may follow those of its sources by whichever count that may have lain between
    both. A partition that was there before begins only with records of the new count. A new one may hold records of a
    count in between; where the new count is a multiple, keys of a source can be in it with each."""
    return mapping is KeyMapping.NONE or destination < old_count or new_count % old_count == 0


class ExpansionStatus(StrEnum):
    """Whether the high fences are known."""

    SETTLING = "settling"
    SETTLED = "settled"


class FenceGap(StrEnum):
    """Why an end of a fence is not known."""

    NOT_SEEN_BEFORE = "its log end was not observed before the expansion"
    TRUNCATED = "its log lost records since the look before the expansion, or is another log"
    LEADERS_CHANGED = "its leader changed, and it is not known whether records were lost"
    SETTLING = "producers may still use the old count"
    NOT_SEEN_AFTER = "its log end was not observed since producers know the new count"


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where a log ends. The epoch of its `leader`, the newest earlier one that the log has (`ended`), and where the
    records of that one end (`ended_at`, exclusive), which is the end of each epoch between both as well. None: not
    known."""

    end: int = 0
    leader: int | None = None
    ended: int | None = None
    ended_at: int | None = None


def expansion_id(cluster_id: str, topic_id: str, old_count: int, new_count: int) -> str:
    """The same for every run that finds the expansion: 16 hex digits of SHA-256."""
    text = json.dumps([cluster_id, topic_id, old_count, new_count])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(slots=True)
class LogContinuity:
    """Whether one log still has what it had, look by look. `log`: the newest look with the same log for certain.

    A leader takes nothing back in its own epoch. Another one has every record of the one before if its log has records
    of that leader's epoch up to that end, or, where that leader had written none, of the epoch before it. Else a
    replica without them was elected (unclean), or a disk was lost. An end that fell is a loss in any case. Where
    leaders changed several times between two looks the newest alone can hide a loss: what follows is not known
    (`is_doubtful`) until a leader's answer reaches back to `log`.
    """

    log: LogEnd
    is_doubtful: bool = False
    is_lost: bool = False

    def follow(self, now: LogEnd) -> None:
        """The next look."""
        has_moved = self.log.leader not in (None, now.leader)
        kept = self._kept(now) if has_moved else self.log.end
        self.is_lost |= now.end < self.log.end or (kept is not None and kept < self.log.end)
        self.is_doubtful = kept is None and self.log.end > 0
        if not self.is_doubtful:
            self.log = now

    def _kept(self, now: LogEnd) -> int | None:
        """Up to which offset the log is the same; None: not known."""
        if now.ended is None or now.ended_at is None:
            return None
        if now.ended == self.log.leader:
            return now.ended_at
        return min(now.ended_at, self.log.ended_at or 0) if now.ended == self.log.ended else None


def fence_of(
    before: LogEnd | None, later: Iterable[tuple[LogEnd, bool]], *, is_settled: bool
) -> tuple[int | None, int | None, FenceGap | None]:
    """The low and the high end of a fence, and why one is not known. `before`: the last look at the log with the old
    count; `later`: the looks since, each with whether every producer knew the count by then; `is_settled`: whether they
    know it now.

    Every record below the low end was there before the expansion was seen; no record at or above the high end was
    written by a producer that did not know the new count. Where the log lost records in between, or may have, there is
    no fence.
    """
    log, high = LogContinuity(before or LogEnd()), None
    for now, has_settled in later:
        log.follow(now)
        if log.is_lost:
            return None, None, FenceGap.TRUNCATED
        if has_settled and not log.is_doubtful:
            high = now.end
            break
    if log.is_doubtful:
        return None, None, FenceGap.LEADERS_CHANGED
    if before is None:
        return None, high, FenceGap.NOT_SEEN_BEFORE
    not_yet = FenceGap.NOT_SEEN_AFTER if is_settled else FenceGap.SETTLING
    return before.end, high, not_yet if high is None else None


class KeyMapping(StrEnum):
    """The partitioner that the producers of a topic use. Kafka does not know it: it is configured for each topic."""

    MURMUR2 = "murmur2"
    """Of Kafka's Java clients (``BuiltInPartitioner``), and of librdkafka as ``murmur2`` or ``murmur2_random``."""
    CRC32 = "crc32"
    """Of librdkafka by default (``consistent_random``)."""
    NONE = "none"
    """Another one, or chosen by the application: each partition may get records of each key."""
