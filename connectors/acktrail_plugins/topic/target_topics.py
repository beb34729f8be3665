"""Topics that rows and positions are written to: made where that is configured, and looked at before they are used."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import RESOURCE_TOPIC, AdminClient, ConfigResource, NewTopic

from acktrail.config import KafkaConfig
from acktrail.errors import ConfigurationError, RetryableError, RowsRefused
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail.kafka.client.error_codes import UNKNOWN_TOPIC_OR_PARTITION, error_for

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_WAIT_S: Final = 0.1
_COMPACTED: Final = {"cleanup.policy": "compact"}


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
