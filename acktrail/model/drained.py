"""The rule of "drained": how much of what a log holds now a share group may still get, from what brokers say.

A share group is drained when nothing that exists is left for it: every record is finished (acknowledged or archived),
or will never be delivered. A lag of 0 everywhere is not that: a share partition that was never initialized has no lag,
and ``share.auto.offset.reset`` decides where it will begin. Per share partition:

============================================  ==========================================  =========================
start offset and lag                          log, policy, members                        left at most
============================================  ==========================================  =========================
known, lag 0                                  any                                         0
known, at or behind the log's end             any                                         0: lag is negative or absent
known, lag above 0                            records removed by retention count as lag   lag, or the log if less
known, lag absent                             Kafka 4.1, or a leader that is not there    **not known**
known, any                                    empty                                       0
none                                          empty                                       0
none                                          its ends are not known                      **not known**
none, partition added to a known topic        Kafka 4.4 or later: begins at offset 0      the log
none                                          ``earliest``                                the log
none                                          ``latest``, no members                      0: begins at the log's end
none                                          ``latest``, members, no young record        0
none                                          ``latest``, members, a young record         **not known**
none                                          ``by_duration``                             the log from its first young
                                                                                          record on
none                                          not known (DESCRIBE_CONFIGS is missing)     **not known**
============================================  ==========================================  =========================

Why members matter: a broker writes a start offset with the first acknowledgement. Until then a share partition whose
records are all in flight looks like one that was never initialized (seen on 4.3.1 and 4.4.0). A member finishes,
releases or loses a record within the lock duration unless it renews its locks; so with members a record counts as
*young* while it is younger than a time that callers choose. When the last member leaves, the broker forgets where an
unwritten share partition began (4.3.1, 4.4.0). With ``by_duration`` a record is young while it is in that duration.

Markers of transactions and gaps of compaction are finished by the members that get the records around them: their lag
becomes 0 (4.3.1, 4.4.0). Records in flight count as lag. Kafka moves the start offset itself lazily: it is no progress.

Of a group: drained when every share partition of every topic has 0 left. A group that is not there is an error, one
without a topic is not known, and so is one with a topic that may not be described.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from acktrail.errors import AcktrailError

_SHOWN: Final = 3


class Begin(StrEnum):
    """Where ``share.auto.offset.reset`` lets a share partition begin that has no start offset."""

    LATEST = "latest"
    EARLIEST = "earliest"
    BY_DURATION = "by_duration"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFacts:
    """What brokers report about one share partition. None: not known, of `start_offset`: not initialized. `first_young`
    is the offset of the first record that counts as young; `log_end` where there is none. `is_added`: the group knows
    other partitions of this topic, and the release begins an added one at offset 0."""

    start_offset: int | None = None
    lag: int | None = None
    log_start: int | None = None
    log_end: int | None = None
    begin: Begin = Begin.UNKNOWN
    has_members: bool = True
    first_young: int | None = None
    is_added: bool = False

    @property
    def is_log_empty(self) -> bool:
        """Whether the log certainly holds nothing."""
        return self.log_start is not None and self.log_end is not None and self.log_start >= self.log_end


class Left(NamedTuple):
    """How many offsets a share partition, or a group, has left to deliver at most, and why; None: not known."""

    at_most: int | None
    reason: str

    @property
    def is_drained(self) -> bool:
        """Whether nothing is left, for certain."""
        return self.at_most == 0


class Wanted(NamedTuple):
    """A group, and the topics to look at (empty: those that it has or that its members subscribe to). `young_ms`: how
    long a record counts as young in a share partition without a start offset."""

    group_id: str
    topics: tuple[str, ...] = ()
    young_ms: int = 600_000
    with_age: bool = False
    members_only: bool = False


class GroupLeft(NamedTuple):
    """What is `left` of a group, and the client ids of its `members` (None: not known). `oldest_s`: the age of its
    oldest unfinished record, at most; None: not known, or not wanted. `error`: waiting does not help, such as a group
    that is not there."""

    left: Left
    members: tuple[str, ...] | None = None
    oldest_s: float | None = None
    error: AcktrailError | None = None


_EMPTY: Final = Left(0, "the log is empty")


def left_in_partition(facts: DeliveryFacts) -> Left:
    """Return what is left of one share partition, by the table of this module.

    >>> left_in_partition(DeliveryFacts(begin=Begin.LATEST, has_members=False, log_start=0, log_end=7)).is_drained
    True
    >>> left_in_partition(DeliveryFacts(begin=Begin.EARLIEST, log_start=3, log_end=7))
    Left(at_most=4, reason='not initialized, and begins at the start of the log (earliest)')
    """
    if facts.start_offset is not None:
        return _left_behind(facts.start_offset, facts)
    if facts.is_log_empty:
        return _EMPTY
    if facts.log_start is None or facts.log_end is None:
        return Left(None, "not initialized, and the ends of its log are not known")
    return _left_before_start(facts, facts.log_start, facts.log_end)


def _left_behind(start_offset: int, facts: DeliveryFacts) -> Left:
    if facts.lag == 0:
        return Left(0, "lag 0")
    if (facts.lag is not None and facts.lag < 0) or (facts.log_end is not None and start_offset >= facts.log_end):
        return Left(0, "the start offset is at or behind the end of the log")
    if facts.is_log_empty:
        return _EMPTY
    if facts.lag is None:
        return Left(None, "the broker reports no lag")
    if facts.log_start is None or facts.log_end is None or facts.log_start <= start_offset:
        return Left(facts.lag, f"lag {facts.lag}")
    return Left(
        min(facts.lag, facts.log_end - facts.log_start),
        f"lag {facts.lag}, with {facts.log_start - start_offset} offsets that retention removed",
    )


def _left_before_start(facts: DeliveryFacts, log_start: int, log_end: int) -> Left:
    """Of a share partition that was never initialized, and whose log holds something."""
    if facts.is_added:
        return Left(log_end - log_start, "an added partition, which begins at the start of its log")
    if facts.begin is Begin.EARLIEST:
        return Left(log_end - log_start, "not initialized, and begins at the start of the log (earliest)")
    if facts.begin is Begin.UNKNOWN:
        hint = "share.auto.offset.reset is not known: grant DESCRIBE_CONFIGS on the group"
        return Left(None, f"not initialized, and {hint}")
    if facts.begin is Begin.LATEST and not facts.has_members:
        return Left(0, "not initialized, and begins at the end of the log (latest)")
    if facts.first_young is None:
        return Left(None, f"not initialized ({facts.begin}), and the times of its records are not known")
    if facts.first_young >= log_end:
        return Left(0, f"not initialized ({facts.begin}), and every record is too old to be delivered")
    if facts.begin is Begin.LATEST:
        return Left(None, "not initialized (latest), and a member may hold its newest records")
    return Left(log_end - facts.first_young, "not initialized, and has records within by_duration")


def left_in_group(partitions: Mapping[str, Left], unseen: Sequence[str] = ()) -> Left:
    """Return what is left of a group with these share partitions, by names that can be shown; `unseen`: a reason for
    each topic that could not be looked at.

    >>> left_in_group({"a-0": Left(0, "lag 0"), "a-1": Left(5, "lag 5"), "b-0": Left(2, "lag 2")})
    Left(at_most=7, reason='at most 7 offsets left in 2 of 3 share partitions: a-1: lag 5, b-0: lag 2')
    >>> left_in_group({}).at_most is None
    True
    """
    reasons = [*unseen, *(f"{of}: {left.reason}" for of, left in partitions.items() if left.at_most is None)]
    if reasons:
        return Left(None, f"not known: {_some(reasons)}")
    if not partitions:
        return Left(None, "not known: the group has no topic")
    waiting = {of: left for of, left in partitions.items() if left.at_most}
    if not waiting:
        return Left(0, f"drained: nothing is left in {len(partitions)} share partitions")
    total = sum(left.at_most or 0 for left in waiting.values())
    ordered = sorted(waiting.items(), key=lambda item: -(item[1].at_most or 0))
    shown = _some([f"{of}: {left.reason}" for of, left in ordered])
    return Left(total, f"at most {total} offsets left in {len(waiting)} of {len(partitions)} share partitions: {shown}")


def _some(lines: Sequence[str]) -> str:
    more = f", and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return ", ".join(lines[:_SHOWN]) + more
