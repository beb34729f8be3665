"""The audit of expansions by the plain laws, row by row and dependency by dependency."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from definitions.dependencies import dependencies
from definitions.group_series import AuditedDependency, GroupReading, RecordedWork, audit_group
from definitions.hidden_counts import moves_with_every_count, provable

from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.expansion.ordering import ExpansionFence, OrderingReason, OrderingVerdict
from acktrail.model.expansion.partition_ledger import (
    LogEpochs,
    PartitionExpansion,
    TopicLedger,
    TopicObservation,
    read_ledger,
)
from acktrail_simulation.expansion.key_partitions import sources_across

EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MS: Final = dt.timedelta(milliseconds=1)
BEST_FIRST: Final = (
    OrderingVerdict.NOT_APPLICABLE,
    OrderingVerdict.SAFE,
    OrderingVerdict.NOT_STARTED,
    OrderingVerdict.UNKNOWN_FENCE,
    OrderingVerdict.INDETERMINATE,
    OrderingVerdict.POSSIBLE_VIOLATION,
    OrderingVerdict.VIOLATION,
)
_Row = Mapping[str, Any]
_UNKNOWN: Final = ExpansionFence(low=None, high=None)


def ms_of(at: dt.datetime) -> int:
    return (at - EPOCH) // MS


@dataclass(frozen=True, kw_only=True)
class PlainVerdict:
    """What one row of ``ordering_audits`` must have."""

    verdict: str
    source_partition: int
    sources: int
    sources_safe: int
    sources_violated: int
    remaining: int | None
    at: dt.datetime | None
    before_at: dt.datetime | None
    source_at: int | None
    source_before: int | None
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class PlainEvidence:
    """What state records show of one share group in a topic: work by number of the expansion and destination, and when
    partitions were reset."""

    work: Mapping[tuple[int, int], RecordedWork] = field(default_factory=dict)
    resets: Mapping[int, int] = field(default_factory=dict)


NOTHING: Final = PlainEvidence()


def ledgers(
    rows: Iterable[_Row], settle_ms: int, asked: Collection[tuple[str, int, int]] = ()
) -> dict[str, TopicLedger]:
    """The ledger of each topic id. `asked`: changes of the count that acktrail made."""
    cluster_id, by_topic = topic_looks(rows)
    at_once = {topic_id: {each[1:] for each in asked if each[0] == topic_id} for topic_id in by_topic}
    return {
        topic_id: read_ledger(cluster_id, topic_id, own, settle_ms, at_once=at_once[topic_id])
        for topic_id, own in by_topic.items()
    }


def topic_looks(rows: Iterable[_Row]) -> tuple[str, dict[str, list[TopicObservation]]]:
    """The cluster, and what each look saw of each topic id."""
    looks: dict[tuple[str, dt.datetime], dict[str, dict[int, _Row]]] = defaultdict(lambda: defaultdict(dict))
    cluster_id = ""
    for row in rows:
        cluster_id = row["cluster_id"]
        if row["partition"] is not None:
            looks[row["topic_id"], row["observed_at"]][row["run_id"]][row["partition"]] = row
    by_topic: dict[str, list[TopicObservation]] = defaultdict(list)
    for (topic_id, at), by_run in looks.items():
        own = by_run[min(by_run)]
        count = own[0]["partition_count"]
        by_topic[topic_id].append(
            TopicObservation(
                observed_at_ms=ms_of(at),
                log_ends=tuple(own[each]["log_end_offset"] if each in own else None for each in range(count)),
                log_starts=tuple(own[each]["log_start_offset"] if each in own else None for each in range(count)),
                epochs=tuple(_epochs(own.get(each, {})) for each in range(count)),
                is_consistent=own[0]["consistency"] != "straddles",
                is_gapless=own[0].get("is_gapless"),
                listed_at_ms=None if own[0].get("listed_at") is None else ms_of(own[0]["listed_at"]),
            )
        )
    for looks in by_topic.values():
        looks.sort(key=lambda each: each.observed_at_ms)
    return cluster_id, by_topic


def gone_at(looks: Sequence[TopicObservation], source: int, fence: ExpansionFence) -> tuple[int | None, int | None]:
    """When the first look after the last one with a known record below the low fence was, and the first one whose log
    begins at the high fence or behind it."""
    starts = [each.log_starts[source] if source < len(each.log_starts) else None for each in looks]
    low = min(fence.low or 0, fence.low or 0 if fence.record_end is None else fence.record_end)
    last = max((index for index, start in enumerate(starts) if start is not None and start < low), default=-1)
    high = fence.high or 0
    above = next((index for index, start in enumerate(starts) if start is not None and start >= high), len(looks))
    is_gone = low > 0 and last + 1 < len(looks)
    is_cleared = high > 0 and above < len(looks)
    return (
        looks[last + 1].observed_at_ms if is_gone else None,
        looks[above].observed_at_ms if is_cleared else None,
    )


def _epochs(row: _Row) -> LogEpochs:
    return LogEpochs(leader=row.get("leader_epoch"), ended=row.get("ended_epoch"), ended_at=row.get("epoch_end_offset"))


def readings(
    observations: Iterable[_Row], positions: Sequence[_Row], topic_id: str, group_id: str, *, is_share: bool
) -> list[GroupReading]:
    """The readings of one group in one topic, oldest first."""
    described = {row["run_id"] for row in observations if row["topic_id"] == topic_id and row["partition"] == 0}
    runs: dict[dt.datetime, set[str]] = defaultdict(set)
    failed, found = set(), defaultdict[dt.datetime, dict[int, int | None]](dict)
    for row in positions:
        if (row["group_type"] == "share") is not is_share:
            continue
        runs[row["observed_at"]].add(row["run_id"])
        if row["group_id"] != group_id:
            continue
        if row["partition"] is None:
            failed.add(row["observed_at"])
        elif row["topic_id"] == topic_id:
            at = -1 if row["position"] is None else row["position"]
            found[row["observed_at"]][row["partition"]] = None if row["error_code"] else at
    return [
        GroupReading(observed_at_ms=ms_of(at), is_known=False)
        if at in failed
        else GroupReading(observed_at_ms=ms_of(at), positions=found[at], is_known=bool(runs[at] & described))
        for at in sorted(runs)
    ]


def verdicts(
    topic: TopicLedger,
    looks: Sequence[GroupReading],
    mapping: KeyMapping,
    *,
    is_share: bool,
    evidence: PlainEvidence = NOTHING,
    observed: Sequence[TopicObservation] = (),
) -> Iterator[tuple[tuple[str, str, int], PlainVerdict]]:
    """By event, source event and destination."""
    events = topic.expansions
    for event, destination, by_event in _sources(events, mapping):
        own = events[event]
        begins = ExpansionFence(low=0, high=0) if destination >= own.old_count else own.fences[destination]
        for number, sources in sorted(by_event.items()):
            judged = []
            for source in sorted(sources):
                gone, cleared = gone_at(observed, source, events[number].fences[source])
                dependency = AuditedDependency(
                    source=source,
                    destination=destination,
                    fence=events[number].fences[source],
                    begins=begins,
                    settles_at_ms=events[number].settles_at_ms,
                    work=evidence.work.get((event, destination)),
                    resets=evidence.resets,
                    gone_at_ms=gone,
                    cleared_at_ms=cleared,
                )
                judged.append((dependency, audit_group(looks, dependency, at_once=not is_share)))
            yield (own.event_id, events[number].event_id, destination), _row(looks, judged)


def _sources(
    events: Sequence[PartitionExpansion], mapping: KeyMapping
) -> Iterator[tuple[int, int, dict[int, list[int]]]]:
    for event, own in enumerate(events):
        counts = [*(each.old_count for each in events[: event + 1]), own.new_count]
        for destination in range(own.new_count):
            by_event: dict[int, list[int]] = defaultdict(list)
            if mapping is KeyMapping.NONE:
                alone = dependencies(own.old_count, own.new_count, mapping)
                by_event[event] = [each.source for each in alone if each.destination == destination]
            else:
                for source, number in sources_across(counts, destination, mapping).items():
                    by_event[number].append(source)
            yield event, destination, {number: each for number, each in by_event.items() if each}


def _row(looks: Sequence[GroupReading], judged: Sequence[tuple[AuditedDependency, Any]]) -> PlainVerdict:
    found = []
    for dependency, audit in judged:
        at, before = audit.at, audit.before
        if audit.verdict is OrderingVerdict.NOT_STARTED:
            at = _newest(looks, dependency)
        position = None if at is None else looks[at].position(dependency.source)
        high = dependency.fence.high
        left = None if high is None or position is None else max(0, high - position)
        found.append((audit.verdict, left, dependency.source, at, before, audit.reason))
    decided = max(found, key=lambda each: (BEST_FIRST.index(each[0]), -1 if each[1] is None else each[1], -each[2]))
    verdict, left, source, at, before, reason = decided
    return PlainVerdict(
        verdict=verdict.value,
        source_partition=source,
        sources=len(found),
        sources_safe=sum(each[0] is OrderingVerdict.SAFE for each in found),
        sources_violated=sum(each[0] is OrderingVerdict.VIOLATION for each in found),
        remaining=left,
        at=None if at is None else EPOCH + looks[at].observed_at_ms * MS,
        before_at=None if before is None else EPOCH + looks[before].observed_at_ms * MS,
        source_at=None if at is None else looks[at].position(source),
        source_before=None if before is None else looks[before].position(source),
        reason=None if reason is None else reason.value,
    )


def _newest(looks: Sequence[GroupReading], dependency: AuditedDependency) -> int | None:
    """The newest reading since the restart that knows the source."""
    first = max(_restart(looks, each, dependency.resets) for each in (dependency.source, dependency.destination))
    known = [index for index in range(first, len(looks)) if (looks[index].position(dependency.source) or 0) >= 0]
    known = [index for index in known if looks[index].position(dependency.source) is not None]
    return known[-1] if known else None


def _restart(looks: Sequence[GroupReading], partition: int, resets: Mapping[int, int]) -> int:
    last, reset_at = None, resets.get(partition, -1)
    since = [index for index, look in enumerate(looks) if look.observed_at_ms > reset_at]
    found = min(since, default=0) if reset_at >= 0 else 0
    for index, look in enumerate(looks):
        position = look.position(partition)
        if position is not None:
            found = max(found, index) if last is not None and position < last else found
            last = position
    return found


def _provable(ledger: TopicLedger, mapping: KeyMapping, key: tuple[str, str, int], found: PlainVerdict) -> PlainVerdict:
    """What is left of a verdict where other counts may have been in between."""
    own, sources = (next(each for each in ledger.expansions if each.event_id == event_id) for event_id in key[:2])
    is_single = own.is_single and sources.is_single
    is_moved = own.is_single or moves_with_every_count(key[2], sources.old_count, own.old_count, own.new_count, mapping)
    verdict = provable(OrderingVerdict(found.verdict), is_single=is_single, is_moved=is_moved)
    return replace(
        found,
        verdict=verdict.value,
        reason=found.reason if verdict.value == found.verdict else OrderingReason.HIDDEN_COUNT.value,
        sources_safe=found.sources_safe if is_single else 0,
        sources_violated=found.sources_violated if is_moved else 0,
    )


def _without_history(found: PlainVerdict) -> PlainVerdict:
    """What is left of a share group's verdict where no state record shows an unfinished record."""
    if found.verdict not in (OrderingVerdict.VIOLATION.value, OrderingVerdict.POSSIBLE_VIOLATION.value):
        return replace(found, remaining=None)
    return replace(
        found,
        verdict=OrderingVerdict.INDETERMINATE.value,
        reason=OrderingReason.NONE_SHOWN_OPEN.value,
        remaining=None,
        sources_violated=0,
    )


def plain_audit(
    observations: Sequence[_Row],
    positions: Sequence[_Row],
    settle_ms: int,
    mapping_of: Callable[[str], KeyMapping],
    asked: Collection[tuple[str, int, int]] = (),
) -> tuple[dict[str, TopicLedger], dict[tuple[Any, ...], PlainVerdict]]:
    """Ledgers by topic id; verdicts by group, whether it is a share group, event, source event and destination."""
    known = ledgers(observations, settle_ms, asked)
    _, observed = topic_looks(observations)
    names = {row["topic_id"]: row["topic"] for row in sorted(observations, key=lambda row: row["observed_at"])}
    groups = {
        (row["topic_id"], row["group_id"], row["group_type"] == "share")
        for row in positions
        if row["partition"] is not None
    }
    found = {}
    for topic_id, group_id, is_share in groups:
        if topic_id not in known:
            continue
        looks = readings(observations, positions, topic_id, group_id, is_share=is_share)
        mapping = mapping_of(names[topic_id])
        own = verdicts(known[topic_id], looks, mapping, is_share=is_share, observed=observed[topic_id])
        for key, verdict in own:
            proven = _provable(known[topic_id], mapping, key, verdict)
            found[group_id, is_share, *key] = _without_history(proven) if is_share else proven
    return known, found
