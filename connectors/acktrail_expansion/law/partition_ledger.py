"""The fence that an expansion of a topic leaves in one of its partitions, out of looks before and after it.

A broker bumps no leader epoch when partitions are added, and producers learn the count when they refresh their
metadata. So a fence is an interval of offsets, taken from looks before and after.

Here, too: how producers choose the partition of a key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


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
