"""Sources that read the logs of a topic, with positions that are offsets; and that of the state topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from acktrail.errors import InputError
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.log_reader import StateTopic
from acktrail.model.log_positions import Position, SourcePartition, log_partition, state_source_partition
from acktrail.model.share_partition import STATE_TOPIC
from acktrail_connect.address_keys import KAFKA_KEYS
from acktrail_connect.config_def import ConfigDef, keys_in
from acktrail_connect.contract import Config, SourceTask
from acktrail_connect.source_batches import LogEnds
from acktrail_connect.sources.cluster_sources import ClusterSource
from acktrail_connect.sources.log_task import LogTask
from acktrail_connect.sources.state_source import StateTask

_MS: Final = 1_000
_PARTITIONS: Final = "partitions"
"""The key of a task's configuration: the partitions that it reads; without it: all."""
_ADDRESS: Final = ("cluster_id", "topic_id", "partition")
LOG_KEYS: Final = KAFKA_KEYS.with_keys(keys_in(__package__, "log_keys.toml"))
"""How to reach the cluster, and how to read."""


class LogSource(ClusterSource):
    """Reads the partitions of `topic`. A source partition is a partition of one incarnation of it in one cluster, its
    position the offset to read next."""

    config_def: ClassVar[ConfigDef] = LOG_KEYS
    topic: ClassVar[str]
    reader: ClassVar[type[LogTask]]
    """The class of its tasks."""

    _topic_id = ""
    _partition_count = 0

    def start(self) -> None:
        """Find the topic. If the cluster does not have it yet, the source gets tasks once it is there."""
        with ShareGroupAdmin(self._kafka) as admin:
            self.cluster_id = admin.cluster_id
            topic = StateTopic(admin, self.topic)
            if topic.is_present:
                self._topic_id, self._partition_count = topic.topic_id, topic.partition_count

    @property
    def linger_s(self) -> float:
        """How long a task's records may wait for others; a bounded task has no time to lose."""
        return 0.0 if self.config["bounded"] else float(self.config["linger.ms"]) / _MS

    def task_configs(self, most: int) -> Sequence[Config]:
        """Partitions dealt out in turn; one task for all where their number is not known yet."""
        tasks = max(1, min(most, self._partition_count))
        if tasks == 1:
            return [{}]
        return [{_PARTITIONS: list(range(first, self._partition_count, tasks))} for first in range(tasks)]

    def task(self, config: Config) -> SourceTask:
        bounded, chosen = self.config["bounded"], config.get(_PARTITIONS)
        return self.reader(self._kafka, self.topic, bounded=bounded, partitions=chosen, linger_s=self.linger_s)

    def source_partitions(self) -> Sequence[SourcePartition]:
        kind, cluster_id = self.reader.kind, self.cluster_id or ""
        return [log_partition(kind, cluster_id, self._topic_id, number) for number in range(self._partition_count)]

    def fields_of(self, source_partition: SourcePartition) -> Mapping[str, Any]:
        """Cluster, topic id and number."""
        _, cluster_id, topic_id, number = source_partition.split("/")
        return dict(zip(_ADDRESS, (cluster_id, topic_id, int(number)), strict=True))

    def source_partition(self, fields: Mapping[str, Any]) -> SourcePartition:
        if set(fields) != set(_ADDRESS) or not isinstance(fields["partition"], int):
            raise InputError(
                f"a source partition of {self.topic} must have cluster_id, topic_id and the number partition",
                hint="take it from GET /connectors/NAME/offsets",
            )
        return log_partition(self.reader.kind, fields["cluster_id"], fields["topic_id"], fields["partition"])

    def check_position(self, source_partition: SourcePartition, position: Position) -> None:
        if not isinstance(position, int) or position < 0:
            raise InputError(f"the position of {source_partition} must be an offset: a number of at least 0")


class ShareGroupStateSource(LogSource):
    """Exports every record of ``__share_group_state``: decoded, with its raw bytes, every gap recorded."""

    description = "Every record of __share_group_state, decoded, and every gap."
    reads_logs = True
    topic = STATE_TOPIC
    reader = StateTask

    def ends(self) -> Mapping[SourcePartition, LogEnds]:
        """The logs' starts and high watermarks, and the epochs of their leaders."""
        with ShareGroupAdmin(self._kafka) as admin:
            topic = StateTopic(admin)
            logs = topic.log_offsets() if topic.is_present else {}
            return {
                state_source_partition(topic.cluster_id, topic.topic_id, number): LogEnds(
                    log.log_start_offset or 0, log.high_watermark or 0, log.leader_epoch
                )
                for number, log in logs.items()
            }

    def check_position(self, source_partition: SourcePartition, position: Position) -> None:
        """A position lies at or before the end of the log as it is now: a log that ends before it is another one."""
        super().check_position(source_partition, position)
        assert isinstance(position, int)
        number = int(source_partition.rpartition("/")[2])
        with ShareGroupAdmin(self._kafka) as admin:
            now = StateTopic(admin).log_offsets().get(number)
        end = None if now is None else now.high_watermark
        if end is None or position > end:
            raise InputError(
                f"{position} is after the end of {source_partition} ({'unknown' if end is None else end})",
                hint="give an offset up to the log's end",
            )
