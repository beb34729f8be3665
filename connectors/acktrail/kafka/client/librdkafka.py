"""confluent-kafka's consumer, configured from a `KafkaConfig`, and a reader of partitions from given offsets."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaError, TopicPartition

from acktrail.config import KafkaConfig
from acktrail.errors import AcktrailError, ConfigurationError, NotAuthorized, RetryableError
from acktrail.format.wire.raw_record import RawRecord
from acktrail.kafka.client.broker_client import BrokerClient
from acktrail.kafka.client.client_settings import ClientSettings
from acktrail.kafka.client.tls_files import tls_context
from acktrail.kafka.client.token_source import token_source

_LOG: Final = logging.getLogger(__name__)

# librdkafka's own codes have names with an underscore; they are part of its interface all the same.
AT_THE_END: Final = KafkaError._PARTITION_EOF  # noqa: SLF001  # see above
"""The partition was read up to its present end."""
PRUNED: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})  # noqa: SLF001  # see above
"""The log does not have the offset that is to be read next."""
TRUNCATED: Final = KafkaError._LOG_TRUNCATION  # noqa: SLF001  # see above
"""The log was cut before the offset that is to be read next."""
_REFUSED: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})  # noqa: SLF001  # see above
_DISCONNECTED: Final = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN})  # noqa: SLF001  # see above
_ADDRESS: Final = re.compile(r"(?:plaintext|ssl|sasl_plaintext|sasl_ssl)://([^/\s]+:[0-9]+)/")
"""In librdkafka's name for a broker: ``sasl_ssl://host:port/1``."""
_NO_LISTENER: Final = "Connect to "
"""Begins librdkafka's words for an address without a listener."""
GONE: Final = frozenset(
    {
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001  # see above
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001  # see above
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.INCONSISTENT_TOPIC_ID,
    }
)
"""There is no such topic or partition, or not with this id."""

_EXACT_AND_BOUNDED: Final = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # never jump: what was pruned must be seen
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    "check.crcs": True,
    # All partitions share one queue of at most 16 MB (counted in payload); it is refilled at once, not after a second.
    "queued.max.messages.kbytes": 16_384,
    "queued.min.messages": 50_000,
    "fetch.queue.backoff.ms": 5,
    "fetch.max.bytes": 8_388_608,
    "max.partition.fetch.bytes": 1_048_576,
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 100,
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.interval.ms": 30_000,
}

_ONE_BATCH: Final = {"max.partition.fetch.bytes": 1, "queued.min.messages": 1}
"""A broker always gives at least one batch: no more of a log is fetched than that."""
_MESSAGES_AT_ONCE: Final = 10_000
_SLICE_S: Final = 0.02
_TRY_S: Final = 3.0
_TRY_EVERY_S: Final = 5.0
_FORGOTTEN_S: Final = 60.0
_DOUBTS: Final = 3
_CHECK: Final = "check security.protocol, sasl.* and ssl.*"


def to_librdkafka(config: KafkaConfig) -> dict[str, Any]:
    """librdkafka's properties for how to connect; raises as ``ClientSettings.from_config``."""
    settings = ClientSettings.from_config(config)
    properties: dict[str, Any] = {
        "bootstrap.servers": ",".join(settings.bootstrap_servers),
        "client.id": settings.client_id,
        "security.protocol": settings.security_protocol.lower(),
        "socket.timeout.ms": settings.request_timeout_ms,
    }
    if settings.oauth is not None:
        # A callback instead of librdkafka's own OIDC: both clients use one token, and fail with the same words.
        callback = token_source(settings.oauth).for_librdkafka
        properties |= {"sasl.mechanism": settings.sasl_mechanism, "oauth_cb": callback}
    elif settings.uses_sasl:
        properties |= {
            "sasl.mechanism": settings.sasl_mechanism,
            "sasl.username": settings.sasl_plain_username,
            "sasl.password": settings.sasl_plain_password,
        }
    if settings.uses_tls:
        properties |= {
            "ssl.ca.location": settings.ssl_cafile,
            "ssl.certificate.location": settings.ssl_certfile,
            "ssl.key.location": settings.ssl_keyfile,
            "ssl.key.password": settings.ssl_password,
            "ssl.endpoint.identification.algorithm": "https" if settings.ssl_check_hostname else "none",
        }
    return {name: value for name, value in properties.items() if value is not None}


def new_log_consumer(config: KafkaConfig, group_id: str, failures: list[Any], **changes: Any) -> Consumer:
    """A consumer that reads logs from given offsets: it joins no group (`group_id` is only a name), commits nothing,
    and never jumps. `failures` gets, during `consume`, what ends the reading and belongs to no partition: librdkafka's
    fatal errors, and as AcktrailError what keeps the client out; librdkafka keeps trying after the others. `changes`
    are librdkafka properties that win over acktrail's own. Raises as `ClientSettings.from_config`, `tls_context` and
    `TokenSource`."""
    settings = ClientSettings.from_config(config)
    tls_context(settings)
    if settings.oauth is not None:
        token_source(settings.oauth).current()  # what the callback raises in the constructor is lost
    refusals = _Refusals(config)

    def note(error: Any) -> None:
        failure = error if error.fatal() else refusals.explained(error)
        if failure is not None:
            failures.append(failure)

    own = {**to_librdkafka(config), **_EXACT_AND_BOUNDED, **changes}
    return Consumer({**own, "group.id": group_id, "error_cb": note}, logger=_LOG)


class _Refusals:
    """What keeps a librdkafka client out, said as `BrokerClient` says it.

    librdkafka's words are too few (every certificate that it does not like is one error), and the same for a broker
    that is just going down. So the same address is tried with the other client: what that raises is the answer; where
    it is let in, or no broker answers, librdkafka may continue. After `_DOUBTS` refusals in a row that only librdkafka
    saw, its own words count."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._tried_at = -math.inf
        self._doubts = 0

    def explained(self, error: Any) -> AcktrailError | None:
        """Why `error` ends the reading; None: it does not."""
        text, now = error.str(), time.monotonic()
        is_refusal = error.code() in _REFUSED
        may_be_one = error.code() in _DISCONNECTED and _NO_LISTENER not in text
        if not (is_refusal or may_be_one) or now - self._tried_at < _TRY_EVERY_S:
            return None
        self._doubts = self._doubts if now - self._tried_at < _FORGOTTEN_S else 0
        found = _ADDRESS.search(text)
        where = self._config.bootstrap_servers if found is None else found[1]
        try:
            BrokerClient(replace(self._config, bootstrap_servers=where), bootstrap_timeout_s=_TRY_S).close()
        except ConfigurationError as refusal:
            return refusal
        except AcktrailError:
            self._doubts = 0
        else:
            self._doubts += is_refusal
        finally:
            self._tried_at = time.monotonic()
        if self._doubts < _DOUBTS:
            return None
        return ConfigurationError(f"{where} refused the connection: {_words(text)}", hint=_CHECK)


def _words(text: str) -> str:
    """librdkafka's words without the address and how long it took."""
    return re.sub(r" \(after .*$", "", text.partition(": ")[2] or text)


def read_failure(topic: str, error: Any) -> AcktrailError:
    """What to raise for an error that trying again does not cure, while `topic` was read: librdkafka's, or one of
    `new_log_consumer`'s failures."""
    if isinstance(error, AcktrailError):
        return error
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return NotAuthorized("READ", f"topic {topic}")
    if error.code() in _REFUSED:
        return ConfigurationError("the broker refused the connection", hint=_CHECK)
    return RetryableError(f"{topic} cannot be read: {error.name()}", hint="try again; see the broker's log")


def raw_record(message: Any) -> RawRecord:
    """A message without an error as a record."""
    return RawRecord(
        state_partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
    )


class LogReader:
    """Reads partitions of `topic` from given offsets. Use it as a context manager; one thread. `changes` as of
    ``new_log_consumer``."""

    def __init__(self, config: KafkaConfig, topic: str, *, group_id: str, timeout_s: float, **changes: Any) -> None:
        self._topic = topic
        self._timeout_s = timeout_s
        self._failures: list[Any] = []
        self._consumer = new_log_consumer(config, group_id, self._failures, **changes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def messages(self, positions: Mapping[int, int]) -> Generator[Any, None, None]:
        """Messages from `positions` (by partition) on, and events: messages with an error. Close the iterator when it
        has given enough. Raises what `read_failure` gives, and RetryableError when nothing came in `timeout_s`."""
        self._consumer.assign([TopicPartition(self._topic, partition, at) for partition, at in positions.items()])
        deadline = time.monotonic() + self._timeout_s
        try:
            while True:
                # One message first: a call returns when it has all it may return, or when its time is up.
                messages = self._consumer.consume(1, _SLICE_S)
                if messages:
                    messages += self._consumer.consume(_MESSAGES_AT_ONCE, 0)
                if self._failures:
                    raise read_failure(self._topic, self._failures[-1])
                if messages:
                    deadline = time.monotonic() + self._timeout_s
                elif time.monotonic() > deadline:
                    raise RetryableError(f"{self._topic} does not answer", hint="do its partitions have leaders?")
                yield from messages
        finally:
            self._consumer.unassign()


class RecordReader(LogReader):
    """Reads records of `topic` one at a time."""

    def __init__(self, config: KafkaConfig, topic: str) -> None:
        super().__init__(config, topic, group_id="acktrail-export", timeout_s=30.0, **_ONE_BATCH)

    def records_at(self, offsets: Mapping[int, int]) -> dict[int, RawRecord | None]:
        """The record at one offset of each partition; None: there is no record at that offset. Raises as `messages`."""
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
