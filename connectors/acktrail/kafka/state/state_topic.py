"""The state topic of a cluster: its incarnation, and where its logs begin and end."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from acktrail.errors import ForeignCluster
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.kafka.client.broker_client import BrokerClient
from acktrail.kafka.client.error_codes import NONE, UNKNOWN_TOPIC_OR_PARTITION, error_for
from acktrail.kafka.descriptions import LogOffsets, TopicDescription, TopicPartition
from acktrail.model.share_partition import STATE_TOPIC


class StateTopic:
    """``__share_group_state`` of one cluster (or the topic `name`), as the incarnation that was there when this object
    was made. Raises NotAuthorized when READ on the topic is missing, Unreachable when no broker answered."""

    def __init__(self, admin: ShareGroupAdmin, name: str = STATE_TOPIC) -> None:
        self._admin = admin
        self.name: Final = name
        self.cluster_id: Final = admin.cluster_id
        self._described = self._describe()

    @property
    def client(self) -> BrokerClient:
        """The connection that reads the topic."""
        return client_of(self._admin)

    @property
    def is_present(self) -> bool:
        """Kafka creates the topic when the first share consumer comes."""
        return self._described is not None

    @property
    def topic_id(self) -> str:
        """The id of this incarnation."""
        return self._present().topic_id or ""

    @property
    def partition_count(self) -> int:
        return self._present().partition_count

    def check_incarnation(self) -> None:
        """Raises ForeignCluster when the topic was deleted or recreated."""
        now = self._describe()
        if now is None or now.topic_id != self.topic_id:
            raise ForeignCluster(
                f"{self.name} was deleted or recreated while it was read",
                hint="export the new topic to tables of its own",
                data={"topic_id": self.topic_id, "topic_id_now": now.topic_id if now else None},
            )

    def log_offsets(self, partitions: Collection[int] | None = None) -> dict[int, LogOffsets]:
        """Where the logs begin and end, by partition; None: all of them."""
        chosen = range(self.partition_count) if partitions is None else sorted(partitions)
        wanted = [TopicPartition(topic=self.name, partition=index) for index in chosen]
        rows = self._admin.list_offsets(wanted)
        for row in rows:
            if row.error_code != NONE:
                raise error_for(row.error_code, None, operation="READ", kind="topic", name=self.name)
        return {row.partition: row for row in rows}

    def _describe(self) -> TopicDescription | None:
        (topic,) = self._admin.topics([self.name])
        if topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
            return None
        if topic.error_code != NONE:
            raise error_for(topic.error_code, None, operation="READ", kind="topic", name=self.name)
        return topic

    def _present(self) -> TopicDescription:
        if self._described is None:
            raise RuntimeError(f"there is no {self.name}")
        return self._described
