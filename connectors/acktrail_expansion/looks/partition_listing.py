"""The partitions of topics with their leaders and leader epochs, as one broker knows them (Metadata)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from kafka.protocol.metadata import MetadataRequest

from acktrail.errors import RetryableError
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.kafka.client.broker_client import BrokerClient
from acktrail.kafka.client.error_codes import NONE
from acktrail.kafka.groups.group_requests import known_topic_id

_WITH_TOPIC_IDS: Final = 10
"""The first version of Metadata that has them (KIP-516)."""
Identity = tuple[str | None, int]
"""A topic's id and how many partitions it has: None and 0 where it is not there, or may not be described."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTopic:
    """One topic, and its leader's id and epoch by partition, -1 where there is none. `topic_id` None and no leaders
    beside an error."""

    name: str
    topic_id: str | None
    leaders: tuple[tuple[int, int], ...]
    is_internal: bool = False
    error_code: int = NONE

    @property
    def identity(self) -> Identity:
        """What an expansion, or a deletion, changes of it."""
        return self.topic_id, len(self.leaders)


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


def listed_by_brokers(admin: ShareGroupAdmin, topics: Iterable[str]) -> list[dict[str, Identity]]:
    """What each broker lists of `topics` now; empty: it did not answer. Raises as `list_partitions`."""
    client, found = client_of(admin), []
    client.metadata([])  # learn which brokers there are
    for node_id in admin.broker_ids():
        try:
            listed = list_partitions(client, topics, node_id=node_id)
        except RetryableError:
            listed = ()
        found.append({topic.name: topic.identity for topic in listed})
    return found


def _listed(topic: Any) -> ListedTopic:
    rows = [] if topic.error_code else sorted(topic.partitions, key=lambda row: row.partition_index)
    return ListedTopic(
        name=topic.name,
        topic_id=known_topic_id(topic.topic_id),
        leaders=tuple((row.leader_id, row.leader_epoch) for row in rows),
        is_internal=bool(topic.is_internal),
        error_code=topic.error_code,
    )
