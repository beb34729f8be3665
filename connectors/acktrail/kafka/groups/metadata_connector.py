"""``ShareGroupMetadataSource``: what the group coordinator writes about share groups, as it is written. Records of
``__consumer_offsets`` become rows of ``group_records``; what is not about share groups is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.connect.contract import Gauge
from acktrail.format.columns.schemas.table_schemas import GROUP_RECORDS
from acktrail.format.wire.group_record import OTHER_TYPES, decode
from acktrail.format.wire.primitives import INT16
from acktrail.format.wire.raw_record import DecodeStatus, decode_with
from acktrail.kafka.log_reader import StateTopic, raw_records
from acktrail.kafka.log_task import TopicTask, record_gauges
from acktrail.kafka.source_connectors import LogSource
from acktrail.model.group_records import GroupRecordType, ShareGroupRecord, ShareGroupTombstone

_OTHERS: Final = pa.array([INT16.pack(number) for number in sorted(OTHER_TYPES)], pa.binary())
_COLUMNS: Final = {
    "assignment_epoch": "epoch",
    "member_epoch": "epoch",
    "previous_member_epoch": "previous_epoch",
    "state": "member_state",
}
"""Fields whose column has another name."""


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


class MetadataTask(TopicTask):
    """Rows of ``group_records``; records about other things than share groups are left out. Keys of types that Kafka
    4.4 does not have are kept, not decoded: they may be about share groups. What an unclean election took back stays
    in the tables. Records read = decoded + quarantined + other."""

    kind, table = "groups", "group_records"
    statuses = ("decoded", "quarantined", "other")

    def rows(self, topic: StateTopic, records: pa.Table, run_id: str) -> pa.Table:
        is_other = pc.is_in(pc.binary_slice(records.column("key"), 0, INT16.size), value_set=_OTHERS)
        own = records.filter(pc.invert(is_other))
        rows = [{"cluster_id": topic.cluster_id, "run_id": run_id, **row} for row in _rows(own)]
        decoded = sum(row["decode_status"] == DecodeStatus.DECODED for row in rows)
        self.counts.update(decoded=decoded, quarantined=len(rows) - decoded, other=records.num_rows - len(rows))
        return pa.Table.from_pylist(rows, schema=GROUP_RECORDS)

    def gauges(self) -> Sequence[Gauge]:
        return record_gauges("acktrail_group_records", self._name, self.counts, self.passed_offsets)


class ShareGroupMetadataSource(LogSource):
    """Exports the records of ``__consumer_offsets`` that are about share groups: members, epochs, assignments, and
    which share partitions have state. Needs READ and DESCRIBE on that topic, nothing else."""

    description = "Every record of __consumer_offsets about share groups: members, epochs, assignments."
    topic = "__consumer_offsets"
    reader = MetadataTask
