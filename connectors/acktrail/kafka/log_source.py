"""What the connectors that read a topic's logs have in common: partitions, positions that are offsets, ends."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from acktrail.connect.config_def import Between, ConfigDef, ConfigKey
from acktrail.connect.config_values import ConfigType
from acktrail.connect.contract import Config, SourceConnector
from acktrail.connect.source_batches import Position, SourcePartition
from acktrail.errors import InputError
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.kafka_keys import KAFKA_KEYS, kafka_config
from acktrail.kafka.state.state_topic import StateTopic

PARTITIONS: Final = "partitions"
"""The key of a task's configuration: the partitions that it reads; without it: all."""
_MS: Final = 1_000
_FIELDS: Final = ("cluster_id", "topic_id", "partition")

LOG_KEYS: Final = KAFKA_KEYS.with_keys(
    ConfigDef(
        [
            ConfigKey(
                name="linger.ms",
                type=ConfigType.INT,
                default=1_000,
                validator=Between(least=0),
                documentation="How long records may wait for others when all that was there has been read. Longer "
                "costs less, and a row can be read so much later.",
                group="Reading",
            ),
            ConfigKey(
                name="bounded",
                type=ConfigType.BOOLEAN,
                default=False,
                documentation="End where the logs ended at the start, instead of following them.",
                group="Reading",
            ),
        ]
    )
)
"""How to reach the cluster, and how to read."""


class LogSource(SourceConnector):
    """Reads the partitions of `topic`. A source partition is a partition of one incarnation of it in one cluster, its
    position the offset to read next."""

    config_def: ClassVar[ConfigDef] = LOG_KEYS
    topic: ClassVar[str]

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._kafka = kafka_config(config)
        self._cluster_id: str | None = None
        self._topic_id = ""
        self._partition_count = 0

    @staticmethod
    @abstractmethod
    def partition_name(cluster_id: str, topic_id: str, partition: int) -> SourcePartition:
        """The permanent name of a source partition: kind, cluster, topic id and number, with slashes between."""

    def start(self) -> None:
        """Find the topic; a cluster without one is waited for."""
        with ShareGroupAdmin(self._kafka) as admin:
            self._cluster_id = admin.cluster_id
            topic = StateTopic(admin, self.topic)
            if topic.is_present:
                self._topic_id, self._partition_count = topic.topic_id, topic.partition_count

    @property
    def cluster_id(self) -> str | None:
        return self._cluster_id

    @property
    def linger_s(self) -> float:
        """How long a task's records may wait for others; a bounded task has no time to lose."""
        return 0.0 if self.config["bounded"] else float(self.config["linger.ms"]) / _MS

    def task_configs(self, most: int) -> Sequence[Config]:
        """Partitions dealt out in turn; one task for all where their number is not known yet."""
        tasks = max(1, min(most, self._partition_count))
        if tasks == 1:
            return [{}]
        return [{PARTITIONS: list(range(first, self._partition_count, tasks))} for first in range(tasks)]

    def source_partitions(self) -> Sequence[SourcePartition]:
        numbers = range(self._partition_count)
        return [self.partition_name(self._cluster_id or "", self._topic_id, number) for number in numbers]

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
        return self.partition_name(fields["cluster_id"], fields["topic_id"], fields["partition"])

    def check_position(self, source_partition: SourcePartition, position: Position) -> None:
        if not isinstance(position, int) or position < 0:
            raise InputError(f"the position of {source_partition} is an offset: a number of at least 0")
