"""Configurations of groups, topics and brokers, as brokers describe them (request 32)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from kafka.protocol.admin.configs import DescribeConfigsRequest

from acktrail.errors import RetryableError
from acktrail.kafka import descriptions
from acktrail.kafka.client.broker_client import BrokerClient
from acktrail.kafka.client.error_codes import NONE, error_text

GROUP_RESOURCE: Final = 32
"""Kafka: ``ConfigResource.Type.GROUP``."""
_TOPIC_RESOURCE: Final = 2
"""Kafka: ``ConfigResource.Type.TOPIC``."""
_BROKER_RESOURCE: Final = 4
"""Kafka: ``ConfigResource.Type.BROKER``."""
_CLEANUP_POLICY: Final = "cleanup.policy"
_TOPICS_AT_ONCE: Final = 1_000
_SET_ON_THE_GROUP: Final = 8
"""Kafka: ``ConfigSource.GROUP_CONFIG``."""


def configs_request(names: Iterable[str], resource: int = GROUP_RESOURCE, key: str | None = None) -> Any:
    """Request 32 for the configuration of groups, or of other resources; one `key` of it, or all."""
    row = DescribeConfigsRequest.DescribeConfigsResource
    keys = None if key is None else [key]
    resources = [row(resource_type=resource, resource_name=name, configuration_keys=keys) for name in names]
    return DescribeConfigsRequest(resources=resources, include_synonyms=False, include_documentation=False)


def configs(result: Any) -> descriptions.GroupConfigs:
    """The part of response 32 about a group."""
    values = {entry.name: entry.value for entry in result.configs if entry.value is not None}
    return descriptions.GroupConfigs(
        group_id=result.resource_name,
        configs=values if result.error_code == NONE else None,
        own=frozenset(entry.name for entry in result.configs if entry.config_source == _SET_ON_THE_GROUP),
        error_code=result.error_code,
        error=error_text(result.error_code, result.error_message),
    )


def compacted_topics(client: BrokerClient, topics: Sequence[str]) -> dict[str, bool | None]:
    """Whether old values of a key are removed from each partition of these topics (``cleanup.policy`` has ``compact``).
    None: not known, for instance without DESCRIBE_CONFIGS on the topic. Raises Unreachable, RetryableError: no broker
    answered."""
    found: dict[str, bool | None] = dict.fromkeys(topics)
    for begin in range(0, len(topics), _TOPICS_AT_ONCE):
        named = topics[begin : begin + _TOPICS_AT_ONCE]
        results = client.send(configs_request(named, _TOPIC_RESOURCE, _CLEANUP_POLICY)).results
        policies = {result.resource_name: _value(result, _CLEANUP_POLICY) for result in results}
        found |= {name: None if policy is None else "compact" in policy.split(",") for name, policy in policies.items()}
    return found


def topic_configs(client: BrokerClient, topic: str) -> dict[str, str]:
    """The configuration of a topic; empty where it is not known, for instance without DESCRIBE_CONFIGS on it. Raises
    Unreachable, RetryableError: no broker answered."""
    (result,) = client.send(configs_request([topic], _TOPIC_RESOURCE)).results
    entries = result.configs or () if result.error_code == NONE else ()
    return {entry.name: entry.value for entry in entries if entry.value is not None}


def broker_config(client: BrokerClient, name: str) -> str | None:
    """A configuration as the first of the brokers has it. None: not known, for instance without DESCRIBE_CONFIGS on the
    cluster, or the broker did not answer; or brokers of this release do not have it."""
    node_id = min(client.broker_ids())
    try:
        (result,) = client.send(configs_request([str(node_id)], _BROKER_RESOURCE, name), node_id).results
    except RetryableError:
        return None
    return _value(result, name)


def _value(result: Any, name: str) -> str | None:
    values = {entry.name: entry.value for entry in result.configs or ()} if result.error_code == NONE else {}
    return values.get(name)
