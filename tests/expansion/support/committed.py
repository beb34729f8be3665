"""Positions as groups commit them."""

from __future__ import annotations

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from servers.workload import until

__all__ = ["commit"]


def commit(admin: AdminClient, group: str, topic: str, *offsets: int) -> None:
    """Commit `offsets` for a group without members, one for each partition from 0 on. The first coordinator of a broker
    loads its state a while."""
    places = [TopicPartition(topic, number, offset) for number, offset in enumerate(offsets)]

    def is_taken() -> bool:
        (done,) = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)]).values()
        return not any(place.error for place in done.result(60).topic_partitions)

    until(is_taken, what=f"the coordinator of {group}")
