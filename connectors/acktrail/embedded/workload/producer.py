"""Writes the records of the demo workload, and makes sure that they are where the plan has them."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from acktrail.config import KafkaConfig
from acktrail.embedded.workload.demo_cluster import client_properties, to_acktrail_error
from acktrail.embedded.workload.scenario import DemoRecord
from acktrail.embedded.workload.workload_deadline import WorkloadDeadline, WorkloadUnfinished
from acktrail.errors import ConfigurationError

# Full batches of fifty at any pace of this machine: they decide which records consumers get together.
_BATCHES: Final = {"linger.ms": 5_000, "batch.num.messages": 50, "enable.idempotence": True}


class DemoProducer:
    """An idempotent producer. Threads take turns."""

    def __init__(self, config: KafkaConfig, deadline: WorkloadDeadline) -> None:
        self._deadline = deadline
        self._lock = threading.Lock()
        self._producer = Producer({**client_properties(config), **_BATCHES})
        self._failure: KafkaException | ConfigurationError | None = None
        self.written = 0

    def write(self, topic: str, records: Iterable[DemoRecord]) -> None:
        """Write `records` to `topic` and wait until the broker has them.

        Raises:
            ConfigurationError: when a record got another offset: the topic has another producer.
            WorkloadUnfinished: when the deadline has passed.
        """
        with self._lock:
            for record in records:
                self._producer.produce(
                    topic,
                    key=record.key,
                    value=record.value,
                    partition=record.partition,
                    on_delivery=lambda error, message, record=record: self._check(error, message, record),
                )
                self._producer.poll(0)
            left = self._producer.flush(self._deadline.remaining_s)
            self._raise_failure(topic)
            if left:
                raise WorkloadUnfinished("its time is over", waiting_for=f"{left} records to be written to {topic!r}")

    def _check(self, error: KafkaError | None, message: Message, record: DemoRecord) -> None:
        self.written += 1
        if error is not None:
            self._failure = KafkaException(error)
        elif message.offset() != record.offset:
            self._failure = ConfigurationError(
                f"another producer writes to topic {message.topic()!r}",
                hint="start the demo workload on its own broker, or with its own prefix",
            )

    def _raise_failure(self, topic: str) -> None:
        if isinstance(self._failure, KafkaException):
            raise to_acktrail_error(self._failure, operation="WRITE", kind="topic", name=topic) from self._failure
        if self._failure is not None:
            raise self._failure
