"""Makes the plan of a redrive: chooses archived records by the history, reads them, asks who reads the target."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

from acktrail.change.cluster import Cluster
from acktrail.change.plan.change_plan import with_hash
from acktrail.change.plan.later_records import keys_finished_later
from acktrail.change.plan.snapshot_facts import StateFacts
from acktrail.change.plan.snapshot_reader import cluster_facts, describe_groups
from acktrail.config import TablesConfig
from acktrail.errors import InputError
from acktrail.history.history_reader import HistoryReader
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.kafka.describe_configs import topic_configs
from acktrail.kafka.group_look import topic_readers
from acktrail.kafka.record_ranges import SourceRecord, TopicRecords
from acktrail.model.offset_ranges import Span, joined
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import one_of
from acktrail.text_tables import few
from acktrail.times import new_run_id, now_ms
from acktrail_redrive.redrive_headers import COUNT, header_number
from acktrail_redrive.redrive_plan import KIND, CauseCount, PartitionRecords, RedrivePlan, TargetTopic, TopicReader
from acktrail_redrive.redriven_records import TABLE

_LIMIT: Final = "share.delivery.count.limit"
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


def make_plan(cluster: Cluster, tables: TablesConfig, request: RedriveRequest) -> RedrivePlan:
    """Return the plan for the archived records that are asked for. Nothing is changed.

    Raises ConfigurationError: there is no history. UnknownName: the group, a topic or a partition is not known.
    InputError: records of several topics. NotAuthorized: READ on the source, or DESCRIBE on the target, is missing.
    RetryableError: brokers do not answer.
    """
    stored, at_ms, admin = Tables(tables), now_ms(), cluster.admin
    history = HistoryReader(stored)
    chosen = _chosen(history, request, _limit(admin, request.group))
    topic = _only_topic(history, chosen, request)
    target, records = _target(admin, request.to or topic), TopicRecords(cluster.topic(topic))
    found = _Findings(stored, request, records)
    found.read(chosen)
    sources = tuple(PartitionRecords(partition=own, ranges=joined(spans)) for own, spans in sorted(found.kept.items()))
    but = {own.partition: own.ranges for own in sources}
    later, reason = keys_finished_later(cluster, request.group, topic, found.firsts, but)
    readers, silent = topic_readers(admin, target.topic)
    completeness = history.completeness(request.group).within(request.since_ms)
    about = {name: getattr(request, name) for name in ("created_by", "requested_by", "reason")}
    plan = RedrivePlan(
        **about,
        kind=KIND,
        plan_id=new_run_id(at_ms),
        created_at_ms=at_ms,
        cluster=cluster_facts(admin, StateFacts()),
        groups=describe_groups(admin, [request.group])[0],
        topic=topic,
        topic_id=records.topic.topic_id,
        partition_count=records.topic.partition_count,
        target=target,
        sources=sources,
        record_bytes=sum(found.sizes),
        largest_bytes=max(found.sizes, default=0),
        keyless=found.keyless,
        oldest_ms=min(found.times, default=None),
        newest_ms=max(found.times, default=None),
        by_cause=tuple(CauseCount(cause=each, records=count) for each, count in sorted(found.causes.items())),
        unread=tuple(
            PartitionRecords(partition=own, ranges=joined(sorted(spans)), reason=why)
            for (own, why), spans in sorted(found.lacking.items())
        ),
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
    return int((found.configs or {}).get(_LIMIT) or _DEFAULT_LIMIT)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Archived offsets that are asked for."""

    topic_id: str
    partition: int
    span: Span
    cause: RedriveCause


def _chosen(history: HistoryReader, request: RedriveRequest, limit: int) -> list[_Chosen]:
    if request.topic is not None:
        history.known_partitions(request.group, request.topic)
    ids = None if request.topic is None else set(history.ids_of(request.topic))
    first, last = request.offsets or (0, (1 << 63) - 1)
    found = []
    for each in history.archived_now(request.group, request.since_ms):
        key, count = each.key, each.delivery_count
        cause = RedriveCause.LIMIT if (count or 0) >= limit else RedriveCause.REJECTED
        cause = RedriveCause.UNKNOWN if count is None else cause
        span = max(first, each.first_offset), min(last, each.last_offset)
        is_there = (ids is None or key.topic_id in ids) and request.partition in (None, key.partition)
        is_asked = (count or 0) >= request.least_deliveries and cause in (request.causes or RedriveCause)
        if is_there and is_asked and span[0] <= span[1]:
            found.append(_Chosen(key.topic_id, key.partition, span, cause))
    return found


def _only_topic(history: HistoryReader, chosen: Sequence[_Chosen], request: RedriveRequest) -> str:
    names = sorted({history.topic(each.topic_id).topic or each.topic_id for each in chosen})
    if len(names) > 1:
        what = f"group {request.group!r} archived records of {few(names)}: one plan is about one topic"
        raise InputError(what, hint="give --topic TOPIC")
    topic = names[0] if names else request.topic
    if topic is None:
        what = f"no archived record of group {request.group!r} is asked for"
        raise InputError(what, hint="`acktrail record archived GROUP` lists those that there are")
    return topic


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
    """What reading the records shows, and which of them are kept in the plan."""

    def __init__(self, tables: Tables, request: RedriveRequest, records: TopicRecords) -> None:
        self._tables, self._request, self._records = tables, request, records
        self.kept: dict[int, list[Span]] = defaultdict(list)
        """By partition, ascending."""
        self.lacking: dict[tuple[int, str], list[Span]] = defaultdict(list)
        """By partition and reason."""
        self.firsts: dict[int, dict[bytes, int]] = defaultdict(dict)
        """By partition the first offset of each key."""
        self.causes: Counter[str] = Counter()
        self.sizes: list[int] = []
        self.times: list[int] = []
        self.keyless = self.put_back_before = 0

    def read(self, chosen: Sequence[_Chosen]) -> None:
        """Read what was chosen. Raises as `TopicRecords`."""
        topic_id = self._records.topic.topic_id
        wanted: dict[int, dict[int, RedriveCause]] = defaultdict(dict)
        for each in chosen:
            if each.topic_id != topic_id:
                self.lacking[each.partition, _RECREATED].append(each.span)
            else:
                wanted[each.partition].update(dict.fromkeys(range(each.span[0], each.span[1] + 1), each.cause))
        spans = {number: joined((at, at) for at in sorted(own)) for number, own in wanted.items()}
        there, lacking = self._records.readable(spans)
        for record in self._records.read(there):
            self._take(record, wanted[record.partition].pop(record.offset))
        for number, ranges in there.items():
            first, last = (ranges[0][0], ranges[-1][1]) if ranges else (0, -1)
            missing = joined((at, at) for at in sorted(wanted[number]) if first <= at <= last)
            for reasons in (lacking.get(number, {}), self._records.why_not(number, missing)):
                for reason, own in reasons.items():
                    self.lacking[number, reason] += own

    def _take(self, record: SourceRecord, cause: RedriveCause) -> None:
        span, times = (record.offset, record.offset), self._earlier[record.partition, record.offset]
        times += header_number(record.headers, COUNT) or 0
        is_looped = times >= self._request.most_attempts
        if is_looped or len(self.sizes) >= self._request.most:
            self.lacking[record.partition, _GUARD.format(times) if is_looped else _CUT].append(span)
            return
        self.kept[record.partition].append(span)
        self.causes[cause.value] += 1
        self.sizes.append(record.size_bytes)
        self.times.append(record.timestamp_ms)
        self.keyless += record.key is None
        self.put_back_before += times > 0
        if record.key is not None:
            self.firsts[record.partition].setdefault(record.key, record.offset)

    @cached_property
    def _earlier(self) -> Counter[tuple[int, int]]:
        """How often each record was put back by earlier plans."""
        if not self._tables.exists(TABLE):
            return Counter()
        where = one_of("topic_id", [self._records.topic.topic_id])
        rows = self._tables.read(TABLE, columns=["partition", "offset"], where=where)
        return Counter(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
