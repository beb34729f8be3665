"""More partitions for a topic (CreatePartitions, KIP-195), sent once."""

from __future__ import annotations

from typing import Final

from kafka.protocol.admin.topics import CreatePartitionsRequest

from acktrail.errors import AcktrailError, ConfigurationError, InputError, RetryableError
from acktrail.kafka.client.broker_client import BrokerClient, NoResponse
from acktrail.kafka.client.error_codes import (
    THROTTLING_QUOTA_EXCEEDED,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    error_for,
    error_text,
)

_TRY_LATER: Final = frozenset({41, 60, THROTTLING_QUOTA_EXCEEDED})
"""NOT_CONTROLLER, REASSIGNMENT_IN_PROGRESS, and a quota."""
_WRONG: Final = frozenset({37, 44})
"""INVALID_PARTITIONS, POLICY_VIOLATION."""
_FEW_BROKERS: Final = 38
"""INVALID_REPLICATION_FACTOR."""
_OTHERS: Final = frozenset({UNKNOWN_TOPIC_OR_PARTITION, 17, TOPIC_AUTHORIZATION_FAILED, 35, 39, 42})
"""After every code that is not here it may have been done (``ReplicationControlManager.createPartitions``)."""


def create_partitions(client: BrokerClient, topic: str, partition_count: int) -> str | None:
    """Ask once that `topic` has `partition_count` partitions in all; the controller chooses their brokers. None: they
    are made; else why that is not known. The topic is named, not its id: see afterwards which one it was.

    Raises InputError, NotAuthorized, ConfigurationError, RetryableError: nothing was changed.
    """
    own = CreatePartitionsRequest
    row = own.CreatePartitionsTopic(name=topic, count=partition_count, assignments=None)
    timeout_ms = int(client.request_timeout_s * 500)  # an answer comes before this client gives up
    reply = client.send_once(own(topics=[row], timeout_ms=timeout_ms, validate_only=False))
    if isinstance(reply, NoResponse):
        error = client.explain(reply)
        if not reply.may_have_arrived:
            raise error
        return error.message
    (found,) = reply.results
    if found.error_code in _TRY_LATER | _WRONG | _OTHERS | {_FEW_BROKERS}:
        raise _refusal(topic, found.error_code, found.error_message)
    return error_text(found.error_code, found.error_message)


def _refusal(topic: str, code: int, message: str | None) -> AcktrailError:
    text, data = f"topic {topic!r} was not expanded: {error_text(code, message)}", {"topic": topic, "error_code": code}
    if code in _TRY_LATER:
        return RetryableError(text, hint="nothing was changed: run it again", data=data)
    if code == _FEW_BROKERS:
        return ConfigurationError(text, hint="as many brokers must be alive as the topic has replicas", data=data)
    if code in _WRONG:
        return InputError(text, hint="nothing was changed: make another plan", data=data)
    return error_for(code, message, operation="ALTER", kind="topic", name=topic)
