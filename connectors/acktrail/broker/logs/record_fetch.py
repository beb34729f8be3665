"""Single records of a topic's partitions, by offset."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Final

from confluent_kafka import KafkaError

from acktrail.broker.client.librdkafka import AT_THE_END, PRUNED, LogReader, raw_record, read_failure
from acktrail.config import KafkaConfig
from acktrail.wire.raw_record import RawRecord

_ONE_BATCH: Final = {"max.partition.fetch.bytes": 1, "queued.min.messages": 1}
"""A broker always gives at least one batch: no more of a log is fetched than that."""


class RecordReader(LogReader):
    """Reads records of `topic` one at a time. Use it as a context manager; one thread."""

    def __init__(self, config: KafkaConfig, topic: str) -> None:
        super().__init__(config, topic, group_id="acktrail-export", timeout_s=30.0, changes=_ONE_BATCH)

    def records_at(self, offsets: Mapping[int, int]) -> dict[int, RawRecord | None]:
        """The record at one offset of each partition; None: there is no record at that offset.

        Raises:
            NotAuthorized, ConfigurationError: the topic may not be read.
            RetryableError: nothing came in time.
        """
        records: dict[int, RawRecord | None] = {}
        with closing(self.messages(offsets)) as messages:
            while len(records) < len(offsets):
                message = next(messages)
                partition, error = message.partition(), message.error()
                if partition not in offsets or partition in records:
                    continue
                if error is None:
                    records[partition] = raw_record(message) if message.offset() == offsets[partition] else None
                elif error.code() == AT_THE_END or error.code() in PRUNED:
                    records[partition] = None
                elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                    raise read_failure(self._topic, error)
        return records
