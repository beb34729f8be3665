"""Share consumers at work on a real broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from acktrail.config import KafkaConfig
from acktrail.errors import UnknownName
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.changes import ChangeResult, NewStartOffset, raise_unless_done
from acktrail.kafka.client.client_settings import to_librdkafka

__all__ = ["Worked", "Workload", "start_at", "until"]


_MEMBERS: Final = 3
_FIRST_RECORD_S: Final = 15.0
_CLOSE_S: Final = 15.0


@dataclass(frozen=True)
class Worked:
    """A group that accepted the first `accepted` of `produced` records in partition 0 of its topic."""

    group: str
    topic: str
    partitions: int
    produced: int
    accepted: int


def until(condition: Callable[[], Any], *, timeout_s: float = 240.0, what: str = "condition") -> Any:
    """Ask until the answer is true, and give it back. Most of the time is left to what is waited for."""
    asked = time.monotonic()
    deadline = asked + timeout_s
    while asked < deadline:
        if answer := condition():
            return answer
        took = time.monotonic() - asked
        time.sleep(min(max(0.05, 2 * took), 1.0))
        asked = time.monotonic()
    raise AssertionError(f"{what} did not become true within {timeout_s:g} s")


def start_at(kafka: KafkaConfig, group: str, starts: Mapping[tuple[str, int], int]) -> None:
    """Set a group's start offsets by topic and partition. The group coordinator learns of a topic later than its broker
    does: until then it is asked again."""
    offsets = [NewStartOffset(topic=topic, partition=index, start_offset=at) for (topic, index), at in starts.items()]
    with ShareGroupAdmin(kafka) as admin:
        until(lambda: _is_known(admin.alter_offsets(group, offsets)), what=f"the topics of {group} at its coordinator")


def _is_known(results: Sequence[ChangeResult]) -> bool:
    try:
        raise_unless_done(results, operation="READ")
    except UnknownName:
        return False
    return True


class Workload:
    """Makes topics, records and share-group state."""

    def __init__(self, config: KafkaConfig) -> None:
        self._properties = {**to_librdkafka(config), "log_level": 2}  # a test may stop the broker
        self.admin = AdminClient(self._properties)

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """A topic that the broker knows: it learns of one a little later than the controller that made it."""
        for future in self.admin.create_topics([NewTopic(name, partitions, 1, config=configs)]).values():
            future.result()
        until(lambda: name in self.admin.list_topics(timeout=120).topics, what=f"topic {name}")

    def add_partitions(self, topic: str, count: int) -> None:
        """`count` in all, and a broker that knows them."""
        for future in self.admin.create_partitions([NewPartitions(topic, count)]).values():
            future.result()
        until(lambda: len(self.admin.list_topics(topic).topics[topic].partitions) == count, what=f"{count} partitions")

    def delete_topic(self, name: str) -> None:
        for future in self.admin.delete_topics([name]).values():
            future.result()

    def produce(self, topic: str, count: int, partition: int = 0) -> None:
        producer = Producer(self._properties)
        for number in range(count):
            producer.produce(topic, str(number).encode(), partition=partition)
        assert producer.flush(30) == 0

    def configure_group(self, group: str, **configs: str) -> None:
        self._configure(ConfigResource(ResourceType.GROUP, group), configs)

    def configure_topic(self, topic: str, **configs: str) -> None:
        self._configure(ConfigResource(ResourceType.TOPIC, topic), configs)

    def _configure(self, resource: ConfigResource, configs: Mapping[str, str]) -> None:
        """Also waits for the broker that is asked: it learns a little later of what the controller has taken."""
        wanted = {name.replace("_", "."): value for name, value in configs.items()}
        for name, value in wanted.items():
            resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
        for future in self.admin.incremental_alter_configs([resource]).values():
            future.result()

        def is_known() -> bool:
            (found,) = self.admin.describe_configs([ConfigResource(resource.restype, resource.name)]).values()
            return all((found.result()[name].value or "") == value for name, value in wanted.items())

        until(is_known, what="what was configured")

    def allow(self, user: str, operation: str, kind: str, name: str) -> None:
        for future in self.admin.create_acls([_allowed(AclBinding, user, operation, kind, name)]).values():
            future.result()

    def revoke(self, user: str, operation: str, kind: str, name: str) -> None:
        """Take back what `allow` granted."""
        for future in self.admin.delete_acls([_allowed(AclBindingFilter, user, operation, kind, name)]).values():
            future.result()

    def set_scram_password(self, user: str, password: str, mechanism: str = "SCRAM_SHA_256") -> None:
        kind = ScramCredentialInfo(ScramMechanism[mechanism], 4096)
        change = UserScramCredentialUpsertion(user, kind, password.encode())
        for future in self.admin.alter_user_scram_credentials([change]).values():
            future.result()

    @contextmanager
    def share_consumer(self, group: str, topic: str, **properties: Any) -> Iterator[ShareConsumer]:
        """A member of `group`, which begins at the start of the log."""
        self.configure_group(group, share_auto_offset_reset="earliest")
        consumer = ShareConsumer({**self._properties, "group.id": group, **properties})
        consumer.subscribe([topic])
        try:
            yield consumer
        finally:
            _close(consumer)

    def acknowledge(self, group: str, topic: str, count: int) -> None:
        """Accept `count` records one by one, each with a commit of its own: as many records of state.

        A member that gets nothing makes room for another, after one more topic: a share coordinator of Kafka 4.1 knows
        of no topic until there is a change behind its start ("Metadata image is null").
        """
        done = 0
        for member in range(_MEMBERS):
            with self.share_consumer(group, topic, **{"share.acknowledgement.mode": "explicit"}) as consumer:
                begun = time.monotonic()
                while done < count and (done or time.monotonic() - begun < _FIRST_RECORD_S):
                    done += _accept(consumer, count - done)
            if done >= count:
                return
            self.create_topic(f"{topic}-without-records-{member}")
        raise AssertionError(f"{done} of {count} records acknowledged")


def _allowed(binding: type[Any], user: str, operation: str, kind: str, name: str) -> Any:
    return binding(
        ResourceType[kind],
        name,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation[operation],
        AclPermissionType.ALLOW,
    )


def _accept(consumer: ShareConsumer, most: int) -> int:
    """Accept and commit the first `most` of the records that come now, and release the others."""
    messages = list(consumer.poll(0.5) or ())
    for number, message in enumerate(messages):
        assert message.error() is None, message.error()
        consumer.acknowledge(message, AcknowledgeType.ACCEPT if number < most else AcknowledgeType.RELEASE)
        if number < most:
            consumer.commit_sync()
    return min(most, len(messages))


def _close(consumer: ShareConsumer) -> None:
    """A close that does not come back (seen with a broker that broke on the member) is left to the session's end."""
    closing = threading.Thread(target=consumer.close, daemon=True)
    closing.start()
    closing.join(_CLOSE_S)
