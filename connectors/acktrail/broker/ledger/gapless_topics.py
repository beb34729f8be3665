"""Topics whose every offset is of a record that consumers get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from acktrail.broker.client.broker_client import BrokerClient
from acktrail.broker.client.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from acktrail.broker.ledger.partition_listing import list_partitions
from acktrail.broker.topic_configs import compacted_topics

_TRANSACTIONS: Final = "__transaction_state"
"""Kafka: ``Topic.TRANSACTION_STATE_TOPIC_NAME``, which the first transactional producer of a cluster makes."""


def gapless_topics(client: BrokerClient, topics: Sequence[str]) -> dict[str, bool | None]:
    """Whether each of `topics` has no offset that is no record's. False: it is compacted. None: not known; where the
    cluster had transactions there can be their markers and aborted records in any topic, and without DESCRIBE on their
    topic, or DESCRIBE_CONFIGS on the topic itself, nothing is known. Raises Unreachable, RetryableError: no broker
    answered."""
    if not topics:
        return {}
    listed = list_partitions(client, [_TRANSACTIONS])
    has_none = bool(listed) and all(topic.error_code == UNKNOWN_TOPIC_OR_PARTITION for topic in listed)
    found = compacted_topics(client, topics)
    known = {True: False, False: True if has_none else None, None: None}
    return {topic: known[found[topic]] for topic in topics}
