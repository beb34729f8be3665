"""Writes records in one transaction of a transactional id of its own, and returns where each of them is."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from acktrail.config import KafkaConfig
from acktrail.kafka.client.client_settings import to_librdkafka

_LOG: Final = logging.getLogger("librdkafka")
_LOG.addHandler(logging.NullHandler())
TRANSACTION_S: Final = 60.0
"""After this the coordinator aborts a transaction whose writer died."""
_BATCH_BYTES: Final = 1_000_000
_UNASSIGNED: Final = -1
_PASSED_ON: Final = ("compression.type", "linger.ms")


@dataclass(frozen=True, slots=True)
class OutRecord:
    """A record to write; `partition` None: its key chooses, as in Kafka's own clients."""

    partition: int | None
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(slots=True)
class Written:
    """What became of a transaction as far as its writer knows. `places`: partition and offset of each record, in their
    order, where the broker said so. `failure`: why it was given up, or why its end is not known; None: committed."""

    places: list[tuple[int, int] | None] = field(default_factory=list)
    failure: str | None = None


def write_once(
    kafka: KafkaConfig,
    topic: str,
    transactional_id: str,
    records: Sequence[OutRecord],
    *,
    most_bytes: int | None,
    may_commit: Callable[[], str | None],
) -> Written:
    """Write `records` in the one transaction of an id that nothing used before. After all of them were delivered,
    `may_commit` returns the reason why they are not committed; None: they are. Never raises for what Kafka answers: ask
    the coordinator how the transaction ended where there is a failure."""
    timeout_s = kafka.request_timeout_ms / 1_000
    done = Written(places=[None] * len(records))
    own = {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": int(TRANSACTION_S * 1_000),
        "partitioner": "murmur2_random",
        "message.max.bytes": 1_000_000_000,  # the topic's own limit decides
        "batch.size": max(1, min(_BATCH_BYTES, most_bytes or _BATCH_BYTES)),
        "queue.buffering.max.messages": 1_000_000,
        "error_cb": lambda _: None,
    }
    given = {name: kafka.properties[name] for name in _PASSED_ON if name in kafka.properties}
    producer = Producer({**to_librdkafka(kafka), **given, **own}, logger=_LOG)
    try:
        with contextlib.suppress(KafkaException):  # without a connection the coordinator is asked half a second later
            producer.list_topics(topic, timeout=timeout_s)
        _until_done(producer.init_transactions, timeout_s)
        producer.begin_transaction()
        _produce(producer, topic, records, done)
        left = producer.flush(TRANSACTION_S)
        if done.failure is None and left:
            done.failure = f"{left} records were not delivered within {TRANSACTION_S:g} s"
        if done.failure is None:
            done.failure = may_commit()
        if done.failure is not None:
            _abort(producer, timeout_s)
        else:
            _until_done(producer.commit_transaction, timeout_s)
    except (KafkaException, BufferError, SystemError) as error:
        done.failure = _text(error)
        _abort(producer, timeout_s)
    return done


def _produce(producer: Any, topic: str, records: Sequence[OutRecord], done: Written) -> None:
    def delivered(number: int) -> Callable[[Any, Any], None]:
        def note(error: Any, message: Any) -> None:
            if error is None:
                done.places[number] = message.partition(), message.offset()
            elif done.failure is None:
                done.failure = str(error.str())

        return note

    for number, record in enumerate(records):
        producer.produce(
            topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            partition=_UNASSIGNED if record.partition is None else record.partition,
            timestamp=record.timestamp_ms,
            on_delivery=delivered(number),
        )


def _until_done(call: Callable[[float], None], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return call(max(0.1, deadline - time.monotonic()))
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


def _abort(producer: Any, timeout_s: float) -> None:
    with contextlib.suppress(KafkaException, SystemError):
        producer.purge()
        producer.abort_transaction(timeout_s)


def _text(error: Exception) -> str:
    found = error.args[0] if error.args else error
    return str(found.str()) if hasattr(found, "str") else str(found)
