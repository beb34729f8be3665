"""Topics that rows and positions are written to: records of several in one transaction of librdkafka's producer, all of
them or none; topics made where that is configured, and looked at before they are used; and the positions in one topic.

The positions of connectors are records of one compacted topic, as Kafka Connect keeps its own
(``offset.storage.topic``). The key is the JSON array of connector and source partition, the value the position as JSON.
Only committed records count, and they count once the log is read to its end, not to its last stable offset: below an
open transaction of another connector lies what is still to be seen.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import RESOURCE_TOPIC, AdminClient, ConfigResource, NewTopic

from acktrail.config import KafkaConfig
from acktrail.errors import (
    AcktrailError,
    ConcurrentCommit,
    ConfigurationError,
    NotAuthorized,
    OutcomeUnknown,
    RetryableError,
    RowsRefused,
)
from acktrail.format.wire.raw_record import RawRecord
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.client_settings import ClientSettings, to_librdkafka
from acktrail.kafka.client.credentials import token_source
from acktrail.kafka.client.error_codes import librdkafka_error
from acktrail.kafka.log_reader import LogReader, StateTopic
from acktrail.model.log_positions import Position, SourcePartition
from acktrail.text_parsing import parse_json

_LOG: Final = logging.getLogger("librdkafka")
_LOG.addHandler(logging.NullHandler())  # each call raises what matters to it
TRANSACTION_S: Final = 60.0
"""After this the coordinator aborts a transaction whose writer died, unless the next writer came first."""
_QUEUE_KB: Final = 65_536
_WAIT_S: Final = 0.1
_BATCH_BYTES: Final = 1_000_000
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
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_COMPACTED: Final = {"cleanup.policy": "compact"}
_PARTITION: Final = "partition"


@dataclass(frozen=True, slots=True)
class OutRecord:
    """A record to write; `value` None: a tombstone."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = field(default=())

    @property
    def size_bytes(self) -> int:
        """Of what the record holds, without the few bytes that frame it."""
        return len(self.key or b"") + len(self.value or b"") + sum(len(name) + len(text) for name, text in self.headers)


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

    def write(self, records: Iterable[OutRecord]) -> None:
        """Commit `records` in one transaction.

        Raises:
            ConcurrentCommit: a newer writer fenced this one; nothing landed.
            OutcomeUnknown: it is not known whether the transaction was committed.
            NotAuthorized, ConfigurationError, RetryableError: nothing landed.
        """
        self._undelivered, failure, left = None, None, 1
        try:
            self._producer.begin_transaction()
            for record in records:
                self._produce(record)
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
        self._commit()

    def close(self) -> None:
        """Give up what is open; no waiting for brokers."""
        with contextlib.suppress(KafkaException, RuntimeError, SystemError):
            self._producer.purge()
            self._producer.flush(0)

    def _produce(self, record: OutRecord) -> None:
        deadline = time.monotonic() + TRANSACTION_S
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    on_delivery=self._delivered,
                )
            except BufferError:
                if time.monotonic() > deadline:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None  # noqa: SLF001  # see _FENCED
                self._producer.poll(_WAIT_S)
            else:
                self._producer.poll(0)
                return

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None and self._undelivered is None:
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
