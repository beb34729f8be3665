"""Whether Kafka compacts a topic."""

from __future__ import annotations

from typing import Final

from kafka.protocol.admin.configs import DescribeConfigsRequest

from acktrail.broker.client.broker_client import BrokerClient
from acktrail.broker.client.error_codes import NONE

_TOPIC: Final = 2
_NAME: Final = "cleanup.policy"


def is_compacted(client: BrokerClient, topic: str) -> bool | None:
    """Whether old values of a key are removed from each partition of `topic` (``cleanup.policy`` has ``compact``).
    None: not known, for instance without DESCRIBE_CONFIGS on the topic. Raises Unreachable, RetryableError: no broker
    answered."""
    row = DescribeConfigsRequest.DescribeConfigsResource
    resource = row(resource_type=_TOPIC, resource_name=topic, configuration_keys=[_NAME])
    reply = client.send(
        DescribeConfigsRequest(resources=[resource], include_synonyms=False, include_documentation=False)
    )
    found = next((each for each in reply.results if each.resource_name == topic), None)
    if found is None or found.error_code != NONE:
        return None
    values = [entry.value for entry in found.configs if entry.name == _NAME and entry.value is not None]
    return "compact" in values[0].split(",") if values else None
