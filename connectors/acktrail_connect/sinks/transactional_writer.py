"""Records of several topics in one transaction of librdkafka's producer, all of them or none."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from acktrail.config import KafkaConfig
from acktrail.errors import (
    AcktrailError,
    ConcurrentCommit,
    ConfigurationError,
    NotAuthorized,
    OutcomeUnknown,
    RetryableError,
)
from acktrail.kafka.client.client_settings import ClientSettings, to_librdkafka
from acktrail.kafka.client.credentials import token_source

_LOG: Final = logging.getLogger("librdkafka")
_LOG.addHandler(logging.NullHandler())  # each call raises what matters to it
TRANSACTION_S: Final = 60.0
"""After this the coordinator aborts a transaction whose writer died, unless the next writer came first."""
_QUEUE_KB: Final = 65_536
_WAIT_S: Final = 0.1
_BATCH_BYTES: Final = 1_000_000
_UNASSIGNED: Final = -1
_PASSED_ON: Final = ("compression.type", "linger.ms")
"""Properties of the configuration that are this producer's too."""
_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001  # librdkafka's own codes have names with an underscore
        KafkaError.INVALID_PRODUCER_EPOCH,
        90,  # PRODUCER_FENCED
    }
)
_TOO_LARGE: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_NAMED: Final = re.compile(r'partition "([^"]+)"')
"""In librdkafka's words for a topic that is refused."""
_REFUSED: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


@dataclass(frozen=True, slots=True)
class OutRecord:
    """A record to write; `value` None: a tombstone. `partition` None: its key chooses. `timestamp_ms` 0: now."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = field(default=())
    partition: int | None = None
    timestamp_ms: int = 0

    @property
    def size_bytes(self) -> int:
        """Of what the record holds, without the few bytes that frame it."""
        return (
            len(self.key or b"")
            + len(self.value or b"")
            + sum(len(name) + len(text or b"") for name, text in self.headers)
        )


class TransactionalWriter:
    """The one writer of a transactional id. Making a second one (``fence``) ends the first: its open transaction is
    aborted, and it can commit nothing any more. `most_bytes`: the smallest limit that a topic has on a batch.

    Not thread-safe. After an error it is of no use any more: close it.
    """

    def __init__(self, config: KafkaConfig, transactional_id: str, *, most_bytes: int = _BATCH_BYTES) -> None:
        settings = ClientSettings.from_config(config)
        if settings.oauth is not None:
            token_source(settings.oauth).current()  # what the callback raises in the constructor is lost
        self._id, self._timeout_s = transactional_id, config.request_timeout_ms / 1_000
        self._undelivered: Any = None
        self._failed_topic = ""
        own = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": int(TRANSACTION_S * 1_000),
            "partitioner": "murmur2_random",  # where Kafka's own clients put a key
            "queue.buffering.max.kbytes": _QUEUE_KB,
            "message.max.bytes": 1_000_000_000,  # each topic's own limit decides
            "batch.size": max(1, min(_BATCH_BYTES, most_bytes)),
            "error_cb": lambda _: None,
        }
        given = {name: config.properties[name] for name in _PASSED_ON if name in config.properties}
        self._producer = Producer({**to_librdkafka(config), **given, **own}, logger=_LOG)

    def fence(self) -> None:
        """Become the one writer; returns when what the former one left open is aborted or committed. Raises
        NotAuthorized, RetryableError."""
        with contextlib.suppress(KafkaException):  # without a connection the coordinator is asked half a second later
            self._producer.list_topics("", timeout=self._timeout_s)
        self._until_done(self._producer.init_transactions, "become the writer of")

    def write(self, records: Iterable[OutRecord], check: Callable[[], None] = lambda: None) -> list[tuple[int, int]]:
        """Commit `records` in one transaction; return partition and offset of each, in their order.

        `check` is called when all were delivered. If it raises, nothing is committed.

        Raises:
            ConcurrentCommit: a newer writer fenced this one; nothing landed.
            OutcomeUnknown: it is not known whether the transaction was committed.
            NotAuthorized, ConfigurationError, RetryableError: nothing landed.
        """
        self._undelivered, failure, left = None, None, 1
        places: dict[int, tuple[int, int]] = {}
        try:
            self._producer.begin_transaction()
            for number, record in enumerate(records):
                self._produce(record, partial(self._delivered, places, number))
            left = self._producer.flush(TRANSACTION_S)
        except KafkaException as error:
            failure = error.args[0]
        except SystemError:  # what confluent-kafka 2.16 makes of a fatal error while it reports deliveries
            failure = _refusal_of(self._producer.begin_transaction)
        if self._undelivered is not None:  # librdkafka commits nothing then: this only raises the cause
            failure = _refusal_of(lambda: self._producer.commit_transaction(self._timeout_s)) or self._undelivered
        if failure is not None or left:
            self._abort()
            raise self._explained(failure or KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001  # see _FENCED
        try:
            check()
        except AcktrailError:
            self._abort()
            raise
        self._commit()
        return [places[number] for number in range(len(places))]

    def close(self) -> None:
        """Give up what is open; no waiting for brokers."""
        with contextlib.suppress(KafkaException, RuntimeError, SystemError):
            self._producer.purge()
            self._producer.flush(0)

    def _produce(self, record: OutRecord, delivered: Callable[[Any, Any], None]) -> None:
        deadline = time.monotonic() + TRANSACTION_S
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    partition=_UNASSIGNED if record.partition is None else record.partition,
                    timestamp=record.timestamp_ms,
                    on_delivery=delivered,
                )
            except BufferError:
                if time.monotonic() > deadline:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None  # noqa: SLF001  # see _FENCED
                self._producer.poll(_WAIT_S)
            else:
                self._producer.poll(0)
                return

    def _delivered(self, places: dict[int, tuple[int, int]], number: int, error: Any, message: Any) -> None:
        if error is None:
            places[number] = message.partition(), message.offset()
        elif self._undelivered is None:
            self._undelivered = error
            self._failed_topic = message.topic()

    def _abort(self) -> None:
        """Without waiting for the coordinator's own time-out, where that is possible."""
        with contextlib.suppress(KafkaException, SystemError):
            self._producer.purge()
            self._producer.abort_transaction(self._timeout_s)

    def _explained(self, error: Any) -> AcktrailError:
        if error.code() in _FENCED:
            return ConcurrentCommit(
                f"a newer writer has the transactional id {self._id}; nothing of this commit landed",
                hint="run this connector on only one worker at a time",
                data={"transactional_id": self._id},
            )
        if error.code() in _TOO_LARGE:
            return ConfigurationError(
                f"the topic {self._failed_topic} refused a batch of records as too large",
                hint="raise max.message.bytes of the topic; if it was lowered, restart the connector",
                data={"topic": self._failed_topic},
            )
        if error.code() not in _REFUSED:
            return RetryableError(f"the records were not written: {error.name()}", hint="see the brokers' logs")
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            named = _NAMED.search(error.str())
            return NotAuthorized("WRITE", f"topic {named[1] if named else self._failed_topic}")
        return NotAuthorized("WRITE and DESCRIBE", f"transactional id {self._id}")

    def _commit(self) -> None:
        try:
            self._until_done(self._producer.commit_transaction, "commit under")
        except AcktrailError as error:
            raise OutcomeUnknown(
                f"the outcome of a transaction of {self._id} is unknown",
                hint="run again: positions are read from the cluster, so no record is lost or doubled",
                data={"transactional_id": self._id, "failure": error.message},
            ) from None

    def _until_done(self, call: Callable[[float], None], what: str) -> None:
        """Repeat `call` while librdkafka asks for it. Raises NotAuthorized, ConcurrentCommit, RetryableError."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return call(max(_WAIT_S, deadline - time.monotonic()))
            except KafkaException as error:
                failure = error.args[0]
                if failure.retriable() and time.monotonic() < deadline:
                    continue
                if failure.code() in _FENCED or failure.code() > 0:
                    raise self._explained(failure) from None
                raise RetryableError(
                    f"could not {what} the transactional id {self._id}: {failure.name()}",
                    hint="check that the cluster has a transaction coordinator (__transaction_state)",
                ) from None


def _refusal_of(call: Callable[[], None]) -> Any:
    """The error that a call raises; None: none."""
    try:
        call()
    except KafkaException as error:
        return error.args[0]
    except SystemError:
        return None
    return None
