"""Topics that rows and positions are written to: made where that is configured, and looked at before they are used.

The positions of connectors are records of one compacted topic, as Kafka Connect keeps its own
(``offset.storage.topic``). The key is the JSON array of connector and source partition, the value the position as JSON.
Only committed records count, and they count once the log is read to its end, not to its last stable offset: below an
open transaction of another connector lies what is still to be seen.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import RESOURCE_TOPIC, AdminClient, ConfigResource, NewTopic

from acktrail.config import KafkaConfig
from acktrail.connect.source_batches import Position, SourcePartition
from acktrail.errors import ConfigurationError, RetryableError, RowsRefused
from acktrail.format.wire.raw_record import RawRecord
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail.kafka.client.error_codes import UNKNOWN_TOPIC_OR_PARTITION, error_for
from acktrail.kafka.log_reader import LogReader, PrunedOffsets, StateTopic, raw_records
from acktrail_plugins.topic.transactional_writer import OutRecord

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_WAIT_S: Final = 0.1
_COMPACTED: Final = {"cleanup.policy": "compact"}
_PARTITION: Final = "partition"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreation:
    """How a missing topic is made. `partitions` None: it is not. `replication_factor` -1: the brokers' default."""

    partitions: int | None = None
    replication_factor: int = -1


def check_topic_name(name: str) -> None:
    """Pass for a name that Kafka takes. Raises RowsRefused."""
    if not _NAME.fullmatch(name) or name in {".", ".."}:
        raise RowsRefused(
            f"{name[:249]!r} cannot be the name of a topic",
            hint="letters, digits, '.', '_' and '-', at most 249; rename the table with the transform Route",
        )


class TargetTopics:
    """The topics of one cluster. Raises NotAuthorized, ConfigurationError, RetryableError."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._client = AdminClient({**to_librdkafka(config), "log_level": 2})

    def ready(self, name: str, creation: TopicCreation) -> int:
        """The most bytes that a batch of records of the topic may have. Makes the topic where it is missing."""
        return int(self._configs(name, creation, {})["max.message.bytes"])

    def ready_for_positions(self, name: str, replication_factor: int) -> None:
        """Make a compacted topic, or see that the one that is there is compacted and nothing else: positions must not
        be deleted because they are old."""
        creation = TopicCreation(partitions=1, replication_factor=replication_factor)
        policy = self._configs(name, creation, _COMPACTED)["cleanup.policy"]
        if policy != _COMPACTED["cleanup.policy"]:
            raise ConfigurationError(
                f"the topic {name} has cleanup.policy={policy}: positions would be deleted, and rows doubled",
                hint="set cleanup.policy=compact, or name another positions.topic",
                data={"topic": name, "cleanup.policy": policy},
            )

    def _configs(self, name: str, creation: TopicCreation, own: Mapping[str, str]) -> dict[str, str]:
        with ShareGroupAdmin(self._config) as admin:
            (described,) = admin.topics([name])
        if described.error_code == UNKNOWN_TOPIC_OR_PARTITION:
            self._create(name, creation, own)
        elif described.error_code:
            raise error_for(described.error_code, None, operation="DESCRIBE", kind="topic", name=name)
        return self._described(name)

    def _create(self, name: str, creation: TopicCreation, own: Mapping[str, str]) -> None:
        if creation.partitions is None:
            raise ConfigurationError(
                f"there is no topic {name}", hint="create it, or set topics.partitions", data={"topic": name}
            )
        new = NewTopic(name, creation.partitions, creation.replication_factor, config=dict(own))
        try:
            self._result(self._client.create_topics([new], request_timeout=self._timeout_s))
        except KafkaException as error:
            code = error.args[0].code()
            if code != KafkaError.TOPIC_ALREADY_EXISTS:  # another writer was first
                raise self._failed(error, "CREATE", name) from None

    def _described(self, name: str) -> dict[str, str]:
        """A broker learns of a new topic a little later than the controller that made it."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            resource = ConfigResource(RESOURCE_TOPIC, name)
            try:
                found = self._result(self._client.describe_configs([resource], request_timeout=self._timeout_s))
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART or time.monotonic() > deadline:
                    raise self._failed(error, "DESCRIBE_CONFIGS", name) from None
                time.sleep(_WAIT_S)
            else:
                return {key: entry.value for key, entry in found.items()}

    def _result(self, answers: Mapping[Any, Any]) -> Any:
        (answer,) = answers.values()
        return answer.result(timeout=self._timeout_s + 1)

    @property
    def _timeout_s(self) -> float:
        return self._config.request_timeout_ms / 1_000

    @staticmethod
    def _failed(error: KafkaException, operation: str, name: str) -> Exception:
        inner = error.args[0]
        if inner.code() < 0:
            return RetryableError(f"the topic {name} cannot be asked for: {inner.name()}", hint="try again")
        return error_for(inner.code(), inner.str(), operation=operation, kind="topic", name=name)


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
                for part in LogReader(topic, patience_s=patience_s).read(ends):
                    for record in () if isinstance(part, PrunedOffsets) else raw_records(part):
                        self._take(record, found)
            except RetryableError:
                raise HeldUp(
                    f"{self._topic} has an open transaction, or does not answer",
                    hint="a writer that died keeps it open for a minute",
                ) from None
        return {each: position for each, (_, position) in found.items() if position is not None}

    def _take(self, record: RawRecord, found: dict[SourcePartition, tuple[int, Position | None]]) -> None:
        source_partition = self._own(record.key)
        if source_partition is None:
            return
        partition, _ = found.get(source_partition, (record.state_partition, None))
        if partition != record.state_partition:
            raise ConfigurationError(
                f"{self._topic} has positions of {source_partition} in two partitions: which is newer is not known",
                hint="partitions were added: copy the topic into one of a constant number",
                data={"topic": self._topic, "source_partition": str(source_partition)},
            )
        found[source_partition] = partition, self._value(record)

    def _own(self, key: bytes | None) -> SourcePartition | None:
        """The source partition of this connector that a key names."""
        try:
            fields = json.loads(key or b"")
        except ValueError:
            return None
        is_own = isinstance(fields, list) and len(fields) == 2 and fields[0] == self._connector
        name = fields[1].get(_PARTITION) if is_own and isinstance(fields[1], dict) else None
        return SourcePartition(name) if isinstance(name, str) else None

    def _value(self, record: RawRecord) -> Position | None:
        if record.value is None:
            return None
        try:
            position = json.loads(record.value)
        except ValueError:
            position = None
        if not isinstance(position, int | dict) or isinstance(position, bool):
            raise ConfigurationError(
                f"{self._topic}, partition {record.state_partition}, offset {record.offset}: that is no position",
                hint="write a number, an object of JSON or a tombstone with the same key",
            )
        return position
