"""The share consumers of the demo workload: they follow the plan and enter what the broker confirmed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from confluent_kafka import AcknowledgeType, KafkaError, KafkaException, ShareConsumer

from acktrail.config import KafkaConfig
from acktrail.embedded.workload.demo_cluster import WorkloadDeadline, client_properties, to_acktrail_error
from acktrail.embedded.workload.scenario import Action, GroupPlan, PartitionLog, TopicPlan
from acktrail.errors import OutcomeUnknown

_POLL_S: Final = 0.25
_LEAVE_S: Final = 15.0
_DENIED: Final = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmedAck:
    """One confirmed acknowledgement of one delivery."""

    log: PartitionLog
    offset: int
    action: Action
    delivery_count: int


class Ledger:
    """All acknowledgements of a group, and which records are still to be settled. Its members share it.

    `limit` is the delivery count limit: a record that is released at this delivery is archived.
    """

    def __init__(self, plan: GroupPlan, *, limit: int) -> None:
        self.plan, self.limit = plan, limit
        self.confirmed: list[ConfirmedAck] = []
        self.settled = 0
        self._lock = threading.Lock()
        self._pending: dict[PartitionLog, set[int]] = {}

    def outstanding(self, logs: Iterable[PartitionLog]) -> int:
        """Records of these logs that were announced and are not settled."""
        with self._lock:
            return sum(len(self._pending.get(log, ())) for log in logs)

    def announce(self, log: PartitionLog, offsets: Iterable[int]) -> None:
        """These records are to be settled."""
        with self._lock:
            self._pending.setdefault(log, set()).update(offsets)

    def decide(self, log: PartitionLog, offset: int, delivery_count: int) -> ConfirmedAck:
        """What the plan says about this delivery."""
        plan = self.plan.record_plan(log, offset)
        action = Action.RELEASE if delivery_count <= plan.releases else plan.final
        return ConfirmedAck(log=log, offset=offset, action=action, delivery_count=delivery_count)

    def confirm(self, entries: Iterable[ConfirmedAck]) -> None:
        """The broker took these acknowledgements."""
        with self._lock:
            for entry in entries:
                self.confirmed.append(entry)
                pending = self._pending.get(entry.log, set())
                if entry.offset in pending and self._settles(entry):
                    pending.remove(entry.offset)
                    self.settled += 1

    def _settles(self, entry: ConfirmedAck) -> bool:
        plan = self.plan.record_plan(entry.log, entry.offset)
        is_last = plan.final is Action.RELEASE or entry.delivery_count >= self.limit
        return entry.action is not Action.RELEASE or is_last


class ShareMember:
    """A member of the ledger's group, subscribed to `topics`; it leaves the group at the end of its ``with`` block.

    Only the thread that made it may use it.
    """

    def __init__(
        self, config: KafkaConfig, ledger: Ledger, topics: Sequence[TopicPlan], deadline: WorkloadDeadline
    ) -> None:
        self._ledger = ledger
        self._deadline = deadline
        self._group_id = ledger.plan.group_id
        self._logs = tuple(log for topic in topics for log in topic.logs)
        self._incarnations = {topic.name: topic.incarnation for topic in topics}
        own = {"group.id": self._group_id, "share.acknowledgement.mode": "explicit"}
        self._consumer = ShareConsumer({**client_properties(config), **own})

    def __enter__(self) -> Self:
        try:
            with self._translated():
                self._consumer.subscribe(list(self._incarnations))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Leave; a close that does not return (librdkafka 2.16.1, seen once) is left to the session timeout."""

        def close() -> None:
            with contextlib.suppress(KafkaException):
                self._consumer.close()

        closing = threading.Thread(target=close, name="leaving", daemon=True)
        closing.start()
        closing.join(_LEAVE_S)

    def settle_all(self) -> None:
        """Take and settle records until everything that was announced for its topics is settled."""
        self.consume_until(lambda: not self._outstanding())

    def consume_until(self, done: Callable[[], bool]) -> None:
        """Take and settle records until `done` holds.

        Raises WorkloadUnfinished, or OutcomeUnknown when the broker did not say whether it took an acknowledgement.
        """
        while not done():
            self._deadline.check(f"group {self._group_id!r} to settle {self._outstanding()} more records")
            with self._translated():
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
        self._consumer.acknowledge(message, AcknowledgeType[entry.action.name])
        return entry

    def _settle(self, entries: Sequence[ConfirmedAck]) -> None:
        """Send the acknowledgements and enter the accepted ones; records of the others are delivered again."""
        if not entries:
            return
        try:
            outcomes = self._consumer.commit_sync(self._deadline.remaining_s)
        except KafkaException as error:
            raise OutcomeUnknown(
                f"group {self._group_id!r}: no answer to an acknowledgement: {error.args[0].str()}",
                hint="start the workload again on a new broker",
            ) from error
        taken = {(place.topic, place.partition) for place, failure in outcomes.items() if failure is None}
        self._ledger.confirm(entry for entry in entries if (entry.log.topic, entry.log.partition) in taken)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise to_acktrail_error(error, operation="READ", kind="group", name=self._group_id) from error
