"""One share consumer of the demo workload: it follows the plan and enters what the broker confirmed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from confluent_kafka import AcknowledgeType, KafkaError, KafkaException, ShareConsumer

from acktrail.config import KafkaConfig
from acktrail.embedded.workload.demo_cluster import client_properties, to_acktrail_error
from acktrail.embedded.workload.ledger import ConfirmedAck, Ledger
from acktrail.embedded.workload.scenario import PartitionLog, TopicPlan
from acktrail.embedded.workload.workload_deadline import WorkloadDeadline
from acktrail.embedded.workload.workload_report import Action
from acktrail.errors import OutcomeUnknown

_POLL_S: Final = 0.25
_LEAVE_S: Final = 15.0
_DENIED: Final = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)
_TYPES: Final = {
    Action.ACCEPT: AcknowledgeType.ACCEPT,
    Action.RELEASE: AcknowledgeType.RELEASE,
    Action.REJECT: AcknowledgeType.REJECT,
}


class ShareMember:
    """A member of the ledger's group, subscribed to `topics`. Only the thread that made it may use it."""

    def __init__(
        self, config: KafkaConfig, ledger: Ledger, topics: Sequence[TopicPlan], deadline: WorkloadDeadline
    ) -> None:
        self._ledger = ledger
        self._deadline = deadline
        self._logs = tuple(log for topic in topics for log in topic.logs)
        self._incarnations = {topic.name: topic.incarnation for topic in topics}
        self._consumer = ShareConsumer(
            {
                **client_properties(config),
                "group.id": ledger.plan.group_id,
                "share.acknowledgement.mode": "explicit",
            }
        )

    @classmethod
    @contextlib.contextmanager
    def joined(
        cls, config: KafkaConfig, ledger: Ledger, topics: Sequence[TopicPlan], deadline: WorkloadDeadline
    ) -> Iterator[ShareMember]:
        """A member that leaves its group at the end."""
        member = cls(config, ledger, topics, deadline)
        try:
            with _translated(ledger.plan.group_id):
                member._consumer.subscribe([topic.name for topic in topics])
            yield member
        finally:
            _leave(member._consumer)

    def settle_all(self) -> None:
        """Take and settle records until everything that was announced for its topics is settled."""
        self.consume_until(lambda: not self._outstanding())

    def consume_until(self, done: Callable[[], bool]) -> None:
        """Take and settle records until `done` holds.

        Raises:
            WorkloadUnfinished: when the deadline has passed.
            OutcomeUnknown: when the broker did not say whether it took an acknowledgement.
        """
        group = self._ledger.plan.group_id
        while not done():
            self._deadline.check(f"group {group!r} to settle {self._outstanding()} more records")
            with _translated(group):
                messages = self._consumer.poll(_POLL_S)
            self._settle([self._acknowledge(message) for message in messages if self._is_record(message)])

    def _outstanding(self) -> int:
        return self._ledger.outstanding(self._logs)

    def _is_record(self, message: Any) -> bool:
        """False for an error that may pass. Raises NotAuthorized."""
        error = message.error()
        if error is not None and error.code() in _DENIED:
            raise to_acktrail_error(KafkaException(error), operation="READ", kind="topic", name=message.topic() or "")
        return error is None

    def _acknowledge(self, message: Any) -> ConfirmedAck:
        log = PartitionLog(
            topic=message.topic(), incarnation=self._incarnations[message.topic()], partition=message.partition()
        )
        entry = self._ledger.decide(log, message.offset(), message.delivery_count())
        self._consumer.acknowledge(message, _TYPES[entry.action])
        return entry

    def _settle(self, entries: Sequence[ConfirmedAck]) -> None:
        """Send the acknowledgements and enter the accepted ones; records of the others are delivered again."""
        if not entries:
            return
        try:
            outcomes = self._consumer.commit_sync(self._deadline.remaining_s)
        except KafkaException as error:
            raise OutcomeUnknown(
                f"group {self._ledger.plan.group_id!r}: no answer to an acknowledgement: {error.args[0].str()}",
                hint="start the workload again on a new broker",
            ) from error
        taken = {(place.topic, place.partition) for place, failure in outcomes.items() if failure is None}
        self._ledger.confirm(entry for entry in entries if (entry.log.topic, entry.log.partition) in taken)


def _leave(consumer: ShareConsumer) -> None:
    """Leave the group; a close that does not return (librdkafka 2.16.1, seen once) is left to the session timeout."""

    def close() -> None:
        with contextlib.suppress(KafkaException):
            consumer.close()

    closing = threading.Thread(target=close, name="leaving", daemon=True)
    closing.start()
    closing.join(_LEAVE_S)


@contextlib.contextmanager
def _translated(group_id: str) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise to_acktrail_error(error, operation="READ", kind="group", name=group_id) from error
