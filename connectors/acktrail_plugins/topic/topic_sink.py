"""``KafkaTopicSink`` as a person configures it: JSON records in topics that others consume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from acktrail.connect.config_def import ConfigDef, keys_in
from acktrail.connect.contract import Config, SinkConnector, SinkTaskContext
from acktrail.connect.source_batches import Position, SourcePartition
from acktrail.errors import InvalidConfiguration, RowsRefused
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.source_connectors import KAFKA_KEYS, kafka_config
from acktrail_plugins.topic.target_topics import TargetTopics, TopicCreation, TopicPositions, check_topic_name
from acktrail_plugins.topic.topic_sink_task import LONG_S, TopicSinkTask, TopicTarget

_LOOK_S: Final = 15.0
_TOPIC, _PREFIX, _POSITIONS = "topic", "topic.prefix", "positions.topic"
_PARTITIONS, _REPLICATION = "topics.partitions", "topics.replication.factor"

TOPIC_KEYS: Final = KAFKA_KEYS.with_keys(keys_in(__package__, "topic_keys.toml"))


class KafkaTopicSink(SinkConnector):
    """Writes JSON records, rows and positions in one transaction."""

    description = "JSON records in topics that others consume, exactly once."
    config_def: ClassVar[ConfigDef] = TOPIC_KEYS

    def __init__(self, config: Config) -> None:
        """Raises InvalidConfiguration: topic and topic.prefix, or none of them; a name that Kafka does not take."""
        super().__init__(config)
        topic, prefix = config[_TOPIC], config[_PREFIX]
        if (topic is None) == (prefix is None):
            raise InvalidConfiguration({_TOPIC: (f"give one of {_TOPIC} and {_PREFIX}",)})
        for key, name in ((_TOPIC, topic), (_PREFIX, prefix and f"{prefix}t"), (_POSITIONS, config[_POSITIONS])):
            try:
                check_topic_name(name or "t")
            except RowsRefused as error:
                raise InvalidConfiguration({key: (error.message,)}, hint=error.hint) from error
        if topic == config[_POSITIONS]:
            raise InvalidConfiguration({_TOPIC: (f"{_POSITIONS} must be another topic",)})
        self._target = TopicTarget(
            config=kafka_config(config),
            topic=topic,
            prefix=prefix or "",
            key_columns=tuple(config["key.columns"]),
            positions_topic=config[_POSITIONS],
            creation=TopicCreation(partitions=config[_PARTITIONS], replication_factor=config[_REPLICATION]),
        )

    def start(self) -> None:
        """Reach the cluster: an address or a login that is wrong is one error here."""
        with ShareGroupAdmin(self._target.config):
            pass

    def task(self, context: SinkTaskContext) -> TopicSinkTask:
        return TopicSinkTask(self._target, context)

    def positions(
        self,
        connector: str,
        source_partitions: Sequence[SourcePartition],  # noqa: ARG002  # all that the topic has
    ) -> Mapping[SourcePartition, Position]:
        """Those of `connector`."""
        return self._positions(connector).read(_LOOK_S)

    def alter_positions(self, connector: str, positions: Mapping[SourcePartition, Position | None]) -> None:
        """One transaction for all. Rows between a position and one before it are written again; those that are skipped
        are not."""
        if not positions:
            return
        TargetTopics(self._target.config).ready_for_positions(
            self._target.positions_topic, self._target.creation.replication_factor
        )
        own = self._positions(connector)
        writers = [self._target.writer(connector, each, 1_000_000) for each in positions]
        try:
            for writer in writers:
                writer.fence()
            writers[0].write([own.record(each, position) for each, position in positions.items()])
            own.read(LONG_S)  # from now on every reader sees them
        finally:
            for writer in writers:
                writer.close()

    def _positions(self, connector: str) -> TopicPositions:
        return TopicPositions(self._target.config, self._target.positions_topic, connector)
