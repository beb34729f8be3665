"""Expansions of one topic out of observations of its partitions, and the fences that they leave.

A broker bumps no leader epoch when partitions are added, and producers learn the count when they refresh their
metadata. So a fence is an interval of offsets, taken from observations before and after.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from acktrail.model.expansion.ordering import ExpansionFence


class LedgerAnomaly(StrEnum):
    """What a ledger must not have."""

    COUNT_FELL = "count_fell"
    """Fewer partitions under the same topic id: no broker does that."""


class ExpansionStatus(StrEnum):
    """Whether the high fences are known."""

    SETTLING = "settling"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicObservation:
    """One observation of one topic: `log_ends` and `log_starts` by partition, None where a log could not be asked.
    `is_consistent` False: the topic changed while it was observed; its ends are upper bounds alone."""

    observed_at_ms: int
    log_ends: tuple[int | None, ...]
    log_starts: tuple[int | None, ...]
    is_consistent: bool = True

    @property
    def partition_count(self) -> int:
        """How many partitions the topic had."""
        return len(self.log_ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionExpansion:
    """The partitions of a topic became more between two observations.

    `fences` has one for each partition that was there before. `is_single`: it is certain that no other count lay in
    between (one partition was added). `settles_at_ms`: from then on every producer knows the count.
    """

    event_id: str
    old_count: int
    new_count: int
    last_seen_old_at_ms: int
    first_seen_new_at_ms: int
    settles_at_ms: int
    status: ExpansionStatus
    is_single: bool
    fences: tuple[ExpansionFence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLedger:
    """What the observations of one topic id show. An anomaly has the instant of the observation that shows it."""

    expansions: tuple[PartitionExpansion, ...]
    anomalies: tuple[tuple[int, LedgerAnomaly], ...]


def expansion_id(cluster_id: str, topic_id: str, old_count: int, new_count: int) -> str:
    """The same for every run that finds the expansion: 16 hex digits of SHA-256."""
    text = json.dumps([cluster_id, topic_id, old_count, new_count])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_ledger(
    cluster_id: str, topic_id: str, observations: Sequence[TopicObservation], settle_ms: int
) -> TopicLedger:
    """The expansions of one topic id, in their order.

    `observations` may come in any order and more than once; those of one instant count once, the first given.
    `settle_ms`: how long after an expansion was first seen producers may use the old count (their metadata's largest
    age, and how long they deliver). The low fence is the log end at the last consistent observation of the old count,
    the high one at the first observation from `settle_ms` after the expansion was seen; no fence where such a log could
    not be asked, or where its end fell below the low fence meanwhile (truncated, or another log). Invariant: counts of
    consecutive expansions are chained unless a count fell. Cost: O(observations * partitions).
    """
    ordered = sorted({each.observed_at_ms: each for each in reversed(observations)}.values(), key=_at)
    expansions: list[PartitionExpansion] = []
    anomalies: list[tuple[int, LedgerAnomaly]] = []
    for index in range(1, len(ordered)):
        before, after = ordered[index - 1], ordered[index]
        if after.partition_count < before.partition_count:
            anomalies.append((after.observed_at_ms, LedgerAnomaly.COUNT_FELL))
        elif after.partition_count > before.partition_count:
            event_id = expansion_id(cluster_id, topic_id, before.partition_count, after.partition_count)
            expansions.append(_expansion(event_id, ordered, index, settle_ms))
    return TopicLedger(expansions=tuple(expansions), anomalies=tuple(anomalies))


def _at(observation: TopicObservation) -> int:
    return observation.observed_at_ms


def _expansion(event_id: str, ordered: Sequence[TopicObservation], index: int, settle_ms: int) -> PartitionExpansion:
    old, new = ordered[index - 1], ordered[index]
    count = old.partition_count
    sound = next(
        (each for each in reversed(ordered[:index]) if each.is_consistent and each.partition_count == count), None
    )
    settles_at = new.observed_at_ms + settle_ms
    later = [each for each in ordered[index:] if each.partition_count >= new.partition_count]
    settled = next((each for each in later if each.observed_at_ms >= settles_at), None)
    return PartitionExpansion(
        event_id=event_id,
        old_count=count,
        new_count=new.partition_count,
        last_seen_old_at_ms=old.observed_at_ms,
        first_seen_new_at_ms=new.observed_at_ms,
        settles_at_ms=settles_at,
        status=ExpansionStatus.SETTLING if settled is None else ExpansionStatus.SETTLED,
        is_single=new.partition_count == count + 1,
        fences=tuple(_fence(number, sound, settled, later) for number in range(count)),
    )


def _fence(
    partition: int,
    sound: TopicObservation | None,
    settled: TopicObservation | None,
    later: Sequence[TopicObservation],
) -> ExpansionFence:
    low = None if sound is None else sound.log_ends[partition]
    high = None if settled is None else settled.log_ends[partition]
    until = len(later) if settled is None else later.index(settled) + 1
    ends = [end for each in later[:until] if (end := each.log_ends[partition]) is not None]
    if low is not None and any(end < low for end in ends):
        return ExpansionFence(low=None, high=None)
    return ExpansionFence(low=low, high=high)
