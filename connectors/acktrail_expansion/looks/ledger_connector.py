"""``PartitionLedgerSource``: partition counts, leader epochs and log ends of topics, observed on a schedule."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

import pyarrow as pa
from kafka.protocol.metadata import MetadataRequest

from acktrail.config import TablesConfig
from acktrail.connect.config_def import ConfigDef, ConfigKey, ConfigType
from acktrail.connect.contract import Config
from acktrail.connect.source_batches import SourceBatch, SourcePartition
from acktrail.errors import RetryableError
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.kafka.client.broker_client import BrokerClient
from acktrail.kafka.client.error_codes import NONE, UNKNOWN_TOPIC_OR_PARTITION, error_text
from acktrail.kafka.descriptions import TopicPartition
from acktrail.kafka.groups.group_requests import compacted_topics, known_topic_id
from acktrail.kafka.logs import HIGH_WATERMARK, START, first_error, query_leaders
from acktrail.kafka.source_connectors import OBSERVATION, ScheduledSource, ScheduledTask, scheduled_keys
from acktrail.times import new_run_id
from acktrail_expansion.looks.group_positions import epoch_ends, observe_positions
from acktrail_expansion.settings import LOOK

OBSERVATIONS: Final = "partition_observations"
POSITIONS: Final = "group_positions"
_UTC_NOW: Final = partial(dt.datetime.now, dt.UTC)
_TRANSACTIONS: Final = "__transaction_state"
"""Kafka: ``Topic.TRANSACTION_STATE_TOPIC_NAME``, which the first transactional producer of a cluster makes."""
_Row = dict[str, Any]
_WITH_TOPIC_IDS: Final = 10
"""The first version of Metadata that has them (KIP-516)."""
Identity = tuple[str | None, int]
"""A topic's id and how many partitions it has: None and 0 where it is not there, or may not be described."""


class PartitionLedgerSource(ScheduledSource):
    """Keeps the ledger that partition expansions are found in (docs/expansion.md)."""

    purpose = LOOK
    description = "Partition counts, leader epochs and log ends of topics, on a schedule."
    config_def: ClassVar[ConfigDef] = scheduled_keys(
        60_000,
        "Milliseconds from the beginning of one observation to that of the next: an expansion is known to lie between "
        "two of them.",
        ConfigKey(
            name="topics",
            type=ConfigType.LIST,
            default=[],
            documentation="The topics to observe; none: all that are not internal.",
            group=OBSERVATION,
        ),
    )

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
    clock: Callable[[], dt.datetime] = _UTC_NOW,
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
    did not answer; tables.md says what consistency means."""
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
    from acktrail.tables.exported.delta_sink import DeltaSink

    name = run_id or new_run_id()
    found = observe_partitions(admin, run_id=name, topics=topics)
    sink = DeltaSink(Tables(tables), cluster_id=admin.cluster_id, run_id=name)
    sink.put(found)
    sink.flush()
    return found
