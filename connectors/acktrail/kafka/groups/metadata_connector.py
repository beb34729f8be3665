"""``ShareGroupMetadataSource``: what the group coordinator writes about share groups, as it is written. Records of
``__consumer_offsets`` become rows of ``group_records``; what is not about share groups is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.connect.contract import Config, Gauge
from acktrail.connect.source_batches import SourcePartition
from acktrail.format.columns.schemas.table_schemas import GROUP_RECORDS
from acktrail.format.wire.group_record import OTHER_TYPES, decode
from acktrail.format.wire.primitives import INT16
from acktrail.format.wire.raw_record import DecodeStatus, decode_with
from acktrail.kafka.log_reader import raw_records
from acktrail.kafka.log_task import TopicRows, TopicTask
from acktrail.kafka.source_connectors import PARTITIONS, LogSource
from acktrail.kafka.state.state_topic import StateTopic
from acktrail.model.group_records import GroupRecordType, ShareGroupRecord, ShareGroupTombstone

_OTHERS: Final = pa.array([INT16.pack(number) for number in sorted(OTHER_TYPES)], pa.binary())
_COLUMNS: Final = {
    "assignment_epoch": "epoch",
    "member_epoch": "epoch",
    "previous_member_epoch": "previous_epoch",
    "state": "member_state",
}
"""Fields whose column has another name."""
_STATUSES: Final = ("decoded", "quarantined", "other")


class GroupRows(NamedTuple):
    """Rows of ``group_records``, how many of them could not be decoded, and how many records are not about share
    groups: records = decoded + quarantined + other."""

    rows: pa.Table
    quarantined: int
    other: int


def group_rows(records: pa.Table, *, cluster_id: str, run_id: str) -> GroupRows:
    """The rows of `records` (``RAW_RECORDS``), in their order. Keys of types that Kafka 4.4 does not have are kept,
    not decoded: they may be about share groups."""
    is_other = pc.is_in(pc.binary_slice(records.column("key"), 0, INT16.size), value_set=_OTHERS)
    own = records.filter(pc.invert(is_other))
    rows = [{"cluster_id": cluster_id, "run_id": run_id, **row} for row in _rows(own)]
    quarantined = sum(row["decode_status"] != DecodeStatus.DECODED for row in rows)
    return GroupRows(pa.Table.from_pylist(rows, schema=GROUP_RECORDS), quarantined, records.num_rows - len(rows))


def _rows(records: pa.Table) -> Iterator[dict[str, Any]]:
    for raw in raw_records(records):
        found = decode_with(decode, raw)
        yield {
            "group_partition": raw.state_partition,
            "offset": raw.offset,
            "timestamp_ms": raw.timestamp_ms,
            "key": raw.key,
            "value": raw.value,
            **({} if found.record is None else _content(raw.key, found.record)),
            "decode_status": found.status.value,
            "decode_error": found.reason,
        }


def _content(key: bytes | None, record: ShareGroupRecord) -> dict[str, Any]:
    kind = GroupRecordType(INT16.unpack_from(key or b"")[0])
    fields = {_COLUMNS.get(name, name): value for name, value in asdict(record).items()}
    return {**fields, "record_type": kind.name.lower(), "is_tombstone": isinstance(record, ShareGroupTombstone)}


def group_source_partition(cluster_id: str, topic_id: str, partition: int) -> SourcePartition:
    """Names the reading of one partition of one incarnation of one cluster's ``__consumer_offsets``."""
    return SourcePartition(f"groups/{cluster_id}/{topic_id}/{partition}")


class MetadataTask(TopicTask):
    """Rows of ``group_records``; records about other things than share groups are left out. What an unclean election
    took back stays in the tables."""

    table: ClassVar[str] = "group_records"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._counts: Counter[str] = Counter()

    def source_partition(self, topic: StateTopic, partition: int) -> SourcePartition:
        return group_source_partition(topic.cluster_id, topic.topic_id, partition)

    def rows(self, topic: StateTopic, records: pa.Table, run_id: str) -> TopicRows:
        found = group_rows(records, cluster_id=topic.cluster_id, run_id=run_id)
        decoded = found.rows.num_rows - found.quarantined
        self._counts.update(decoded=decoded, quarantined=found.quarantined, other=found.other)
        return TopicRows(found.rows, found.other)

    def gauges(self) -> Sequence[Gauge]:
        """Records by what became of them, and offsets that the logs began behind."""
        records = [
            Gauge(
                name="acktrail_group_records",
                about="Records of __consumer_offsets that the task has read since its start.",
                value=self._counts[status],
                labels={"status": status},
            )
            for status in _STATUSES
        ]
        passed = Gauge(
            name="acktrail_group_records_passed_offsets",
            about="Offsets between a position and the start of its log.",
            value=self.passed_offsets,
        )
        return (*records, passed)


class ShareGroupMetadataSource(LogSource):
    """Exports the records of ``__consumer_offsets`` that are about share groups: members, epochs, assignments, and
    which share partitions have state. Needs READ and DESCRIBE on that topic, nothing else."""

    description = "Every record of __consumer_offsets about share groups: members, epochs, assignments."
    topic = "__consumer_offsets"
    partition_name = staticmethod(group_source_partition)

    def task(self, config: Config) -> MetadataTask:
        return MetadataTask(
            self._kafka,
            self.topic,
            bounded=self.config["bounded"],
            partitions=config.get(PARTITIONS),
            linger_s=self.linger_s,
        )
