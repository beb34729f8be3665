"""The demo workload's administration of a cluster: topics, groups and their configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection, Uuid
from confluent_kafka.admin import (
    RESOURCE_BROKER,
    RESOURCE_GROUP,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.broker.client.error_codes import error_for
from acktrail.broker.client.librdkafka import to_librdkafka
from acktrail.config import KafkaConfig
from acktrail.embedded.workload.workload_deadline import WorkloadDeadline
from acktrail.errors import AcktrailError, ConfigurationError, RetryableError
from acktrail.model.share_partition import TopicId, topic_id_text

DELIVERY_COUNT_LIMIT: Final = "share.delivery.count.limit"
_BROKER_DELIVERY_COUNT_LIMIT: Final = "group.share.delivery.count.limit"
_UNSIGNED: Final = 1 << 64


class DemoCluster:
    """Each call waits for its answer, at most until `deadline`. The methods may be called from several threads.

    Raises:
        Unreachable: when no broker answers.
        ConfigurationError: for Kafka before 4.2. A 4.1 broker fails on the member ids that half of all share consumers
            of librdkafka take (base64 with ``+`` or ``/``), and they then ask again without a pause.
    """

    def __init__(self, config: KafkaConfig, deadline: WorkloadDeadline) -> None:
        self.config = config
        self._deadline = deadline
        with ShareGroupAdmin(config, bootstrap_timeout_s=min(10.0, deadline.remaining_s)) as admin:
            capabilities = admin.capabilities()
            if not capabilities.reports_lag:
                raise ConfigurationError(
                    f"the demo workload needs Kafka 4.2 or later, this cluster is {capabilities.release}",
                    hint="4.1 cannot serve every share consumer; start a newer broker",
                )
            self.cluster_id = admin.cluster_id
            self._node = str(admin.brokers()[0].node_id)
        self._client = AdminClient(client_properties(config))

    def topic_names(self) -> frozenset[str]:
        """Every topic there is."""
        try:
            return frozenset(self._client.list_topics(timeout=self._deadline.remaining_s).topics)
        except KafkaException as error:
            raise to_acktrail_error(error, operation="DESCRIBE", kind="topics") from error

    def create_topics(self, partitions: Mapping[str, int]) -> dict[str, TopicId]:
        """Create topics, partition counts by name, and wait until the cluster knows their ids."""
        new = [NewTopic(name, count) for name, count in partitions.items()]
        self._settle(self._client.create_topics(new, request_timeout=self._deadline.remaining_s), "CREATE", "topic")
        self._deadline.wait_until(lambda: partitions.keys() <= self.topic_names(), "the new topics to be known")
        answers = self._client.describe_topics(
            TopicCollection(list(partitions)), request_timeout=self._deadline.remaining_s
        )
        found = self._settle(answers, "DESCRIBE", "topic")
        return {name: _topic_id(description.topic_id) for name, description in found.items()}

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until the cluster does not know the name any more."""
        self._settle(self._client.delete_topics([name], request_timeout=self._deadline.remaining_s), "DELETE", "topic")
        self._deadline.wait_until(lambda: name not in self.topic_names(), f"topic {name!r} to be deleted")

    def delete_group(self, group_id: str) -> None:
        """Delete a group that has no members."""
        answers = self._client.delete_consumer_groups([group_id], request_timeout=self._deadline.remaining_s)
        self._settle(answers, "DELETE", "group")

    def wait_until_empty(self, group_ids: Sequence[str]) -> None:
        """Wait until no group has a member."""
        with ShareGroupAdmin(self.config, bootstrap_timeout_s=min(10.0, self._deadline.remaining_s)) as admin:
            self._deadline.wait_until(
                lambda: not any(group.members for group in admin.describe_groups(group_ids)), "groups to be empty"
            )

    def configure_group(self, group_id: str, configs: Mapping[str, str]) -> int:
        """Set those of `configs` that this release knows; the delivery count limit that then holds for the group."""
        in_force = self._configs(RESOURCE_GROUP, "group", group_id)
        known = {name: value for name, value in configs.items() if name in in_force}
        entries = [ConfigEntry(n, v, incremental_operation=AlterConfigOpType.SET) for n, v in known.items()]
        resource = ConfigResource(RESOURCE_GROUP, group_id, incremental_configs=entries)
        answers = self._client.incremental_alter_configs([resource], request_timeout=self._deadline.remaining_s)
        self._settle(dict(zip([group_id], answers.values(), strict=True)), "ALTER_CONFIGS", "group")
        return int({**in_force, **known}.get(DELIVERY_COUNT_LIMIT) or self._broker_delivery_count_limit())

    def _broker_delivery_count_limit(self) -> str:
        return self._configs(RESOURCE_BROKER, "broker", self._node)[_BROKER_DELIVERY_COUNT_LIMIT]

    def _configs(self, resource: Any, kind: str, name: str) -> dict[str, str]:
        answers = self._client.describe_configs(
            [ConfigResource(resource, name)], request_timeout=self._deadline.remaining_s
        )
        found = self._settle(dict(zip([name], answers.values(), strict=True)), "DESCRIBE_CONFIGS", kind)
        return {key: entry.value for key, entry in found[name].items()}

    def _settle(self, answers: Mapping[str, Future[Any]], operation: str, kind: str) -> dict[str, Any]:
        """The results by name; the first failure is raised."""
        found = {}
        for name, future in answers.items():
            try:
                found[name] = future.result(timeout=self._deadline.remaining_s + 1)
            except KafkaException as error:
                raise to_acktrail_error(error, operation=operation, kind=kind, name=name) from error
        return found


def client_properties(config: KafkaConfig) -> dict[str, Any]:
    """What a client of librdkafka is configured with to connect as `config` says; it logs nothing.

    Raises:
        ConfigurationError: the configuration is not understood.
    """
    return {**to_librdkafka(config), "log_level": 2}


def to_acktrail_error(error: KafkaException, *, operation: str, kind: str, name: str = "") -> AcktrailError:
    """What a caller can act on; codes below 0 are librdkafka's own: no answer in time, no connection."""
    inner: KafkaError = error.args[0]
    if inner.code() < 0:
        return RetryableError(f"{kind} {name!r}: {inner.str()}", hint="try again")
    try:
        raise error_for(inner.code(), inner.str(), operation=operation, kind=kind, name=name)
    except AcktrailError as known:
        return known


def _topic_id(uuid: Uuid) -> TopicId:
    """librdkafka prints ids in standard base64, Kafka in the URL-safe form."""
    halves = (uuid.get_most_significant_bits(), uuid.get_least_significant_bits())
    return topic_id_text(b"".join((half % _UNSIGNED).to_bytes(8, "big") for half in halves))
