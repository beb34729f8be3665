"""Expansions of one topic out of observations of its partitions, and the fences that they leave.

A broker bumps no leader epoch when partitions are added, and producers learn the count when they refresh their
metadata. So a fence is an interval of offsets, taken from observations before and after.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpansionFence:
    """Between which offsets of a source partition its last record from before the expansion lies.

    Every record below `low` was there before the expansion was seen; no record at or above `high` was written by a
    producer that did not know the new count. None: not known, or (`high`) not known yet.
    """

    low: int | None
    high: int | None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEpochs:
    """The epoch of a log's leader, the newest earlier one that the log has (`ended`), and where the records of that one
    end (`ended_at`, exclusive), which is the end of each epoch between both as well. None: not known."""

    leader: int | None = None
    ended: int | None = None
    ended_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicObservation:
    """One observation of one topic: `log_ends` and `log_starts` by partition, None where a log could not be asked.
    `epochs` by partition, too; empty: not known. `is_consistent` False: the topic changed while it was observed, or
    not every broker knew of it; its ends are upper bounds alone. `observed_at_ms`: before its ends were asked for;
    `listed_at_ms`: after every broker had listed it (None: not known, taken for the same)."""

    observed_at_ms: int
    log_ends: tuple[int | None, ...]
    log_starts: tuple[int | None, ...]
    epochs: tuple[LogEpochs, ...] = ()
    is_consistent: bool = True
    listed_at_ms: int | None = None

    @property
    def known_at_ms(self) -> int | None:
        """When every broker knew the count for certain; None: some broker may have listed another one."""
        return max(self.observed_at_ms, self.listed_at_ms or 0) if self.is_consistent else None

    @property
    def partition_count(self) -> int:
        """How many partitions the topic had."""
        return len(self.log_ends)

    def epochs_of(self, partition: int) -> LogEpochs:
        """Those of one log."""
        return self.epochs[partition] if self.epochs else LogEpochs()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionExpansion:
    """The partitions of a topic became more between two observations.

    `fences` has one for each partition that was there before, `gaps` why one of its ends is not known. `is_single`: it
    is certain that no other count lay in between. `settles_at_ms`: from then on every
    producer knows the count; None: no observation yet is of a time when every broker knew it.
    """

    event_id: str
    old_count: int
    new_count: int
    last_seen_old_at_ms: int
    first_seen_new_at_ms: int
    settles_at_ms: int | None
    status: ExpansionStatus
    is_single: bool
    fences: tuple[ExpansionFence, ...]
    gaps: tuple[FenceGap | None, ...]


def expansion_id(cluster_id: str, topic_id: str, old_count: int, new_count: int) -> str:
    """The same for every run that finds the expansion: 16 hex digits of SHA-256."""
    text = json.dumps([cluster_id, topic_id, old_count, new_count])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_ledger(
    cluster_id: str,
    topic_id: str,
    observations: Sequence[TopicObservation],
    settle_ms: int,
    *,
    at_once: Container[tuple[int, int]] = (),
) -> tuple[PartitionExpansion, ...]:
    """The expansions of one topic id, in their order.

    `observations` may come in any order and more than once; those of one instant count once, the first given.
    `settle_ms`: how long producers may use the old count after the first consistent observation with the new one or
    more (their metadata's largest age, and how long they deliver): up to there a broker may have given them the old
    one. An expansion is a count above all before it: one that fell and is reached again, as a broker with old metadata
    or a clock that was set back makes it look, is none. The low fence of a partition is its last log end that is known
    of the old count, observed consistently; the high one its first from `settle_ms` after that. No fence where records
    were lost in between, or may have been (`LogContinuity`).
    `at_once`: changes of the count that are known to have been made in one step; one partition more is another.
    Invariant: the counts of consecutive expansions are chained. Cost: O(observations * partitions).
    """
    ordered = sorted({each.observed_at_ms: each for each in reversed(observations)}.values(), key=_at)
    expansions: list[PartitionExpansion] = []
    most = ordered[0].partition_count if ordered else 0
    for index, after in enumerate(ordered):
        if after.partition_count > most:
            event_id = expansion_id(cluster_id, topic_id, most, after.partition_count)
            found = _expansion(event_id, ordered, index, most, settle_ms)
            is_single = found.is_single or (most, after.partition_count) in at_once
            expansions.append(replace(found, is_single=is_single))
            most = after.partition_count
    return tuple(expansions)


def _at(observation: TopicObservation) -> int:
    return observation.observed_at_ms


def _expansion(
    event_id: str, ordered: Sequence[TopicObservation], index: int, count: int, settle_ms: int
) -> PartitionExpansion:
    """The expansion from `count` that the observation at `index` is the first to show."""
    new = ordered[index]
    old = [each for each in ordered[:index] if each.partition_count == count]
    later = [each for each in ordered[index:] if each.partition_count >= new.partition_count]
    known_at = next((each.known_at_ms for each in later if each.known_at_ms is not None), None)
    settles_at = None if known_at is None else known_at + settle_ms
    is_settled = _is_settled(later[-1], settles_at)
    sound = [each for each in old if each.is_consistent]
    found = [_fence(number, sound, later, settles_at) for number in range(count)]
    return PartitionExpansion(
        event_id=event_id,
        old_count=count,
        new_count=new.partition_count,
        last_seen_old_at_ms=old[-1].observed_at_ms,
        first_seen_new_at_ms=new.observed_at_ms,
        settles_at_ms=settles_at,
        status=ExpansionStatus.SETTLED if is_settled else ExpansionStatus.SETTLING,
        is_single=new.partition_count == count + 1,
        fences=tuple(fence for fence, _ in found),
        gaps=tuple(gap for _, gap in found),
    )


def _is_settled(observation: TopicObservation, settles_at_ms: int | None) -> bool:
    return settles_at_ms is not None and observation.observed_at_ms >= settles_at_ms


@dataclass(slots=True)
class LogContinuity:
    """Whether one log still has what it had, observation by observation. `end` and `epochs` are those of the newest one
    with the same log for certain.

    A leader takes nothing back in its own epoch. Another one has every record of the one before if its log has records
    of that leader's epoch up to that end, or, where that leader had written none, of the epoch before it. Else a
    replica without them was elected (unclean), or a disk was lost. An end that fell is a loss in any case. Where
    leaders changed several times between two observations the newest alone can hide a loss: what follows is not known
    (`is_doubtful`) until a leader's answer reaches back to `epochs`.
    """

    end: int
    epochs: LogEpochs
    is_doubtful: bool = False
    is_lost: bool = False

    def follow(self, end: int, epochs: LogEpochs) -> None:
        """The next observation."""
        has_moved = self.epochs.leader not in (None, epochs.leader)
        kept = self._kept(epochs) if has_moved else self.end
        self.is_lost |= end < self.end or (kept is not None and kept < self.end)
        self.is_doubtful = kept is None and self.end > 0
        if not self.is_doubtful:
            self.end, self.epochs = end, epochs

    def _kept(self, epochs: LogEpochs) -> int | None:
        """Up to which offset the log is the same; None: not known."""
        if epochs.ended is None or epochs.ended_at is None:
            return None
        if epochs.ended == self.epochs.leader:
            return epochs.ended_at
        return min(epochs.ended_at, self.epochs.ended_at or 0) if epochs.ended == self.epochs.ended else None


def _fence(
    partition: int, sound: Sequence[TopicObservation], later: Sequence[TopicObservation], settles_at_ms: int | None
) -> tuple[ExpansionFence, FenceGap | None]:
    before = next((each for each in reversed(sound) if each.log_ends[partition] is not None), None)
    low = None if before is None else before.log_ends[partition]
    log = LogContinuity(end=low or 0, epochs=LogEpochs() if before is None else before.epochs_of(partition))
    high = None
    for each in later:
        end = each.log_ends[partition]
        if end is None:
            continue
        log.follow(end, each.epochs_of(partition))
        if log.is_lost:
            break
        if _is_settled(each, settles_at_ms) and not log.is_doubtful:
            high = end
            break
    if log.is_lost or log.is_doubtful:
        gap = FenceGap.TRUNCATED if log.is_lost else FenceGap.LEADERS_CHANGED
        return ExpansionFence(low=None, high=None), gap
    return ExpansionFence(low=low, high=high), _gap(low, high, is_settled=_is_settled(later[-1], settles_at_ms))


def _gap(low: int | None, high: int | None, *, is_settled: bool) -> FenceGap | None:
    if low is None:
        return FenceGap.NOT_SEEN_BEFORE
    if high is None:
        return FenceGap.NOT_SEEN_AFTER if is_settled else FenceGap.SETTLING
    return None
