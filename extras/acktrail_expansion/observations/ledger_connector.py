"""``PartitionLedgerSource``: partition counts, leader epochs and log ends of topics, observed on a schedule."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

import pyarrow as pa
from kafka.protocol.consumer.offsets import OffsetForLeaderEpochRequest
from kafka.protocol.metadata import MetadataRequest

from acktrail.config import TablesConfig
from acktrail.errors import RetryableError
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.kafka.client.broker_client import BrokerClient, NoResponse
from acktrail.kafka.client.error_codes import NONE, UNKNOWN_TOPIC_OR_PARTITION, error_text
from acktrail.kafka.describe_configs import compacted_topics
from acktrail.kafka.descriptions import CommittedOffset, CommittedOffsets, GroupOffsets, ShareOffset, TopicPartition
from acktrail.kafka.groups.group_requests import known_topic_id
from acktrail.kafka.logs import HIGH_WATERMARK, START, first_error, query_leaders
from acktrail.model.log_positions import SourcePartition
from acktrail.model.share_partition import STATE_TOPIC, GroupId, SharePartition, TopicId, state_partition_of
from acktrail.times import new_run_id
from acktrail_connect.address_keys import KAFKA_KEYS
from acktrail_connect.config_def import ConfigDef, keys_in
from acktrail_connect.contract import Config
from acktrail_connect.source_batches import SourceBatch
from acktrail_connect.sources.cluster_sources import ScheduledSource, ScheduledTask
from acktrail_expansion import OBSERVATIONS, POSITIONS
from acktrail_expansion.settings import LOOK

UTC_NOW: Final = partial(dt.datetime.now, dt.UTC)
_TRANSACTIONS: Final = "__transaction_state"
"""Kafka: ``Topic.TRANSACTION_STATE_TOPIC_NAME``, which the first transactional producer of a cluster makes."""
_Row = dict[str, Any]
_WITH_TOPIC_IDS: Final = 10
"""The first version of Metadata that has them (KIP-516)."""
Identity = tuple[str | None, int]
"""A topic's id and how many partitions it has: None and 0 where it is not there, or may not be described."""


class PartitionLedgerSource(ScheduledSource):
    """Keeps the ledger that partition expansions are found in (docs/how-to/expand-a-topic.md)."""

    purpose = LOOK
    description = "Partition counts, leader epochs and log ends of topics, and positions of groups, on a schedule."
    config_def: ClassVar[ConfigDef] = KAFKA_KEYS.with_keys(keys_in(__package__, "ledger_keys.toml"))

    def task(self, config: Config) -> PartitionLedgerTask:  # noqa: ARG002  # there is one task
        topics = tuple(self.config["topics"])
        task = PartitionLedgerTask(self._kafka, interval_s=self.seconds(), acls=self.acls(topics))
        task.topics = topics or None
        return task


class PartitionLedgerTask(ScheduledTask):
    """Each look has a run id of its own."""

    topics: Sequence[str] | None = None
    """None: all that are not internal."""

    def look(self, admin: ShareGroupAdmin) -> SourceBatch:
        return observe_partitions(admin, run_id=new_run_id(), topics=self.topics)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTopic:
    """One topic, and its leader's id and epoch by partition, -1 where there is none. `topic_id` None and no leaders
    beside an error."""

    name: str
    topic_id: str | None
    leaders: tuple[tuple[int, int], ...]
    is_internal: bool = False
    error_code: int = NONE

    @property
    def identity(self) -> Identity:
        """What an expansion, or a deletion, changes of it."""
        return self.topic_id, len(self.leaders)


def list_partitions(
    client: BrokerClient, topics: Iterable[str] | None = None, *, node_id: int | None = None
) -> tuple[ListedTopic, ...]:
    """These topics, by name, errors as values; None: all that this principal may DESCRIBE. No topic is created by
    asking. All of an answer is of one moment. `node_id`: the broker to ask; None: any.

    Raises:
        Unreachable, RetryableError: no broker answered.
    """
    wanted = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in set(topics)]
    if wanted == []:
        return ()
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False, min_version=_WITH_TOPIC_IDS)
    return tuple(sorted(map(_listed, client.send(request, node_id).topics), key=lambda topic: topic.name))


def listed_by_brokers(admin: ShareGroupAdmin, topics: Iterable[str]) -> list[dict[str, Identity]]:
    """What each broker lists of `topics` now; empty: it did not answer. Raises as `list_partitions`."""
    client, found = client_of(admin), []
    client.metadata([])  # learn which brokers there are
    for node_id in admin.broker_ids():
        try:
            listed = list_partitions(client, topics, node_id=node_id)
        except RetryableError:
            listed = ()
        found.append({topic.name: topic.identity for topic in listed})
    return found


def _listed(topic: Any) -> ListedTopic:
    rows = [] if topic.error_code else sorted(topic.partitions, key=lambda row: row.partition_index)
    return ListedTopic(
        name=topic.name,
        topic_id=known_topic_id(topic.topic_id),
        leaders=tuple((row.leader_id, row.leader_epoch) for row in rows),
        is_internal=bool(topic.is_internal),
        error_code=topic.error_code,
    )


def observe_partitions(
    admin: ShareGroupAdmin,
    *,
    run_id: str,
    topics: Iterable[str] | None = None,
    clock: Callable[[], dt.datetime] = UTC_NOW,
) -> SourceBatch:
    """Rows of ``partition_observations`` and ``group_positions``: of the topics named, None: of all that are not
    internal.

    Partitions are listed, then the ends of all logs asked for, then partitions are listed again, by every broker: only
    where all lists agree do the ends belong to the count. One broker can learn of an expansion before another, and
    producers from either: a broker that still lists the old count proves nothing alone. `observed_at` is before the
    ends were asked for, `listed_at` after the last list. Where earlier leaders' records end is asked of the leader that
    gave the log's end. A topic that cannot be described is one row with the reason, as is one that is gone; a partition
    whose log cannot be asked is a row with its error. Groups are asked last. Raises as ``ShareGroupAdmin``.
    """
    client = client_of(admin)
    listed = [topic for topic in list_partitions(client, topics) if topics is not None or not topic.is_internal]
    at = clock()
    logs = _log_rows(client, listed)
    again = listed_by_brokers(admin, [topic.name for topic in listed])
    look = {"cluster_id": admin.cluster_id, "run_id": run_id}
    times = {"observed_at": at, "listed_at": clock()}
    topic_ids = {topic.name: topic.topic_id for topic in listed if not topic.error_code}
    gapless = gapless_topics(client, [*topic_ids])
    rows = [
        {**look, **times, "is_gapless": gapless.get(topic.name), **row}
        for topic in listed
        for row in topic_rows(topic, [each.get(topic.name) for each in again], logs)
    ]
    positions = [{**look, **row} for row in observe_positions(admin, topic_ids, clock)]
    found = {OBSERVATIONS: rows, POSITIONS: positions}
    return SourceBatch(
        source_partition=SourcePartition(f"partitions/{admin.cluster_id}"),
        rows={name: pa.Table.from_pylist(own, schema=TABLES[name]) for name, own in found.items()},
    )


def gapless_topics(client: BrokerClient, topics: Sequence[str]) -> dict[str, bool | None]:
    """Whether each of `topics` has no offset that is no record's. False: it is compacted. None: not known; where the
    cluster had transactions there can be their markers and aborted records in any topic, and without DESCRIBE on their
    topic, or DESCRIBE_CONFIGS on the topic itself, nothing is known. Raises Unreachable, RetryableError: no broker
    answered."""
    (transactions,) = list_partitions(client, [_TRANSACTIONS])
    has_none = transactions.error_code == UNKNOWN_TOPIC_OR_PARTITION
    known = {True: False, False: True if has_none else None, None: None}
    return {topic: known[is_compacted] for topic, is_compacted in compacted_topics(client, topics).items()}


def _log_rows(client: BrokerClient, listed: Iterable[ListedTopic]) -> dict[TopicPartition, _Row]:
    """The columns about each log. A leader's epoch is that of its answer about the end: the list can be older."""
    leaders = {
        TopicPartition(topic=topic.name, partition=partition): leader
        for topic in listed
        for partition, leader in enumerate(topic.leaders)
    }
    answers = query_leaders(client, leaders, (HIGH_WATERMARK, START))
    led = {
        place: (leader_id, max(epoch, answers[place][HIGH_WATERMARK].leader_epoch))
        for place, (leader_id, epoch) in leaders.items()
    }
    ended = epoch_ends(client, {place: leader for place, leader in led.items() if leader[0] >= 0})
    rows = {}
    for place, (leader_id, epoch) in led.items():
        offsets, (ended_epoch, epoch_end_offset) = answers[place], ended.get(place, (None, None))
        rows[place] = {
            "partition": place.partition,
            "leader_id": _known(leader_id),
            "leader_epoch": _known(epoch),
            "ended_epoch": ended_epoch,
            "epoch_end_offset": epoch_end_offset,
            "log_start_offset": _known(offsets[START].offset),
            "log_end_offset": _known(offsets[HIGH_WATERMARK].offset),
            **_error(first_error(offsets)),
        }
    return rows


def topic_rows(topic: ListedTopic, again: Sequence[object], logs: Mapping[TopicPartition, _Row]) -> Iterator[_Row]:
    """The rows of one topic with those of its `logs`. `again`: what each broker lists in the end, None: nothing, or it
    did not answer; tables.toml says what consistency means."""
    common: _Row = {"topic": topic.name, "topic_id": topic.topic_id}
    if topic.error_code:
        yield {**common, **_error(topic.error_code)}
        return
    own = [logs[TopicPartition(topic=topic.name, partition=partition)] for partition in range(len(topic.leaders))]
    consistency = "partial" if any(row["error_code"] for row in own) else "consistent"
    if {*again} != {topic.identity}:
        consistency = "straddles"
    for row in own:
        yield {**common, "partition_count": len(own), "consistency": consistency, **row}


def _error(code: int) -> _Row:
    return {"error_code": code, "error": error_text(code)}


def _known(number: int) -> int | None:
    return number if number >= 0 else None


def take_look(
    admin: ShareGroupAdmin, tables: TablesConfig, *, topics: Sequence[str] | None = None, run_id: str | None = None
) -> SourceBatch:
    """Observe `topics` (None: all that are not internal) and append the rows to ``partition_observations`` and
    ``group_positions``. A second look under the same `run_id` is not stored.

    Raises:
        Unreachable, RetryableError: no broker answered. ForeignCluster: the tables are another cluster's.
        OutcomeUnknown, ConfigurationError: the storage failed; look again.
    """
    from acktrail.tables.delta.store import Tables
    from acktrail_connect.sinks.delta_sink import DeltaSink

    name = run_id or new_run_id()
    found = observe_partitions(admin, run_id=name, topics=topics)
    sink = DeltaSink(Tables(tables), cluster_id=admin.cluster_id, run_id=name)
    sink.put(found)
    sink.flush()
    return found


_CONSUMER: Final = -1
"""In place of the node id of a follower."""
SHARE: Final = "share"
_COMMITTING: Final = ("consumer", "classic", "streams")


def observe_positions(
    admin: ShareGroupAdmin, topic_ids: Mapping[str, str | None], clock: Callable[[], dt.datetime]
) -> Iterator[dict[str, Any]]:
    """Rows of ``group_positions``, without the run's own columns, in the topics that `topic_ids` names.

    Each committing group is read once: its coordinator has all offsets, and gives them as of one time. Share groups are
    read twice, one whole reading after the other: each partition's state is kept apart, so that only a position of the
    first reading is older for certain than one of the second. The ends of the state topic's logs are asked for before
    each: a state record below the end was written before the position was read. A group whose coordinator does not
    answer is one row with the reason.
    """
    groups = admin.list_groups(types=())
    shares = [group.group_id for group in groups if group.group_type == SHARE]
    others = {group.group_id: group.group_type for group in groups if group.group_type in _COMMITTING}

    def share_rows() -> Iterator[dict[str, Any]]:
        if shares:
            ends, at = _state_ends(admin), clock()
            for group in admin.describe_group_offsets(shares, tolerates_timeouts=True):
                yield from _rows(group, SHARE, at, topic_ids, ends)

    yield from share_rows()
    at = clock()
    for read in admin.committed_offsets(others, tolerates_timeouts=True):
        yield from _rows(read, others[read.group_id], at, topic_ids)
    yield from share_rows()


def _state_ends(admin: ShareGroupAdmin) -> list[int | None]:
    """The end of each log of the state topic; none where it is not there, or may not be described."""
    (topic,) = admin.topics([STATE_TOPIC])
    places = [TopicPartition(topic=STATE_TOPIC, partition=number) for number in range(topic.partition_count)]
    return [log.high_watermark for log in admin.list_offsets(places)]


def _rows(
    group: GroupOffsets | CommittedOffsets,
    group_type: str,
    at: dt.datetime,
    topic_ids: Mapping[str, str | None],
    state_ends: Sequence[int | None] = (),
) -> Iterator[dict[str, Any]]:
    own = {"observed_at": at, "group_id": group.group_id, "group_type": group_type}
    if group.error_code:
        yield {**own, "error_code": group.error_code, "error": group.error}
        return
    offsets: Iterable[ShareOffset | CommittedOffset] = group.offsets
    for offset in offsets:
        if offset.topic in topic_ids:
            place = {"topic_id": topic_ids[offset.topic], "topic": offset.topic, "partition": offset.partition}
            found = {**own, **place, "error_code": offset.error_code, "error": offset.error}
            if isinstance(offset, CommittedOffset):
                yield {**found, "position": offset.offset}
            else:
                yield {**found, **_share_position(group.group_id, offset, state_ends)}


def _share_position(group_id: str, offset: ShareOffset, state_ends: Sequence[int | None]) -> dict[str, Any]:
    found: dict[str, Any] = {"position": offset.start_offset, "lag": offset.lag}
    if state_ends and offset.topic_id is not None:
        key = SharePartition(group_id=GroupId(group_id), topic_id=TopicId(offset.topic_id), partition=offset.partition)
        home = state_partition_of(key, len(state_ends))
        found |= {"state_partition": home, "state_end_offset": state_ends[home]}
    return found


def epoch_ends(
    client: BrokerClient, leaders: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, tuple[int, int]]:
    """The newest epoch before its own that each leader has, and one past the last record of it, which is the end of
    each epoch between both as well; `leaders`: id and epoch of each log's. One that leads in another epoch by now
    refuses. A log is left out where this is not known, or where the leader's epoch is the first one. All leaders are
    asked at once, and once. Needs DESCRIBE on the topics. Raises as ``ShareGroupAdmin`` where a leader takes the
    request and keeps silent."""
    by_leader: dict[int, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for place, (leader_id, epoch) in leaders.items():
        if epoch > 0:
            by_leader[leader_id][place.topic].append(_row(place.partition, epoch))
    found: dict[TopicPartition, tuple[int, int]] = {}
    for reply in client.send_all([(leader_id, _request(topics)) for leader_id, topics in by_leader.items()]):
        if not isinstance(reply, NoResponse):
            found |= {
                TopicPartition(topic=topic.topic, partition=row.partition): (row.leader_epoch, row.end_offset)
                for topic in reply.topics
                for row in topic.partitions
                if row.error_code == NONE and row.leader_epoch >= 0 and row.end_offset >= 0
            }
        elif not reply.may_try_again:
            raise client.explain(reply)
    return found


def _row(partition: int, epoch: int) -> Any:
    kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition
    return kind(partition=partition, current_leader_epoch=epoch, leader_epoch=epoch - 1)


def _request(topics: Mapping[str, list[Any]]) -> Any:
    kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    return OffsetForLeaderEpochRequest(
        replica_id=_CONSUMER, topics=[kind(topic=name, partitions=rows) for name, rows in topics.items()]
    )
