"""Configurations of topics and of brokers (DescribeConfigs)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kafka.protocol.admin.configs import DescribeConfigsRequest

from acktrail.errors import RetryableError
from acktrail.kafka.client.broker_client import BrokerClient
from acktrail.kafka.client.error_codes import NONE

_TOPIC_RESOURCE: Final = 2
"""Kafka: ``ConfigResource.Type.TOPIC``."""
_BROKER_RESOURCE: Final = 4
"""Kafka: ``ConfigResource.Type.BROKER``."""
_CLEANUP_POLICY: Final = "cleanup.policy"
_AT_ONCE: Final = 1_000


def is_compacted(client: BrokerClient, topic: str) -> bool | None:
    """Whether old values of a key are removed from each partition of `topic` (``cleanup.policy`` has ``compact``).
    None: not known, for instance without DESCRIBE_CONFIGS on the topic. Raises Unreachable, RetryableError: no broker
    answered."""
    return compacted_topics(client, [topic])[topic]


def compacted_topics(client: BrokerClient, topics: Sequence[str]) -> dict[str, bool | None]:
    """The same of each of `topics`."""
    row = DescribeConfigsRequest.DescribeConfigsResource
    found: dict[str, bool | None] = dict.fromkeys(topics)
    for begin in range(0, len(topics), _AT_ONCE):
        resources = [
            row(resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=[_CLEANUP_POLICY])
            for topic in topics[begin : begin + _AT_ONCE]
        ]
        request = DescribeConfigsRequest(resources=resources, include_synonyms=False, include_documentation=False)
        found |= {result.resource_name: _is_compacted(result) for result in client.send(request).results}
    return found


def broker_config(client: BrokerClient, name: str) -> str | None:
    """A configuration as the first of the brokers has it. None: not known, for instance without DESCRIBE_CONFIGS on the
    cluster, or the broker did not answer; or brokers of this release do not have it."""
    node_id = min(client.broker_ids())
    row = DescribeConfigsRequest.DescribeConfigsResource
    resource = row(resource_type=_BROKER_RESOURCE, resource_name=str(node_id), configuration_keys=[name])
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=False, include_documentation=False)
    try:
        (result,) = client.send(request, node_id).results
    except RetryableError:
        return None
    return next((entry.value for entry in result.configs or () if entry.name == name), None)


def _is_compacted(result: Any) -> bool | None:
    values = {entry.name: entry.value for entry in result.configs or ()}
    if result.error_code != NONE or values.get(_CLEANUP_POLICY) is None:
        return None
    return "compact" in values[_CLEANUP_POLICY].split(",")
