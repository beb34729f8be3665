"""``ShareGroupMetadataSource``: what the group coordinator writes about share groups, as it is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import pyarrow as pa

from acktrail.connect.contract import Config, Gauge
from acktrail.connect.source_batches import SourcePartition
from acktrail.kafka.groups.group_rows import group_rows
from acktrail.kafka.log_source import PARTITIONS, LogSource
from acktrail.kafka.state.state_topic import StateTopic
from acktrail.kafka.topic_task import TopicRows, TopicTask

_STATUSES: Final = ("decoded", "quarantined", "other")


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
