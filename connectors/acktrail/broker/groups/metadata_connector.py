"""``ShareGroupMetadataSource``: what the group coordinator writes about share groups, as it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.broker.client.kafka_keys import KAFKA_KEYS, kafka_config
from acktrail.broker.groups.metadata_task import MetadataTask, group_source_partition
from acktrail.broker.state.state_topic import StateTopic
from acktrail.connect.config_def import Between, ConfigDef, ConfigKey
from acktrail.connect.config_values import ConfigType
from acktrail.connect.contract import Config, SourceConnector
from acktrail.connect.source_batches import Position, SourcePartition
from acktrail.errors import InputError

_MS: Final = 1_000
_FIELDS: Final = ("cluster_id", "topic_id", "partition")


class ShareGroupMetadataSource(SourceConnector):
    """Exports the records of ``__consumer_offsets`` that are about share groups: members, epochs, assignments, and
    which share partitions have state. Needs READ and DESCRIBE on that topic, nothing else."""

    description = "Every record of __consumer_offsets about share groups: members, epochs, assignments."
    topic: ClassVar[str] = "__consumer_offsets"
    config_def: ClassVar[ConfigDef] = KAFKA_KEYS.with_keys(
        ConfigDef(
            [
                ConfigKey(
                    name="linger.ms",
                    type=ConfigType.INT,
                    default=1_000,
                    validator=Between(least=0),
                    documentation="How long records may wait for others when all that was there has been read.",
                    group="Groups",
                ),
                ConfigKey(
                    name="bounded",
                    type=ConfigType.BOOLEAN,
                    default=False,
                    documentation="End where the logs ended at the start, instead of following them.",
                    group="Groups",
                ),
            ]
        )
    )

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._kafka = kafka_config(config)
        self._cluster_id: str | None = None
        self._topic_id = ""
        self._partition_count = 0

    def start(self) -> None:
        """Find the topic; a cluster without one never had a group, and is waited for."""
        with ShareGroupAdmin(self._kafka) as admin:
            self._cluster_id = admin.cluster_id
            topic = StateTopic(admin, self.topic)
            if topic.is_present:
                self._topic_id, self._partition_count = topic.topic_id, topic.partition_count

    @property
    def cluster_id(self) -> str | None:
        return self._cluster_id

    def task_configs(self, most: int) -> Sequence[Config]:
        """Partitions dealt out in turn; one task for all where their number is not known yet."""
        tasks = max(1, min(most, self._partition_count))
        if tasks == 1:
            return [{"partitions": None}]
        return [{"partitions": list(range(first, self._partition_count, tasks))} for first in range(tasks)]

    def task(self, config: Config) -> MetadataTask:
        is_bounded = self.config["bounded"]
        return MetadataTask(
            self._kafka,
            self.topic,
            bounded=is_bounded,
            partitions=config["partitions"],
            linger_s=0.0 if is_bounded else self.config["linger.ms"] / _MS,
        )

    def source_partitions(self) -> Sequence[SourcePartition]:
        return [
            group_source_partition(self._cluster_id or "", self._topic_id, number)
            for number in range(self._partition_count)
        ]

    def fields_of(self, source_partition: SourcePartition) -> Mapping[str, Any]:
        """Cluster, topic id and number."""
        _, cluster_id, topic_id, number = source_partition.split("/")
        return dict(zip(_FIELDS, (cluster_id, topic_id, int(number)), strict=True))

    def source_partition(self, fields: Mapping[str, Any]) -> SourcePartition:
        if set(fields) != set(_FIELDS) or not isinstance(fields["partition"], int):
            raise InputError(
                f"a source partition of {self.topic} has cluster_id, topic_id and the number partition",
                hint="take it from GET /connectors/NAME/offsets",
            )
        return group_source_partition(fields["cluster_id"], fields["topic_id"], fields["partition"])

    def check_position(self, source_partition: SourcePartition, position: Position) -> None:
        if not isinstance(position, int) or position < 0:
            raise InputError(f"the position of {source_partition} is an offset: a number of at least 0")
