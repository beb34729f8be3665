"""A broker that knows for how many partitions producers are to choose, and may refuse those that do not."""

from __future__ import annotations

from dataclasses import dataclass, field

from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.expansion.epoch_log import EpochLog
from acktrail_simulation.expansion.expansion_messages import RECORD_SET, LeaderAndIsrRequest, ProduceRequest


@dataclass(slots=True, kw_only=True)
class ExpansionBroker:
    """It leads the partitions in `logs`. `partition_count`: as the controller last announced it; 0: not yet.

    `checks_count`: refuse a request that was made for another count, so that the producer asks for metadata and chooses
    its partitions again. The document has the field; the refusal is our reading of what it is for. A request of an
    older version has no such field and is not checked: that is False.
    """

    checks_count: bool
    partition_count: int = 0
    logs: dict[int, EpochLog] = field(default_factory=dict)

    def leader_and_isr(self, request: LeaderAndIsrRequest) -> dict[int, ErrorCode]:
        """Take over counts and leader epochs; the answer by partition. A leader epoch that is not above the known one
        is fenced; then nothing of the partition changes."""
        answer: dict[int, ErrorCode] = {}
        for topic in request.topic_states:
            self.partition_count = topic.partition_number
            for state in topic.partition_states:
                log = self.logs.setdefault(state.partition, EpochLog())
                is_fenced = bool(log.epochs) and state.leader_epoch <= log.epochs[-1]
                answer[state.partition] = ErrorCode.FENCED_LEADER_EPOCH if is_fenced else ErrorCode.NONE
                if not is_fenced:
                    log.begin(state.leader_epoch)
        return answer

    def produce(self, request: ProduceRequest) -> dict[int, ErrorCode]:
        """Append; the answer by partition. Kafka has no error for a wrong count: INVALID_REQUEST stands for it."""
        answer: dict[int, ErrorCode] = {}
        for topic in request.topic_data:
            is_refused = self.checks_count and topic.undeleted_partition_count != self.partition_count
            for data in topic.data:
                log = self.logs.get(data.partition)
                if log is None:
                    answer[data.partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif is_refused:
                    answer[data.partition] = ErrorCode.INVALID_REQUEST
                else:
                    log.append(RECORD_SET.decode(data.record_set).records)
                    answer[data.partition] = ErrorCode.NONE
        return answer
