"""Single records of a topic's partitions, by offset."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaError, TopicPartition

from acktrail.broker.client.librdkafka import AT_THE_END, PRUNED, REFUSED, new_log_consumer, read_failure
from acktrail.config import KafkaConfig
from acktrail.errors import RetryableError
from acktrail.wire.raw_record import RawRecord

__all__ = ["LogRecords"]

_GROUP_ID: Final = "acktrail-export"
_AT_ONCE: Final = 100
_SLICE_S: Final = 0.02
_PATIENCE_S: Final = 30.0
_SMALL: Final = {"max.partition.fetch.bytes": 1, "queued.min.messages": 1}
"""A broker always gives at least one batch: no more of a log is fetched than that."""


class LogRecords:
    """Reads records of `topic` one at a time. Use it as a context manager; one thread.

    Raises (``at``):
        NotAuthorized, ConfigurationError: the topic may not be read.
        RetryableError: the log does not come.
    """

    def __init__(self, config: KafkaConfig, topic: str) -> None:
        self._topic = topic
        self._failure: Any = None
        self._consumer: Consumer = new_log_consumer(config, _GROUP_ID, self._note, _SMALL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def at(self, places: Mapping[int, int]) -> dict[int, RawRecord | None]:
        """The record at one offset of each partition; None: there is no record at that offset."""
        found: dict[int, RawRecord | None] = {}
        self._consumer.assign([TopicPartition(self._topic, partition, at) for partition, at in places.items()])
        deadline = time.monotonic() + _PATIENCE_S
        try:
            while len(found) < len(places):
                for message in self._some(deadline):
                    self._take(message, places, found)
        finally:
            self._consumer.unassign()
        return found

    def _some(self, deadline: float) -> list[Any]:
        messages = self._consumer.consume(_AT_ONCE, _SLICE_S)
        if self._failure is not None:
            raise read_failure(self._topic, self._failure)
        if not messages and time.monotonic() > deadline:
            raise RetryableError(f"{self._topic} does not answer", hint="do its partitions have leaders?")
        return messages

    def _take(self, message: Any, places: Mapping[int, int], found: dict[int, RawRecord | None]) -> None:
        partition, error = message.partition(), message.error()
        if partition not in places or partition in found:
            return
        if error is None:
            found[partition] = _record(message) if message.offset() == places[partition] else None
        elif error.code() == AT_THE_END or error.code() in PRUNED:
            found[partition] = None
        elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise read_failure(self._topic, error)

    def _note(self, error: Any) -> None:
        """librdkafka's errors about no partition: it keeps trying, except where that cannot help."""
        if error.code() in REFUSED or error.fatal():
            self._failure = error


def _record(message: Any) -> RawRecord:
    return RawRecord(
        state_partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
    )
