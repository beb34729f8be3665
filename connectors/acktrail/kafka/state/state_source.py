"""The state topic as a source task: all partitions of it, or some, through one consumer."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Final

from acktrail.config import KafkaConfig
from acktrail.connect.contract import SourceTask, SourceTaskContext
from acktrail.connect.source_batches import SourceBatch, state_source_partition
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.state.state_consumer import StateTopicConsumer
from acktrail.kafka.state.state_topic import StateTopic

_LOOK_AGAIN_S: Final = 2.0


class StateSourceStatus(StrEnum):
    """Whether the state topic was found. Absent: no share consumer ever came to this cluster: there is nothing to
    export."""

    NOT_ASKED = "not_asked"
    PRESENT = "present"
    STATE_TOPIC_ABSENT = "state_topic_absent"


class StateTask(SourceTask):
    """Reads ``__share_group_state`` record by record, decoded, nothing left out.

    A batch has consecutive rows of ``state_records`` of one partition, or none and a gap in its span: offsets that were
    pruned before they could be read. `bounded`: it ends where the logs ended when it was started, or at the offsets
    `ends` of Kafka's logs, by partition, where they come first. `partitions` None: all of them. `linger_s`: how long
    records may wait for others after all that was there has been read; a longer wait costs less. Where the context has
    the sink's logs, a log that Kafka replaced, and a state topic that was deleted or recreated, are noticed. A
    continuous task waits for a state topic that is not there yet, unless `waits` is False: then it is finished.

    Raises NotAuthorized (READ on the topic is missing), ForeignCluster (the stored records are of another incarnation
    of the topic, or it is gone), LogChanged (the leader of a partition changed: start again), Unreachable,
    RetryableError, ConfigurationError.
    """

    def __init__(
        self,
        config: KafkaConfig,
        *,
        bounded: bool = True,
        partitions: Collection[int] | None = None,
        ends: Mapping[int, int] | None = None,
        linger_s: float = 0.0,
        waits: bool = True,
    ) -> None:
        self._config, self._bounded, self._chosen, self._linger_s = config, bounded, partitions, linger_s
        self._ends = ends
        self._waits = waits and not bounded
        self._context = SourceTaskContext()
        self._admin: ShareGroupAdmin | None = None
        self._consumer: StateTopicConsumer | None = None
        self._looked_at = 0.0
        self.status = StateSourceStatus.NOT_ASKED

    def start(self, context: SourceTaskContext) -> None:
        """Begin at the positions of `context`. When a log starts after its position, the gap comes first."""
        self._context = context
        self._admin = ShareGroupAdmin(self._config)
        self._look(self._admin)

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        """As ``StateTopicConsumer.read``."""
        if self._consumer is not None:
            return self._consumer.read(timeout_s)
        self._context.stop.wait(timeout_s)
        if self._admin is not None and time.monotonic() - self._looked_at >= _LOOK_AGAIN_S:
            self._look(self._admin)
        return ()

    def stop(self) -> None:
        """Close consumer and connections. May be called twice."""
        if self._consumer is not None:
            self._consumer.close()
        if self._admin is not None:
            self._admin.close()

    @property
    def is_finished(self) -> bool:
        if self._consumer is None:
            return not self._waits and self.status is StateSourceStatus.STATE_TOPIC_ABSENT
        return self._consumer.is_finished

    @property
    def partitions(self) -> tuple[int, int]:
        return (0, 0) if self._consumer is None else self._consumer.partitions

    def _look(self, admin: ShareGroupAdmin) -> None:
        """Find the topic, and open its partitions if it is there."""
        self._looked_at = time.monotonic()
        topic, stored = StateTopic(admin), self._context.stored
        if stored is not None:
            stored.check_state_topic(topic.topic_id if topic.is_present else None)
        if not topic.is_present:
            self.status = StateSourceStatus.STATE_TOPIC_ABSENT
            return
        self.status = StateSourceStatus.PRESENT
        consumer = self._consumer = StateTopicConsumer(
            self._config,
            topic,
            run_id=self._context.run_id,
            bounded=self._bounded,
            ends=self._ends,
            linger_s=self._linger_s,
        )
        for number in range(topic.partition_count) if self._chosen is None else sorted(self._chosen):
            source_partition = state_source_partition(topic.cluster_id, topic.topic_id, number)
            position = self._context.position(source_partition)
            assert position is None or isinstance(position, int)
            consumer.open(number, position, None if stored is None else stored.stored_log(source_partition, number))
