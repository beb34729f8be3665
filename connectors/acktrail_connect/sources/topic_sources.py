"""Connectors of topics with records about share groups, each one a row.

``DeadLetterSource``: what brokers write of the records that share groups gave up (KIP-1191). The dead-letter topics
that are named, or those that groups name, are one source task. ``ShareGroupMetadataSource``: what the group coordinator
writes, as it is written; what is not about share groups is left out.
"""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.config import KafkaConfig
from acktrail.errors import InputError, UnsupportedRecord
from acktrail.format.columns.decoding.batch_columns import columns_with_headers, partition_runs
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.format.wire.dead_letter_headers import DeadLetterStatus, read_dead_letter
from acktrail.format.wire.group_record import OTHER_TYPES, ShareGroupRecord, decode
from acktrail.format.wire.primitives import INT16
from acktrail.format.wire.raw_record import DecodeStatus, RawRecord, decode_with
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.dead_letter_topics import dead_letter_topics, dropped_by_group
from acktrail.kafka.descriptions import LogOffsets
from acktrail.kafka.granted_acls import missing_rights
from acktrail.kafka.log_reader import StateTopic
from acktrail.model.acls import needed
from acktrail.model.log_positions import SourcePartition
from acktrail.package_data import metric_definitions
from acktrail_connect import DEAD_LETTERS
from acktrail_connect.config_def import ConfigDef, keys_in
from acktrail_connect.contract import Config, Gauge, SourceTask, SourceTaskContext
from acktrail_connect.source_batches import SourceBatch
from acktrail_connect.sources.cluster_sources import ClusterSource
from acktrail_connect.sources.log_sources import LOG_KEYS, LogSource
from acktrail_connect.sources.log_task import LogPlace, LogTask

_LOG: Final = logging.getLogger("acktrail.connect")
_TO_FIND_TOPICS: Final = tuple(acl for acl in needed(DEAD_LETTERS) if acl.kind == "group")
_FIELDS: Final = ("group_id", "topic", "partition", "offset", "delivery_count", "message")
_MS: Final = 1_000
_METRICS: Final = metric_definitions("acktrail_connect", "sources")
_OTHERS: Final = pa.array([INT16.pack(number) for number in sorted(OTHER_TYPES)], pa.binary())
_COLUMNS: Final = {
    "assignment_epoch": "epoch",
    "member_epoch": "epoch",
    "previous_member_epoch": "previous_epoch",
    "state": "member_state",
}
"""Fields whose column has another name."""


def _letter_rows(records: pa.Table) -> Iterator[dict[str, Any]]:
    for row in records.to_pylist():
        yield {
            "dlq_partition": row["partition"],
            "dlq_offset": row["offset"],
            "timestamp_ms": row["timestamp"],
            "key_bytes": None if row["key"] is None else len(row["key"]),
            "value_bytes": None if row["value"] is None else len(row["value"]),
            **_letter_content(row["headers"]),
        }


def _letter_content(headers: bytes) -> dict[str, Any]:
    try:
        letter = read_dead_letter(headers)
    except InputError as error:
        is_foreign = isinstance(error, UnsupportedRecord)
        status = DeadLetterStatus.NOT_A_DEAD_LETTER if is_foreign else DeadLetterStatus.MALFORMED_HEADERS
        return {"headers": headers, "decode_status": status.value, "decode_error": error.message}
    return {**{name: getattr(letter, name) for name in _FIELDS}, "decode_status": DeadLetterStatus.DECODED.value}


def record_gauges(name: str, counts: Mapping[str, int], passed_offsets: int) -> tuple[Gauge, ...]:
    """Records by what became of them, and offsets that logs began behind."""
    about, passed = _METRICS[name].about, f"{name}_passed_offsets"
    records = [Gauge(name=name, about=about, value=count, labels={"status": each}) for each, count in counts.items()]
    return (*records, Gauge(name=passed, about=_METRICS[passed].about, value=passed_offsets))


class TopicTask(LogTask):
    """A topic whose records become rows of `table`, counted by status; some are left out.

    A log that starts behind the position is read from its start; the offsets between are counted, and are a line in
    the log. What an unclean election took back stays in the tables.
    """

    table: ClassVar[str]
    statuses: ClassVar[tuple[str, ...]]
    passed_offsets = 0
    """Offsets between a position and the start of its log."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.counts = Counter(dict.fromkeys(self.statuses, 0))
        """Records by status."""

    @abstractmethod
    def rows(self, topic: StateTopic, records: pa.Table, run_id: str) -> pa.Table:
        """The rows of at least one of `records`, which have the columns that `columns` gives; counts them."""

    def open(self, topic: StateTopic, logs: Mapping[int, LogOffsets]) -> None:
        """At the positions, in the logs as they are now."""
        for number, log in logs.items():
            place = self.begin(topic, log, self.position(self.source_partition(topic, number)))
            place.leader_epoch = None  # an election is no reason to begin again

    def deliver(self, topic: StateTopic, records: pa.Table, reached: Mapping[int, int]) -> None:
        """One batch a partition, also where nothing but the position changed."""
        parts = dict(partition_runs(records, "partition"))
        for number, end in reached.items():
            own = parts.get(number, records.slice(0, 0))
            rows = self.rows(topic, own, self._context.run_id) if own.num_rows else own
            self.give(
                SourceBatch(
                    source_partition=self._places[number].source_partition,
                    rows={self.table: rows} if rows.num_rows else {},
                    position=end,
                )
            )

    def pass_to(self, place: LogPlace, log_start: int) -> None:
        """Counted, and a line in the log."""
        passed = log_start - place.next_offset
        _LOG.info(
            "partition %d of %s starts at %d, %d offsets behind the position %d: reading continues there",
            place.partition,
            self._name,
            log_start,
            passed,
            place.next_offset,
            extra={"event": "log_start_passed"},
        )
        self.passed_offsets += passed


class _DeadLetterTopic(TopicTask):
    """One dead-letter topic. Keys and values are not kept: they are copies of what a producer wrote."""

    kind, table = "dead_letters", "dead_letter_records"
    statuses = tuple(DeadLetterStatus)
    columns = staticmethod(columns_with_headers)

    def rows(self, topic: StateTopic, records: pa.Table, run_id: str) -> pa.Table:
        origin = {"cluster_id": topic.cluster_id, "run_id": run_id}
        origin |= {"dlq_topic": topic.name, "dlq_topic_id": topic.topic_id}
        rows = pa.Table.from_pylist(
            [{**origin, **row} for row in _letter_rows(records)], schema=TABLES["dead_letter_records"]
        )
        self.counts.update(rows["decode_status"].to_pylist())
        return rows


class DeadLetterTask(SourceTask):
    """Reads every partition of `topics`; none named: of those that the cluster's share groups name, looked up again
    every `refresh_s` seconds. A topic that is not there yet is waited for, unless `bounded`. Raises as ``TopicTask``
    and ``dead_letter_topics``."""

    def __init__(
        self, config: KafkaConfig, topics: Sequence[str], *, bounded: bool, refresh_s: float, linger_s: float
    ) -> None:
        self._config, self._named, self._refresh_s = config, tuple(topics), refresh_s
        self._bounded, self._linger_s = bounded, linger_s
        self._context = SourceTaskContext()
        self._admin: ShareGroupAdmin | None = None
        self._topics: dict[str, _DeadLetterTopic] = {}
        self._looked_at = 0.0

    def start(self, context: SourceTaskContext) -> None:
        self._context = context
        if not self._named:
            self._admin = ShareGroupAdmin(self._config)
        self._look()

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        """The next batches of every topic, each asked in turn for its part of `timeout_s`."""
        if not self._bounded and time.monotonic() - self._looked_at >= self._refresh_s:
            self._look()
        if not self._topics:
            self._context.stop.wait(timeout_s)
        share_s = timeout_s / max(1, len(self._topics))
        return [batch for topic in self._topics.values() for batch in topic.poll(share_s)]

    def stop(self) -> None:
        """Close connections. May be called twice."""
        for topic in self._topics.values():
            topic.stop()
        if self._admin is not None:
            self._admin.close()

    @property
    def is_finished(self) -> bool:
        return self._bounded and bool(self._looked_at) and all(topic.is_finished for topic in self._topics.values())

    @property
    def partitions(self) -> tuple[int, int]:
        found = [topic.partitions for topic in self._topics.values()]
        return sum(read for read, _ in found), sum(count for _, count in found)

    def gauges(self) -> Sequence[Gauge]:
        """Records by whether they could be read, offsets that logs began behind, and how many topics are followed."""
        topics = [*self._topics.values()]
        counts = {status: sum(topic.counts[status] for topic in topics) for status in _DeadLetterTopic.statuses}
        passed = sum(topic.passed_offsets for topic in topics)
        return (
            *record_gauges("acktrail_dead_letter_records", counts, passed),
            *(
                Gauge(
                    name="acktrail_dead_letter_topics",
                    about=_METRICS["acktrail_dead_letter_topics"].about,
                    value=sum(topic.is_present is present for topic in topics),
                    labels={"state": state},
                )
                for state, present in (("present", True), ("missing", False))
            ),
        )

    def _look(self) -> None:
        """Begin to read the topics that were not known. A topic that no group names any more is still read."""
        names: Sequence[str] = self._named
        if self._admin is not None:
            missing, found = missing_rights(self._admin, _TO_FIND_TOPICS), dead_letter_topics(self._admin)
            dropped = [f"group {group_id!r}: {why}" for group_id, why in dropped_by_group(self._admin, found).items()]
            self.limits = "; ".join([*([missing] if missing else []), *dropped])
            names = sorted(set(found.values()))
        for name in names:
            if name not in self._topics:
                topic = _DeadLetterTopic(self._config, name, bounded=self._bounded, linger_s=self._linger_s)
                self._topics[name] = topic
                topic.start(self._context)
        self._looked_at = time.monotonic()


class DeadLetterSource(LogSource):
    """Exports the records of the dead-letter topics of share groups. Needs READ and DESCRIBE on them; to find them,
    DESCRIBE and DESCRIBE_CONFIGS on the groups."""

    description = "Every record of the dead-letter topics, with decoded headers (Kafka 4.4, share.version 2)."
    topic = "a dead-letter topic"
    reader = _DeadLetterTopic
    config_def: ClassVar[ConfigDef] = LOG_KEYS.with_keys(keys_in(__package__, "dead_letter_keys.toml"))

    # Topics are found by the one task: there may be new ones at any time.
    start = ClusterSource.start
    task_configs = ClusterSource.task_configs

    def task(self, config: Config) -> DeadLetterTask:  # noqa: ARG002  # as above
        return DeadLetterTask(
            self._kafka,
            [*dict.fromkeys(self.config["topics"] or ())],
            bounded=self.config["bounded"],
            refresh_s=self.config["topics.refresh.interval.ms"] / _MS,
            linger_s=self.linger_s,
        )

    def source_partitions(self) -> Sequence[SourcePartition]:
        """None before they are read."""
        return ()


def _group_rows(records: pa.Table) -> Iterator[dict[str, Any]]:
    for number, offset, time_ms, key, value in zip(*(column.to_pylist() for column in records.columns), strict=True):
        raw = RawRecord(state_partition=number, offset=offset, timestamp_ms=time_ms, key=key, value=value)
        found = decode_with(decode, raw)
        yield {
            "group_partition": number,
            "offset": offset,
            "timestamp_ms": time_ms,
            "key": key,
            "value": value,
            **({} if found.record is None else _group_content(found.record)),
            "decode_status": found.status.value,
            "decode_error": found.reason,
        }


def _group_content(record: ShareGroupRecord) -> dict[str, Any]:
    fields = {_COLUMNS.get(name, name): value for name, value in (record.fields or {}).items()}
    kind = record.record_type.name.lower()
    return {**record.address, **fields, "record_type": kind, "is_tombstone": record.fields is None}


class MetadataTask(TopicTask):
    """Rows of ``group_records``; records about other things than share groups are left out. Keys of types that Kafka
    4.4 does not have are kept, not decoded: they may be about share groups. What an unclean election took back stays
    in the tables. Records read = decoded + quarantined + other."""

    kind, table = "groups", "group_records"
    statuses = ("decoded", "quarantined", "other")

    def rows(self, topic: StateTopic, records: pa.Table, run_id: str) -> pa.Table:
        is_other = pc.is_in(pc.binary_slice(records.column("key"), 0, INT16.size), value_set=_OTHERS)
        own = records.filter(pc.invert(is_other))
        rows = [{"cluster_id": topic.cluster_id, "run_id": run_id, **row} for row in _group_rows(own)]
        decoded = sum(row["decode_status"] == DecodeStatus.DECODED for row in rows)
        self.counts.update(decoded=decoded, quarantined=len(rows) - decoded, other=records.num_rows - len(rows))
        return pa.Table.from_pylist(rows, schema=TABLES["group_records"])

    def gauges(self) -> Sequence[Gauge]:
        return record_gauges("acktrail_group_records", self.counts, self.passed_offsets)


class ShareGroupMetadataSource(LogSource):
    """Exports the records of ``__consumer_offsets`` that are about share groups: members, epochs, assignments, and
    which share partitions have state. Needs READ and DESCRIBE on that topic, nothing else."""

    description = "Every record of __consumer_offsets about share groups: members, epochs, assignments."
    topic = "__consumer_offsets"
    reader = MetadataTask
