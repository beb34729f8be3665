"""Positions of random groups in one topic that gained partitions, as matrices and as the model has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import numpy.typing as npt
from definitions.group_series import GroupReading, RecordedWork
from samples.plain_audit import NOTHING, PlainEvidence, gone_at

from acktrail.columnar.expansion.position_matrix import UNKNOWN_POSITION, AuditedExpansion, AuditedTopic
from acktrail.columnar.expansion.share_evidence import ShareEvidence, WorkColumns
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.expansion.ordering import CLOCKS_MS, NO_POSITION, ExpansionFence
from acktrail.model.expansion.partition_ledger import ExpansionStatus, PartitionExpansion, TopicLedger, TopicObservation

_OFFSETS = 12
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, kw_only=True)
class GroupWalk:
    """`positions` of shape (groups, partitions, readings), `at` in microseconds."""

    topic: AuditedTopic
    ledger: TopicLedger
    positions: npt.NDArray[np.int64]
    at: npt.NDArray[np.int64]
    evidence: tuple[PlainEvidence, ...]
    observed: tuple[TopicObservation, ...]

    def readings(self, group: int) -> list[GroupReading]:
        """What the model judges of one group."""
        return [
            GroupReading(
                observed_at_ms=int(at) // 1000,
                positions={p: None if x == UNKNOWN_POSITION else x for p, x in enumerate(self.positions[group, :, n])},
            )
            for n, at in enumerate(self.at.tolist())
        ]


def random_walk(chance: Random, counts: list[int], mapping: KeyMapping, *, groups: int, is_share: bool) -> GroupWalk:
    """Groups whose partitions take one of a few courses, with restarts, gaps and fences that are not known."""
    at = np.array(sorted(chance.sample(range(1, 60), chance.randint(1, 9))), np.int64) * 1000
    events = [_expansion(chance, number, counts) for number in range(len(counts) - 1)]
    courses = [_course(chance, len(at)) for _ in range(chance.randint(1, 4))]
    courses += [_restarted(chance, each) for each in courses if chance.random() < 0.7]
    positions = np.array(
        [[chance.choice(courses) for _ in range(counts[-1])] for _ in range(groups)], np.int64
    ).reshape(groups, counts[-1], len(at))
    observed = _observed(chance, counts[-1])
    evidence = [_evidence(chance, counts) if is_share else NOTHING for _ in range(groups)]
    names = tuple(f"g{number}" for number in range(groups))
    topic = AuditedTopic(
        topic_id="t",
        mapping=mapping,
        expansions=tuple(_audited(each, observed) for each in events),
        groups=((), names) if is_share else (names, ()),
        first_group=(7, 7),
        evidence=_columns(evidence, counts) if is_share else None,
    )
    return GroupWalk(
        topic=topic,
        ledger=TopicLedger(expansions=tuple(events), anomalies=()),
        positions=positions,
        at=at,
        evidence=tuple(evidence),
        observed=observed,
    )


def _observed(chance: Random, partitions: int) -> tuple[TopicObservation, ...]:
    """Looks at logs of which the retention takes records."""
    most = chance.choice((0, 4, 4))
    starts, found = [0] * partitions, []
    for at in sorted(chance.sample(range(60), chance.randint(1, 6))):
        starts = [each + chance.randint(0, most) for each in starts]
        seen = tuple(None if chance.random() < 0.1 else each for each in starts)
        found.append(TopicObservation(observed_at_ms=at, log_ends=seen, log_starts=seen))
    return tuple(found)


def _evidence(chance: Random, counts: list[int]) -> PlainEvidence:
    places = [(event, each) for event in range(len(counts) - 1) for each in range(counts[event + 1])]
    times = range(0, 60, chance.choice((1, 20, 60)))
    return PlainEvidence(
        work={
            place: RecordedWork(at_ms=chance.choice(times) + CLOCKS_MS, is_first=chance.random() < 0.8)
            for place in places
            if chance.random() < 0.6
        },
        resets={each: chance.choice(times) for each in range(counts[-1]) if chance.random() < 0.1},
    )


def _columns(evidence: list[PlainEvidence], counts: list[int]) -> ShareEvidence:
    found = ShareEvidence.nothing(len(evidence), counts[-1], 0)
    work = [WorkColumns.nothing(len(evidence), counts[-1]) for _ in counts[1:]]
    for group, own in enumerate(evidence):
        for (event, partition), each in own.work.items():
            work[event].at[group, partition] = each.at_ms * 1000
            work[event].is_first[group, partition] = each.is_first
        for partition, at in own.resets.items():
            found.resets[group, partition] = at * 1000
    return replace(found, work=tuple(work))


def _course(chance: Random, readings: int) -> list[int]:
    now, found = chance.choice((NO_POSITION, NO_POSITION, 0, 5)), []
    for _ in range(readings):
        now = max(now, 0) + chance.randint(0, 4) if chance.random() < 0.6 else now
        now = chance.choice((NO_POSITION, 0)) if chance.random() < 0.05 else now
        found.append(UNKNOWN_POSITION if chance.random() < 0.1 else now)
    return found


def _restarted(chance: Random, course: list[int]) -> list[int]:
    """The same from some reading on; before that far ahead."""
    since = chance.randint(0, len(course) - 1)
    return [_OFFSETS * 2] * since + course[since:]


def _expansion(chance: Random, number: int, counts: list[int]) -> PartitionExpansion:
    fences = [_fence(chance) for _ in range(counts[number])]
    return PartitionExpansion(
        event_id=str(number),
        old_count=counts[number],
        new_count=counts[number + 1],
        last_seen_old_at_ms=0,
        first_seen_new_at_ms=0,
        settles_at_ms=chance.randint(0, 60),
        status=ExpansionStatus.SETTLED,
        is_single=False,
        fences=tuple(fences),
        gaps=(None,) * len(fences),
    )


def _fence(chance: Random) -> ExpansionFence:
    low = chance.randint(0, _OFFSETS)
    high = low + chance.randint(0, 3)
    record_end = chance.choice((None, None, 0, max(0, low - 2)))
    known = None if chance.random() < 0.05 else low
    return ExpansionFence(low=known, high=None if chance.random() < 0.1 else high, record_end=record_end)


def _audited(event: PartitionExpansion, observed: Sequence[TopicObservation]) -> AuditedExpansion:
    low, high = (
        np.array([-1 if each is None else each for each in own], np.int64)
        for own in ([each.low for each in event.fences], [each.high for each in event.fences])
    )
    gone = [gone_at(observed, source, fence) for source, fence in enumerate(event.fences)]
    known = [(each.low or 0) if each.record_end is None else each.record_end for each in event.fences]
    return AuditedExpansion(
        old_count=event.old_count,
        new_count=event.new_count,
        settles_at=event.settles_at_ms * 1000,
        low=low,
        high=high,
        record_end=np.array(known, np.int64),
        gone_low=np.array([_NEVER if each is None else each * 1000 for each, _ in gone], np.int64),
        gone_high=np.array([_NEVER if each is None else each * 1000 for _, each in gone], np.int64),
    )
