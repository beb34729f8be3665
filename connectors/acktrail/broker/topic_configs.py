"""Configurations of topics (DescribeConfigs)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kafka.protocol.admin.configs import DescribeConfigsRequest

from acktrail.broker.client.broker_client import BrokerClient
from acktrail.broker.client.error_codes import NONE

_TOPIC_RESOURCE: Final = 2
"""Kafka: ``ConfigResource.Type.TOPIC``."""
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


def _is_compacted(result: Any) -> bool | None:
    values = {entry.name: entry.value for entry in result.configs or ()}
    if result.error_code != NONE or values.get(_CLEANUP_POLICY) is None:
        return None
    return "compact" in values[_CLEANUP_POLICY].split(",")
