"""Topics that rows and positions are written to, made where that is configured, and looked at before they are used; and
the positions in one topic.

The positions of connectors are records of one compacted topic, as Kafka Connect keeps its own
(``offset.storage.topic``). The key is the JSON array of connector and source partition, the value the position as JSON.
Only committed records count, and they count once the log is read to its end, not to its last stable offset: below an
open transaction of another connector lies what is still to be seen.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import RESOURCE_TOPIC, AdminClient, ConfigResource, NewTopic

from acktrail.config import KafkaConfig
from acktrail.errors import (
    ConfigurationError,
    RetryableError,
    RowsRefused,
)
from acktrail.format.wire.raw_record import RawRecord
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail.kafka.client.error_codes import librdkafka_error
from acktrail.kafka.log_reader import LogReader, StateTopic
from acktrail.model.log_positions import Position, SourcePartition
from acktrail.text_parsing import parse_json
from acktrail_connect.sinks.transactional_writer import OutRecord

_LOG: Final = logging.getLogger("librdkafka")
_LOG.addHandler(logging.NullHandler())  # each call raises what matters to it
_WAIT_S: Final = 0.1
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_COMPACTED: Final = {"cleanup.policy": "compact"}
_PARTITION: Final = "partition"


def check_topic_name(name: str) -> None:
    """Pass for a name that Kafka takes. Raises RowsRefused."""
    if not _TOPIC_NAME.fullmatch(name) or name in {".", ".."}:
        raise RowsRefused(
            f"{name[:249]!r} cannot be the name of a topic",
            hint="letters, digits, '.', '_' and '-', at most 249; rename the table with the transform Route",
        )


class TargetTopics:
    """The topics of one cluster. Raises NotAuthorized, ConfigurationError, RetryableError."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._client = AdminClient({**to_librdkafka(config), "log_level": 2})

    def ready(self, name: str, partitions: int | None, replication_factor: int) -> int:
        """The most bytes that a batch of records of the topic may have. Makes the topic where it is missing, unless
        `partitions` is None. `replication_factor` -1: the brokers' default."""
        return int(self._configs(name, partitions, replication_factor, {})["max.message.bytes"])

    def ready_for_positions(self, name: str, replication_factor: int) -> None:
        """Make a compacted topic, or see that the one that is there is compacted and nothing else: positions must not
        be deleted because they are old."""
        policy = self._configs(name, 1, replication_factor, _COMPACTED)["cleanup.policy"]
        if policy != _COMPACTED["cleanup.policy"]:
            raise ConfigurationError(
                f"the topic {name} has cleanup.policy={policy}: positions would be deleted, and rows doubled",
                hint="set cleanup.policy=compact, or use another positions.topic",
                data={"topic": name, "cleanup.policy": policy},
            )

    def _configs(
        self, name: str, partitions: int | None, replication_factor: int, own: Mapping[str, str]
    ) -> dict[str, str]:
        """Of a topic, which is made where it is missing. A broker learns of a new one a little later than the
        controller that made it."""
        resource, is_made = ConfigResource(RESOURCE_TOPIC, name), False
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                found = self._result(self._client.describe_configs([resource], request_timeout=self._timeout_s))
                return {key: entry.value for key, entry in found.items()}
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART or time.monotonic() > deadline:
                    raise librdkafka_error(
                        error.args[0], operation="DESCRIBE_CONFIGS", kind="topic", name=name
                    ) from None
            if is_made:
                time.sleep(_WAIT_S)
            else:
                self._create(name, partitions, replication_factor, own)
                is_made = True

    def _create(self, name: str, partitions: int | None, replication_factor: int, own: Mapping[str, str]) -> None:
        if partitions is None:
            raise ConfigurationError(
                f"there is no topic {name}", hint="create it, or set topics.partitions", data={"topic": name}
            )
        new = NewTopic(name, partitions, replication_factor, config=dict(own))
        try:
            self._result(self._client.create_topics([new], request_timeout=self._timeout_s))
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another writer was first
                raise librdkafka_error(error.args[0], operation="CREATE", kind="topic", name=name) from None

    def _result(self, answers: Mapping[Any, Any]) -> Any:
        (answer,) = answers.values()
        return answer.result(timeout=self._timeout_s + 1)

    @property
    def _timeout_s(self) -> float:
        return self._config.request_timeout_ms / 1_000


class HeldUp(RetryableError):
    """An open transaction hides what lies behind it in the topic of positions."""


class TopicPositions:
    """The positions of `connector` in `topic`. Each call reads the whole topic: it is compacted."""

    def __init__(self, config: KafkaConfig, topic: str, connector: str) -> None:
        self._config, self._topic, self._connector = config, topic, connector

    def record(self, source_partition: SourcePartition, position: Position | None) -> OutRecord:
        """The record that sets a position; None: that removes it."""
        key = json.dumps([self._connector, {_PARTITION: source_partition}], separators=(",", ":"))
        value = None if position is None else json.dumps(position, separators=(",", ":")).encode()
        return OutRecord(self._topic, key.encode(), value)

    def read(self, patience_s: float) -> dict[SourcePartition, Position]:
        """All committed positions; none where there is no such topic. Raises HeldUp when a transaction stays open for
        `patience_s`, NotAuthorized (READ), RetryableError."""
        found: dict[SourcePartition, tuple[int, Position | None]] = {}
        with ShareGroupAdmin(self._config) as admin:
            topic = StateTopic(admin, self._topic)
            if not topic.is_present:
                return {}
            logs = topic.log_offsets().items()
            ends = {number: (log.log_start_offset or 0, log.high_watermark or 0) for number, log in logs}
            try:
                for record in LogReader(topic, patience_s=patience_s).records(ends):
                    self._take(record, found)
            except RetryableError:
                raise HeldUp(
                    f"{self._topic} has an open transaction, or the cluster does not answer",
                    hint="the transaction of a writer that died stays open for a minute; then try again",
                ) from None
        return {each: position for each, (_, position) in found.items() if position is not None}

    def _take(self, record: RawRecord, found: dict[SourcePartition, tuple[int, Position | None]]) -> None:
        source_partition = self._own(record.key)
        if source_partition is None:
            return
        partition, _ = found.get(source_partition, (record.state_partition, None))
        if partition != record.state_partition:
            raise ConfigurationError(
                f"{self._topic} has positions of {source_partition} in two partitions, and nothing shows which is "
                f"newer",
                hint="partitions were added to it: copy it into a topic with a fixed number of partitions",
                data={"topic": self._topic, "source_partition": str(source_partition)},
            )
        found[source_partition] = partition, self._value(record)

    def _own(self, key: bytes | None) -> SourcePartition | None:
        """The source partition of this connector that a key names."""
        try:
            fields = parse_json(key or b"")
        except ValueError:
            return None
        is_own = isinstance(fields, list) and len(fields) == 2 and fields[0] == self._connector
        name = fields[1].get(_PARTITION) if is_own and isinstance(fields[1], dict) else None
        return SourcePartition(name) if isinstance(name, str) else None

    def _value(self, record: RawRecord) -> Position | None:
        if record.value is None:
            return None
        try:
            position = parse_json(record.value)
        except ValueError:
            position = None
        if not isinstance(position, int | dict) or isinstance(position, bool):
            raise ConfigurationError(
                f"{self._topic}, partition {record.state_partition}, offset {record.offset}: this is not a position",
                hint="write a number, a JSON object or a tombstone with the same key",
            )
        return position
