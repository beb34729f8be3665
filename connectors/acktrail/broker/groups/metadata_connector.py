"""``ShareGroupMetadataSource``: what the group coordinator writes about share groups, as it is written."""

from __future__ import annotations

from acktrail.broker.groups.metadata_task import MetadataTask, group_source_partition
from acktrail.broker.log_source import PARTITIONS, LogSource
from acktrail.connect.contract import Config


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
