"""``DeadLetterSource``: what brokers write of the records that share groups gave up (KIP-1191)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from acktrail.connect.config_def import Between, ConfigDef, ConfigKey
from acktrail.connect.config_values import ConfigType
from acktrail.connect.contract import Config
from acktrail.connect.source_batches import SourcePartition
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.groups.dead_letter_task import DeadLetterTask, dead_letter_source_partition
from acktrail.kafka.log_source import LOG_KEYS, LogSource
from acktrail.model.share_dead_letters import TOPIC_OF_GROUP

_MS: Final = 1_000


class DeadLetterSource(LogSource):
    """Exports the records of the dead-letter topics of share groups. Needs READ and DESCRIBE on them; to find them,
    DESCRIBE and DESCRIBE_CONFIGS on the groups."""

    description = "Every record of the dead-letter topics of share groups, its headers decoded (Kafka 4.4)."
    topic = "a dead-letter topic"
    partition_name = staticmethod(dead_letter_source_partition)
    config_def: ClassVar[ConfigDef] = LOG_KEYS.with_keys(
        ConfigDef(
            [
                ConfigKey(
                    name="topics",
                    type=ConfigType.LIST,
                    default=None,
                    documentation=f"The dead-letter topics. None named: those that the share groups of the cluster "
                    f"name ({TOPIC_OF_GROUP}).",
                    group="Reading",
                ),
                ConfigKey(
                    name="topics.refresh.interval.ms",
                    type=ConfigType.LONG,
                    default=60_000,
                    validator=Between(least=1),
                    documentation="How often the groups are asked for dead-letter topics that are new.",
                    group="Reading",
                ),
            ]
        )
    )

    def start(self) -> None:
        """Ask for the cluster's id. Topics are found by the task: there may be new ones at any time."""
        with ShareGroupAdmin(self._kafka) as admin:
            self._cluster_id = admin.cluster_id

    def task_configs(self, most: int) -> Sequence[Config]:  # noqa: ARG002  # who finds the topics is one task
        return [{}]

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
