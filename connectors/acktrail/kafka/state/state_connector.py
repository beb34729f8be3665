"""``ShareGroupStateSource``: the records of the state topic, as they are written."""

from __future__ import annotations

from collections.abc import Mapping

from acktrail.connect.contract import Config
from acktrail.connect.source_batches import LogEnds, Position, SourcePartition, state_source_partition
from acktrail.errors import InputError
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.log_source import PARTITIONS, LogSource
from acktrail.kafka.state.state_source import StateTask
from acktrail.kafka.state.state_topic import StateTopic
from acktrail.model.share_partition import STATE_TOPIC


class ShareGroupStateSource(LogSource):
    """Exports every record of ``__share_group_state``: decoded, with its raw bytes, every gap recorded."""

    description = "Every record of __share_group_state, decoded, every gap recorded."
    reads_logs = True
    topic = STATE_TOPIC
    partition_name = staticmethod(state_source_partition)

    def task(self, config: Config) -> StateTask:
        return StateTask(
            self._kafka, bounded=self.config["bounded"], partitions=config.get(PARTITIONS), linger_s=self.linger_s
        )

    def ends(self) -> Mapping[SourcePartition, LogEnds]:
        """The logs' starts and high watermarks, and the epochs of their leaders."""
        with ShareGroupAdmin(self._kafka) as admin:
            topic = StateTopic(admin)
            logs = topic.log_offsets() if topic.is_present else {}
            return {
                state_source_partition(topic.cluster_id, topic.topic_id, number): LogEnds(
                    log.log_start_offset or 0, log.high_watermark or 0, log.leader_epoch
                )
                for number, log in logs.items()
            }

    def check_position(self, source_partition: SourcePartition, position: Position) -> None:
        """A position lies at or before the end of the log as it is now: a log that ends before it is another one."""
        super().check_position(source_partition, position)
        assert isinstance(position, int)
        number = int(source_partition.rpartition("/")[2])
        with ShareGroupAdmin(self._kafka) as admin:
            now = StateTopic(admin).log_offsets().get(number)
        end = None if now is None else now.high_watermark
        if end is None or position > end:
            raise InputError(
                f"{position} lies behind the end of {source_partition} ({'unknown' if end is None else end})",
                hint="name an offset up to the log's end",
            )
