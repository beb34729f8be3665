"""The partitions of topics with their leaders and leader epochs, page by page (DescribeTopicPartitions, KIP-966)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from kafka.protocol.admin.topics import DescribeTopicPartitionsRequest

from acktrail.broker.client.broker_client import BrokerClient
from acktrail.broker.client.error_codes import NONE, UNKNOWN_TOPIC_OR_PARTITION, error_text
from acktrail.broker.groups.group_requests import known_topic_id

PAGE: Final = 2_000
"""Partitions of one response; a broker gives no more (``max.request.partition.size.limit``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLeader:
    """One partition. None: it has no leader."""

    partition: int
    leader_id: int | None
    leader_epoch: int | None
    isr_count: int


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
    client: BrokerClient, topics: Iterable[str] | None = None, *, page: int = PAGE, node_id: int | None = None
) -> tuple[ListedTopic, ...]:
    """These topics, by name, errors as values; None: all that this principal may DESCRIBE. No topic is created by
    asking. A topic whose pages come from before and after a change has the partitions of the later pages. `node_id`:
    the broker to ask; None: any.

    Raises:
        Unreachable, RetryableError: no broker answered.
    """
    names = None if topics is None else sorted(set(topics))
    if names == []:
        return ()
    rows: dict[str, list[Any]] = {}
    heads: dict[str, Any] = {}
    cursor: Any = None
    while True:
        reply = client.send(_request(names, cursor, page), node_id)
        for topic in reply.topics:
            heads[topic.name] = topic
            rows.setdefault(topic.name, []).extend(topic.partitions or ())
        following = reply.next_cursor
        if following is None or (cursor is not None and _place(following) <= _place(cursor)):
            break
        cursor = following
    found = [_listed(head, rows[name]) for name, head in heads.items()]
    return tuple(sorted(found, key=lambda topic: topic.name))


def _request(names: list[str] | None, cursor: Any, page: int) -> Any:
    own = DescribeTopicPartitionsRequest
    after = None
    if cursor is not None:
        after = own.Cursor(topic_name=cursor.topic_name, partition_index=cursor.partition_index)
        names = None if names is None else [name for name in names if name >= cursor.topic_name]
    wanted = [own.TopicRequest(name=name) for name in names or ()]
    return own(topics=wanted, response_partition_limit=page, cursor=after)


def _place(cursor: Any) -> tuple[str, int]:
    return cursor.topic_name, cursor.partition_index


def _listed(topic: Any, rows: list[Any]) -> ListedTopic:
    by_number = {row.partition_index: row for row in rows}
    code = int(topic.error_code)
    if code == NONE and sorted(by_number) != [*range(len(by_number))]:
        code = UNKNOWN_TOPIC_OR_PARTITION  # it was made again between two pages
    return ListedTopic(
        name=topic.name,
        topic_id=known_topic_id(topic.topic_id),
        is_internal=bool(topic.is_internal),
        partitions=() if code else tuple(_leader(by_number[number]) for number in sorted(by_number)),
        error_code=code,
        error=error_text(code),
    )


def _leader(row: Any) -> PartitionLeader:
    has_leader = row.leader_id >= 0
    return PartitionLeader(
        partition=row.partition_index,
        leader_id=row.leader_id if has_leader else None,
        leader_epoch=row.leader_epoch if row.leader_epoch >= 0 else None,
        isr_count=len(row.isr_nodes or ()),
    )
