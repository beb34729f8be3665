"""``ShareGroupStateSource``: the records of the state topic, as they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.broker.client.kafka_keys import KAFKA_KEYS, kafka_config
from acktrail.broker.state.state_source import StateTask
from acktrail.broker.state.state_topic import StateTopic
from acktrail.connect.config_def import Between, ConfigDef, ConfigKey
from acktrail.connect.config_values import ConfigType
from acktrail.connect.contract import Config, SourceConnector
from acktrail.connect.source_batches import Position, SourcePartition, state_source_partition
from acktrail.errors import InputError
from acktrail.model.share_partition import STATE_TOPIC

_MS: Final = 1_000
_FIELDS: Final = ("cluster_id", "topic_id", "partition")


class ShareGroupStateSource(SourceConnector):
    """Exports every record of ``__share_group_state``: decoded, with its raw bytes, every gap recorded."""

    description = "Every record of __share_group_state, decoded, every gap recorded."
    reads_logs = True
    config_def: ClassVar[ConfigDef] = KAFKA_KEYS.with_keys(
        ConfigDef(
            [
                ConfigKey(
                    name="linger.ms",
                    type=ConfigType.INT,
                    default=1_000,
                    validator=Between(least=0),
                    documentation="How long records may wait for others when all that was there has been read. Longer "
                    "costs less, and a row can be read so much later.",
                    group="State",
                ),
                ConfigKey(
                    name="bounded",
                    type=ConfigType.BOOLEAN,
                    default=False,
                    documentation="End where the logs ended at the start, instead of following them.",
                    group="State",
                ),
            ]
        )
    )

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._kafka = kafka_config(config)
        self._cluster_id: str | None = None
        self._topic_id: str | None = None
        self._partition_count = 0

    def start(self) -> None:
        """Find the state topic; a cluster without one is waited for."""
        with ShareGroupAdmin(self._kafka) as admin:
            self._cluster_id = admin.cluster_id
            topic = StateTopic(admin)
            if topic.is_present:
                self._topic_id, self._partition_count = topic.topic_id, topic.partition_count

    @property
    def cluster_id(self) -> str | None:
        return self._cluster_id

    def task_configs(self, most: int) -> Sequence[Config]:
        """State partitions dealt out in turn; one task for all where their number is not known yet."""
        tasks = max(1, min(most, self._partition_count))
        if tasks == 1:
            return [{"state.partitions": None}]
        return [{"state.partitions": list(range(first, self._partition_count, tasks))} for first in range(tasks)]

    def task(self, config: Config) -> StateTask:
        return StateTask(
            self._kafka,
            bounded=self.config["bounded"],
            partitions=config["state.partitions"],
            linger_s=0.0 if self.config["bounded"] else self.config["linger.ms"] / _MS,
        )

    def source_partitions(self) -> Sequence[SourcePartition]:
        numbers = range(self._partition_count)
        return [state_source_partition(self._cluster_id or "", self._topic_id, number) for number in numbers]

    def ends(self) -> Mapping[SourcePartition, tuple[int, int]]:
        """The logs' starts and high watermarks. Offsets of a log that Kafka replaced differ from those of the tables:
        its lag is a lower bound until then."""
        with ShareGroupAdmin(self._kafka) as admin:
            topic = StateTopic(admin)
            logs = topic.log_offsets() if topic.is_present else {}
            return {
                state_source_partition(topic.cluster_id, topic.topic_id, number): (
                    log.log_start_offset or 0,
                    log.high_watermark or 0,
                )
                for number, log in logs.items()
            }

    def fields_of(self, source_partition: SourcePartition) -> Mapping[str, Any]:
        """Cluster, topic id and number."""
        _, cluster_id, topic_id, number = source_partition.split("/")
        return dict(zip(_FIELDS, (cluster_id, topic_id, int(number)), strict=True))

    def source_partition(self, fields: Mapping[str, Any]) -> SourcePartition:
        if set(fields) != set(_FIELDS) or not isinstance(fields["partition"], int):
            raise InputError(
                f"a source partition of {STATE_TOPIC} has cluster_id, topic_id and the number partition",
                hint="take it from GET /connectors/NAME/offsets",
            )
        return state_source_partition(fields["cluster_id"], fields["topic_id"], fields["partition"])

    def check_position(self, source_partition: SourcePartition, position: Position) -> None:
        if not isinstance(position, int) or position < 0:
            raise InputError(f"the position of {source_partition} is an offset: a number of at least 0")
        number = int(source_partition.rpartition("/")[2])
        with ShareGroupAdmin(self._kafka) as admin:
            now = StateTopic(admin).log_offsets().get(number)
        end = None if now is None else now.high_watermark
        if end is None or position > end:  # a log that ends before the position counts as another log
            raise InputError(
                f"{position} lies behind the end of {source_partition} ({'unknown' if end is None else end})",
                hint="name an offset up to the log's end",
            )
