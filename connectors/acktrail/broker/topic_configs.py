"""Configurations of topics (DescribeConfigs)."""

from __future__ import annotations

from typing import Final

from kafka.protocol.admin.configs import DescribeConfigsRequest

from acktrail.broker.client.broker_client import BrokerClient
from acktrail.broker.client.error_codes import NONE

_TOPIC_RESOURCE: Final = 2
"""Kafka: ``ConfigResource.Type.TOPIC``."""
_CLEANUP_POLICY: Final = "cleanup.policy"


def is_compacted(client: BrokerClient, topic: str) -> bool | None:
    """Whether old values of a key are removed from each partition of `topic` (``cleanup.policy`` has ``compact``).
    None: not known, for instance without DESCRIBE_CONFIGS on the topic. Raises Unreachable, RetryableError: no broker
    answered."""
    row = DescribeConfigsRequest.DescribeConfigsResource
    resource = row(resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=[_CLEANUP_POLICY])
    reply = client.send(
        DescribeConfigsRequest(resources=[resource], include_synonyms=False, include_documentation=False)
    )
    (result,) = reply.results
    values = {entry.name: entry.value for entry in result.configs or ()}
    if result.error_code != NONE or values.get(_CLEANUP_POLICY) is None:
        return None
    return "compact" in values[_CLEANUP_POLICY].split(",")
