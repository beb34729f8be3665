"""The positions of connectors as records of one compacted topic, as Kafka Connect keeps its own
(``offset.storage.topic``).

The key is the JSON array of connector and source partition, the value the position as JSON. Only committed records
count, and they count once the log is read to its end, not to its last stable offset: below an open transaction of
another connector lies what is still to be seen.
"""

from __future__ import annotations

import json
from typing import Final

from acktrail.config import KafkaConfig
from acktrail.connect.source_batches import Position, SourcePartition
from acktrail.errors import ConfigurationError, RetryableError
from acktrail.format.wire.raw_record import RawRecord
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.log_reader import LogReader, PrunedOffsets, raw_records
from acktrail.kafka.state.state_topic import StateTopic
from acktrail_plugins.topic.transactional_writer import OutRecord

_PARTITION: Final = "partition"


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
