"""Makes the plan of a redrive: chooses archived records by the history, reads them, asks who reads the target."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Final

from acktrail.change.cluster import Cluster
from acktrail.change.plan.change_plan import with_hash
from acktrail.change.plan.later_records import keys_finished_later
from acktrail.change.plan.snapshot_facts import StateFacts
from acktrail.change.plan.snapshot_reader import cluster_facts, describe_groups
from acktrail.config import TablesConfig
from acktrail.errors import UnknownName
from acktrail.history.history_reader import HistoryReader
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.kafka.describe_configs import topic_configs
from acktrail.kafka.group_look import topic_readers
from acktrail.kafka.log_reader import StateTopic
from acktrail.kafka.record_ranges import SourceRecord, TopicRecords
from acktrail.model.offset_ranges import OffsetRanges, Span, joined
from acktrail.model.record_history import ArchivedRange
from acktrail.tables.delta.store import Tables
from acktrail.times import new_run_id, now_ms
from acktrail_redrive.redrive_plan import (
    KIND,
    CauseCount,
    RedrivePlan,
    SourceRecords,
    TargetTopic,
    TopicReader,
    UnreadRecords,
)

TABLE: Final = "redriven_records"
COUNT_HEADER: Final = b"acktrail.redrive.count"
_LIMIT: Final = "group.share.delivery.count.limit"
_DEFAULT_LIMIT: Final = 5
_RECREATED: Final = "the topic was deleted or recreated since"
_GUARD: Final = "it was put back {0} time(s) already (--most-attempts)"
_CUT: Final = "--most was reached"


class RedriveCause(StrEnum):
    """Why a record was archived, by its delivery count. REJECTED: a consumer rejected it before the limit was reached.
    UNKNOWN: the state records do not have its count."""

    LIMIT = "limit"
    REJECTED = "rejected"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveRequest:
    """Which archived records of a group go where; None or empty: all. `to` empty: back into their own topic."""

    group: str
    topic: str | None = None
    partition: int | None = None
    offsets: Span | None = None
    since_ms: int | None = None
    causes: tuple[str, ...] = ()
    least_deliveries: int = 0
    to: str = ""
    most: int = 100_000
    most_attempts: int = 1
    created_by: str = ""
    requested_by: str = ""
    reason: str = ""


@dataclass(slots=True)
class _Partition:
    """What is known of the records of a partition while a plan is made."""

    chosen: list[Span] = field(default_factory=list)
    lacking: dict[str, list[Span]] = field(default_factory=lambda: defaultdict(list))


_Places = dict[tuple[str, str, int], _Partition]
"""By topic, topic id and partition."""


def make_plan(cluster: Cluster, tables: TablesConfig, request: RedriveRequest) -> RedrivePlan:
    """Return the plan for the archived records that are asked for. Nothing is changed.

    Raises ConfigurationError: there is no history. UnknownName: the group, a topic or a partition is not known.
    NotAuthorized: READ on a source, or DESCRIBE on the target, is missing. RetryableError: brokers do not answer.
    """
    stored, at_ms = Tables(tables), now_ms()
    history, admin = HistoryReader(stored), cluster.admin
    groups, _ = describe_groups(admin, [request.group])
    places, causes = _chosen(history, request, _limit(admin, request.group))
    completeness = history.completeness(request.group).within(request.since_ms)
    topic = request.to or _only_topic(places, request)
    target = _target(admin, topic)
    found = _Findings(stored, request)
    for name in sorted({name for name, _, _ in places}):
        _read(cluster, name, places, found)
    sources = _sources(places, found.counts)
    later, reason = _later_finished(cluster, request.group, places, found)
    readers, silent = topic_readers(admin, topic)
    kept = (cause for each in sources for cause in _causes(causes, each))
    plan = RedrivePlan(
        kind=KIND,
        plan_id=new_run_id(at_ms),
        created_at_ms=at_ms,
        created_by=request.created_by,
        requested_by=request.requested_by,
        reason=request.reason,
        cluster=cluster_facts(admin, StateFacts()),
        groups=groups,
        target=target,
        sources=sources,
        record_bytes=found.total_bytes,
        largest_bytes=found.largest_bytes,
        keyless=found.keyless,
        oldest_ms=found.oldest_ms,
        newest_ms=found.newest_ms,
        by_cause=tuple(CauseCount(cause=each, records=count) for each, count in sorted(Counter(kept).items())),
        unread=tuple(_unread(places)),
        readers=tuple(TopicReader(group_id=each, group_type=kind) for each, kind in readers.items()),
        groups_not_asked=tuple(sorted(silent)),
        put_back_before=found.put_back_before,
        later_finished=later,
        later_reason=reason,
        is_history_whole=completeness.is_complete and history.is_current,
    )
    return with_hash(plan)


def _limit(admin: ShareGroupAdmin, group: str) -> int:
    """The delivery count at which a record is archived, as the group's configuration says now."""
    (found,) = admin.group_configs([group])
    text = (found.configs or {}).get("share.delivery.count.limit") or (found.configs or {}).get(_LIMIT)
    return int(text) if text else _DEFAULT_LIMIT


def _cause(each: ArchivedRange, limit: int) -> RedriveCause:
    if each.delivery_count is None:
        return RedriveCause.UNKNOWN
    return RedriveCause.LIMIT if each.delivery_count >= limit else RedriveCause.REJECTED


def _chosen(
    history: HistoryReader, request: RedriveRequest, limit: int
) -> tuple[_Places, dict[tuple[str, int], list[tuple[Span, RedriveCause]]]]:
    """The archived offsets that are asked for, and the causes of all of them by topic id and partition."""
    places: _Places = defaultdict(_Partition)
    causes: dict[tuple[str, int], list[tuple[Span, RedriveCause]]] = defaultdict(list)
    ids = None if request.topic is None else set(history.ids_of(request.topic))
    first, last = request.offsets or (0, (1 << 63) - 1)
    if request.topic is not None:
        history.known_partitions(request.group, request.topic)
    for each in history.archived_now(request.group, request.since_ms):
        key, cause = each.key, _cause(each, limit)
        span = max(first, each.first_offset), min(last, each.last_offset)
        is_asked = (ids is None or key.topic_id in ids) and request.partition in (None, key.partition)
        is_asked &= (each.delivery_count or 0) >= request.least_deliveries and span[0] <= span[1]
        name = history.topic(key.topic_id).topic or key.topic_id
        if is_asked and (not request.causes or cause in request.causes) and not name.startswith("__"):
            places[name, key.topic_id, key.partition].chosen.append(span)
            causes[key.topic_id, key.partition].append((span, cause))
    for own in places.values():
        own.chosen = [*joined(sorted(own.chosen))]
    return places, causes


def _causes(causes: Mapping[tuple[str, int], list[tuple[Span, RedriveCause]]], own: SourceRecords) -> Iterator[str]:
    """The cause of each record of a source."""
    outside = OffsetRanges()
    for first, last in own.ranges:
        outside.add(first, last)
    for (first, last), cause in causes[own.topic_id, own.partition]:
        left_out = sum(b - a + 1 for a, b in outside.outside(first, last))
        yield from [cause.value] * (last - first + 1 - left_out)


def _only_topic(places: _Places, request: RedriveRequest) -> str:
    names = sorted({name for name, _, _ in places})
    if len(names) > 1:
        raise UnknownName("target of records of several topics", ", ".join(names), nearest=["--topic", "--to"])
    return names[0] if names else request.topic or ""


def _target(admin: ShareGroupAdmin, topic: str) -> TargetTopic:
    (described,) = admin.known_topics([topic])
    configs = topic_configs(client_of(admin), topic)
    policy, most, retention = (configs.get(n) for n in ("cleanup.policy", "max.message.bytes", "retention.ms"))
    return TargetTopic(
        topic=topic,
        topic_id=described.topic_id or "",
        partition_count=described.partition_count,
        is_compacted=None if policy is None else "compact" in policy.split(","),
        most_bytes=None if most is None else int(most),
        retention_ms=None if retention is None or "delete" not in (policy or "") else int(retention),
    )


class _Findings:
    """What reading the records showed; which of them are kept in the plan."""

    def __init__(self, tables: Tables, request: RedriveRequest) -> None:
        self._most, self._most_attempts = request.most, request.most_attempts
        self._tables = tables
        self.counts: dict[str, int] = {}
        """Partitions by topic."""
        self.firsts: dict[str, dict[int, dict[bytes, int]]] = defaultdict(lambda: defaultdict(dict))
        """By topic and partition the first offset of each key."""
        self.kept = self.total_bytes = self.largest_bytes = self.keyless = self.put_back_before = 0
        self.oldest_ms: int | None = None
        self.newest_ms: int | None = None

    def why_left_out(self, topic: StateTopic, record: SourceRecord) -> str | None:
        """Return the reason why a record is not put back; None: it is, and counted."""
        times = self._earlier[topic.topic_id, record.partition, record.offset]
        header = dict(record.headers).get(COUNT_HEADER) or b"0"
        times += int(header) if header.isdigit() else 0
        if times >= self._most_attempts:
            return _GUARD.format(times)
        if self.kept >= self._most:
            return _CUT
        size, at = record.size_bytes, record.timestamp_ms
        self.kept += 1
        self.total_bytes += size
        self.largest_bytes = max(self.largest_bytes, size)
        self.keyless += record.key is None
        self.put_back_before += times > 0
        self.oldest_ms = at if self.oldest_ms is None else min(self.oldest_ms, at)
        self.newest_ms = at if self.newest_ms is None else max(self.newest_ms, at)
        if record.key is not None:
            self.firsts[topic.name][record.partition].setdefault(record.key, record.offset)
        return None

    @cached_property
    def _earlier(self) -> Counter[tuple[str, int, int]]:
        """How often each record was put back by earlier plans."""
        names = ["topic_id", "partition", "offset"]
        rows = self._tables.read(TABLE, columns=names) if self._tables.exists(TABLE) else None
        return Counter(() if rows is None else zip(*(rows[name].to_pylist() for name in names), strict=True))


def _read(cluster: Cluster, topic: str, places: _Places, found: _Findings) -> None:
    """Read the chosen records of a topic; what cannot be read is lacking, with its reason."""
    own, opened = {key: part for key, part in places.items() if key[0] == topic}, None
    with suppress(UnknownName):
        opened = TopicRecords(cluster.topic(topic))
    for (_, topic_id, _), part in own.items():
        if opened is None or opened.topic.topic_id != topic_id:
            part.lacking[_RECREATED], part.chosen = part.chosen, []
    now = {number: part for (_, _, number), part in own.items() if part.chosen}
    if opened is not None and now:
        found.counts[topic] = opened.topic.partition_count
        _read_partitions(opened, now, found)


def _read_partitions(records: TopicRecords, parts: Mapping[int, _Partition], found: _Findings) -> None:
    there, lacking = records.readable({number: part.chosen for number, part in parts.items()})
    seen = {number: OffsetRanges() for number in parts}
    for part in parts.values():
        part.chosen = []
    for record in records.read(there):
        why, part = found.why_left_out(records.topic, record), parts[record.partition]
        seen[record.partition].add(record.offset, record.offset)
        (part.chosen if why is None else part.lacking[why]).append((record.offset, record.offset))
    for number, part in parts.items():
        missing = [gap for first, last in there[number] for gap in seen[number].outside(first, last)]
        for reasons in (lacking.get(number, {}), records.why_not(number, missing)):
            for reason, spans in reasons.items():
                part.lacking[reason] += spans


def _sources(places: _Places, counts: Mapping[str, int]) -> tuple[SourceRecords, ...]:
    return tuple(
        SourceRecords(
            topic=topic,
            topic_id=topic_id,
            partition=number,
            partition_count=counts[topic],
            ranges=tuple(joined(part.chosen)),
        )
        for (topic, topic_id, number), part in sorted(places.items())
        if part.chosen
    )


def _unread(places: _Places) -> Iterator[UnreadRecords]:
    for (topic, _, number), part in sorted(places.items()):
        for reason, spans in sorted(part.lacking.items()):
            ranges = tuple(joined(sorted(spans)))
            yield UnreadRecords(topic=topic, partition=number, ranges=ranges, reason=reason)


def _later_finished(cluster: Cluster, group: str, places: _Places, found: _Findings) -> tuple[int | None, str | None]:
    """For how many keys the group finished a record behind the first one in the plan; or why that is not known."""
    count = 0
    for topic, firsts in found.firsts.items():
        chosen = {number: part.chosen for (name, _, number), part in places.items() if name == topic}
        own, reason = keys_finished_later(cluster, group, topic, firsts, chosen)
        if own is None:
            return None, reason
        count += own
    return count, None
