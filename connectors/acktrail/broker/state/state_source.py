"""The state topic as a source: one task a partition."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from typing import Final

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.broker.state.state_consumer import StateTopicConsumer
from acktrail.broker.state.state_topic import StateTopic
from acktrail.config import KafkaConfig
from acktrail.connect.contract import SourceBatch, StoredLogs, state_task_id


class StateSourceStatus(StrEnum):
    """Whether the state topic was found. Absent: no share consumer ever came to this cluster: there is nothing to
    export, and no task."""

    NOT_ASKED = "not_asked"
    PRESENT = "present"
    STATE_TOPIC_ABSENT = "state_topic_absent"


class StateSource:
    """Reads ``__share_group_state`` record by record, decoded, nothing left out. See `connect.contract.Source`.

    `bounded`: every task ends where its log ended when it was started; else tasks never end. All tasks share one
    consumer and are driven from one thread. `run_id` is written to every row. `stored` are the sink's logs: with them a
    log that Kafka replaced, and a state topic that was deleted or recreated, are noticed.
    """

    def __init__(
        self, config: KafkaConfig, *, run_id: str, bounded: bool = True, stored: StoredLogs | None = None
    ) -> None:
        self._open_consumer = partial(StateTopicConsumer, config, run_id=run_id, bounded=bounded)
        self._stored = stored
        self._admin = ShareGroupAdmin(config)
        self._consumer: StateTopicConsumer | None = None
        self.status = StateSourceStatus.NOT_ASKED

    def tasks(self) -> Sequence[StateTask]:
        """One task a partition of the topic as it is now; none when there is no state topic (see `status`). Earlier
        tasks end. Raises NotAuthorized (READ on the topic is missing), ForeignCluster (the stored records are of
        another incarnation of the topic, or it is gone), Unreachable or RetryableError."""
        if self._consumer is not None:
            self._consumer.close()
        topic = StateTopic(self._admin)
        if self._stored is not None:
            self._stored.check_state_topic(topic.topic_id if topic.is_present else None)
        if not topic.is_present:
            self.status = StateSourceStatus.STATE_TOPIC_ABSENT
            return ()
        self.status = StateSourceStatus.PRESENT
        consumer = self._consumer = self._open_consumer(topic)
        return tuple(StateTask(consumer, topic, partition, self._stored) for partition in range(topic.partition_count))

    def close(self) -> None:
        """Close consumer and connections. May be called twice."""
        if self._consumer is not None:
            self._consumer.close()
        self._admin.close()


class StateTask:
    """The reading of one partition. See `connect.contract.SourceTask`. A batch has rows of ``state_records``, or none
    and a gap in its span: offsets that were pruned before they could be read. Records and gaps come in the order of
    their offsets.
    """

    def __init__(
        self, consumer: StateTopicConsumer, topic: StateTopic, partition: int, stored: StoredLogs | None
    ) -> None:
        self._consumer = consumer
        self._stored = stored
        self._partition = partition
        self.task_id: Final = state_task_id(topic.cluster_id, topic.topic_id, partition)

    def start(self, position: int | None) -> None:
        """As ``StateTopicConsumer.open``. When the log starts after `position`, the gap comes first."""
        stored = None if self._stored is None else self._stored.stored_log(self.task_id, self._partition)
        self._consumer.open(self._partition, position, stored)

    def poll(self, timeout_s: float) -> SourceBatch | None:
        """As ``StateTopicConsumer.read``."""
        return self._consumer.read(self._partition, timeout_s)

    @property
    def is_finished(self) -> bool:
        return self._consumer.is_finished(self._partition)

    def close(self) -> None:
        self._consumer.leave(self._partition)
