"""More partitions for a topic (CreatePartitions, KIP-195), sent once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafka.protocol.admin.topics import CreatePartitionsRequest

from acktrail.broker.client.broker_client import BrokerClient, NoResponse
from acktrail.broker.client.error_codes import (
    NONE,
    THROTTLING_QUOTA_EXCEEDED,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    Outcome,
    error_for,
    error_text,
)
from acktrail.errors import AcktrailError, ConfigurationError, InputError, RetryableError

INVALID_PARTITIONS: Final = 37
_INVALID_REPLICATION_FACTOR: Final = 38
_POLICY_VIOLATION: Final = 44
_TRY_LATER: Final = frozenset({41, 60, THROTTLING_QUOTA_EXCEEDED})
"""NOT_CONTROLLER, REASSIGNMENT_IN_PROGRESS, and a quota."""
_REFUSED: Final = frozenset(
    {UNKNOWN_TOPIC_OR_PARTITION, 17, TOPIC_AUTHORIZATION_FAILED, 35, INVALID_PARTITIONS, 38, 39, 42, 44, *_TRY_LATER}
)
"""After every other code it may have been done (``ReplicationControlManager.createPartitions``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCreation:
    """What became of one request. `error_code` is Kafka's, None where it gave no answer."""

    topic: str
    outcome: Outcome
    error_code: int | None = NONE
    error: str | None = None

    def exception(self) -> AcktrailError:
        """The error to raise where it was refused."""
        about, data = f"topic {self.topic!r}", {"topic": self.topic, "error_code": self.error_code}
        if self.error_code in _TRY_LATER:
            text = f"{about} cannot be expanded right now: {self.error}"
            return RetryableError(text, hint="nothing was changed: run it again", data=data)
        if self.error_code == _INVALID_REPLICATION_FACTOR:
            text = f"{about} cannot be expanded: {self.error}"
            return ConfigurationError(text, hint="as many brokers must be alive as the topic has replicas", data=data)
        if self.error_code in (INVALID_PARTITIONS, _POLICY_VIOLATION):
            text = f"{about} was not expanded: {self.error}"
            return InputError(text, hint="nothing was changed: make another plan", data=data)
        words = (self.error or "").partition(": ")[2] or None
        return error_for(self.error_code or NONE, words, operation="ALTER", kind="topic", name=self.topic)


def create_partitions(
    client: BrokerClient, topic: str, partition_count: int, *, validate_only: bool = False
) -> PartitionCreation:
    """Ask once that `topic` has `partition_count` partitions in all, or (`validate_only`) whether it may; the
    controller chooses their brokers. The topic is named, not its id: see afterwards which one it was.

    Raises Unreachable, RetryableError, ConfigurationError: it was not sent.
    """
    own = CreatePartitionsRequest
    row = own.CreatePartitionsTopic(name=topic, count=partition_count, assignments=None)
    timeout_ms = int(client.request_timeout_s * 500)  # an answer comes before this client gives up
    request = own(topics=[row], timeout_ms=timeout_ms, validate_only=validate_only)
    reply = client.send_once(request)
    if isinstance(reply, NoResponse):
        error = client.explain(reply)
        if validate_only or not reply.may_have_arrived:
            raise error
        return PartitionCreation(topic=topic, outcome=Outcome.UNKNOWN, error_code=None, error=error.message)
    found = next((row for row in reply.results if row.name == topic), None)
    if found is None:
        return PartitionCreation(topic=topic, outcome=Outcome.UNKNOWN, error_code=None, error="no answer about it")
    outcome = Outcome.DONE if found.error_code == NONE else Outcome.UNKNOWN
    if found.error_code in _REFUSED or (validate_only and outcome is Outcome.UNKNOWN):
        outcome = Outcome.REFUSED
    text = error_text(found.error_code, found.error_message)
    return PartitionCreation(topic=topic, outcome=outcome, error_code=found.error_code, error=text)
