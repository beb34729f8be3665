"""The partitions of topics with their leaders and leader epochs, as one broker knows them (Metadata)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from kafka.protocol.metadata import MetadataRequest

from acktrail.broker.client.broker_client import BrokerClient
from acktrail.broker.client.error_codes import NONE, error_text
from acktrail.broker.groups.group_requests import known_topic_id

_WITH_TOPIC_IDS: Final = 10
"""The first version of Metadata that has them (KIP-516)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLeader:
    """One partition. None: it has no leader."""

    partition: int
    leader_id: int | None
    leader_epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTopic:
    """One topic with its partitions, ascending. `topic_id` None and no partitions beside an error."""

    name: str
    topic_id: str | None
    is_internal: bool
    partitions: tuple[PartitionLeader, ...]
    error_code: int = NONE
    error: str | None = None

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has."""
        return len(self.partitions)


def list_partitions(
    client: BrokerClient, topics: Iterable[str] | None = None, *, node_id: int | None = None
) -> tuple[ListedTopic, ...]:
    """These topics, by name, errors as values; None: all that this principal may DESCRIBE. No topic is created by
    asking. All of an answer is of one moment. `node_id`: the broker to ask; None: any.

    Raises:
        Unreachable, RetryableError: no broker answered.
    """
    wanted = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in set(topics)]
    if wanted == []:
        return ()
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False, min_version=_WITH_TOPIC_IDS)
    return tuple(sorted(map(_listed, client.send(request, node_id).topics), key=lambda topic: topic.name))


def _listed(topic: Any) -> ListedTopic:
    code = int(topic.error_code)
    rows = [] if code else sorted(topic.partitions, key=lambda row: row.partition_index)
    return ListedTopic(
        name=topic.name,
        topic_id=known_topic_id(topic.topic_id),
        is_internal=bool(topic.is_internal),
        partitions=tuple(map(_leader, rows)),
        error_code=code,
        error=error_text(code),
    )


def _leader(row: Any) -> PartitionLeader:
    return PartitionLeader(
        partition=row.partition_index,
        leader_id=row.leader_id if row.leader_id >= 0 else None,
        leader_epoch=row.leader_epoch if row.leader_epoch >= 0 else None,
    )
