"""Faults in the state topic of a running broker: what its share coordinators hold, and records that they did not write.

For throw-away brokers. Kafka takes records for an internal topic from a client with the id of its own admin client, and
a share coordinator that is started again loads them as if it had written them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from acktrail.config import KafkaConfig
from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail.embedded.workload.demo_cluster import WorkloadDeadline, client_properties, to_acktrail_error
from acktrail.errors import InputError
from acktrail.faults.fault import FaultTarget, InjectedFault, InjectedRecord, StateFault
from acktrail.model.replay import SharePartitionState, advance
from acktrail.model.share_partition import STATE_TOPIC, SharePartition, state_partition_of
from acktrail.wire.dialects.released import decode

_ADMIN_CLIENT: Final = "__admin_client"
_AT_ONCE: Final = 1_000
_WAIT_S: Final = 0.2
_PRUNE: Final = {"share.coordinator.state.topic.prune.interval.ms": "1000"}


class StateTopicEditor:
    """The state topic of one broker. Each call waits for its answer, at most until `deadline`."""

    def __init__(self, config: KafkaConfig, deadline: WorkloadDeadline) -> None:
        self._config = config
        self._deadline = deadline

    def states(self) -> tuple[dict[SharePartition, SharePartitionState], int]:
        """What the share coordinators hold, by all records that are there; and the number of state partitions."""
        own = {"group.id": "acktrail-demo-faults", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        consumer = Consumer({**client_properties(self._config), **own})
        try:
            return self._read(consumer)
        except KafkaException as error:
            raise to_acktrail_error(error, operation="READ", kind="topic", name=STATE_TOPIC) from error
        finally:
            consumer.close()

    def _read(self, consumer: Consumer) -> tuple[dict[SharePartition, SharePartitionState], int]:
        partitions = (
            consumer.list_topics(STATE_TOPIC, timeout=self._deadline.remaining_s).topics[STATE_TOPIC].partitions
        )
        places = [TopicPartition(STATE_TOPIC, partition, OFFSET_BEGINNING) for partition in partitions]
        marks = {p.partition: consumer.get_watermark_offsets(p, timeout=self._deadline.remaining_s) for p in places}
        waiting = {partition for partition, (start, end) in marks.items() if end > start}
        consumer.assign(places)
        states: dict[SharePartition, SharePartitionState] = {}
        while waiting:
            self._deadline.check("the state topic to be read")
            for message in consumer.consume(_AT_ONCE, timeout=_WAIT_S):
                if message.error() is not None:
                    raise KafkaException(message.error())
                with contextlib.suppress(InputError):
                    record = decode(message.key(), message.value())
                    if state_partition_of(record.key, len(partitions)) == message.partition():
                        advance(states, record)
                if message.offset() + 1 >= marks[message.partition()][1]:
                    waiting.discard(message.partition())
        return states, len(partitions)

    def append(self, records: Iterable[InjectedRecord]) -> dict[int, int]:
        """Append `records`; by state partition the offset of the last one that Kafka is to remove unread."""
        producer = Producer({**client_properties(self._config), "client.id": _ADMIN_CLIENT, "linger.ms": 20})
        pruned: dict[int, int] = {}
        failures: list[KafkaException] = []

        def note(error: object, message: object, record: InjectedRecord) -> None:
            if error is not None:
                failures.append(KafkaException(error))
            elif record.is_pruned:
                pruned[record.state_partition] = message.offset()  # type: ignore[attr-defined]  # a Message

        for record in records:
            producer.produce(
                STATE_TOPIC,
                key=record.key,
                value=record.value,
                partition=record.state_partition,
                timestamp=record.timestamp_ms,
                on_delivery=lambda error, message, record=record: note(error, message, record),
            )
            producer.poll(0)
        left = producer.flush(self._deadline.remaining_s)
        if failures:
            raise to_acktrail_error(failures[0], operation="WRITE", kind="topic", name=STATE_TOPIC) from failures[0]
        if left:
            self._deadline.check(f"{left} records to be written to {STATE_TOPIC!r}")
        return pruned

    def wait_until_pruned(self, removed: Mapping[int, int]) -> None:
        """Wait until each state partition begins after the offset in `removed`."""
        consumer = Consumer({**client_properties(self._config), "group.id": "acktrail-demo-faults"})
        try:
            self._deadline.wait_until(
                lambda: all(self._start(consumer, p) > offset for p, offset in removed.items()),
                "redundant state records to be pruned",
            )
        finally:
            consumer.close()

    def _start(self, consumer: Consumer, partition: int) -> int:
        """Where a state partition begins; -1 while its leader is not there."""
        place = TopicPartition(STATE_TOPIC, partition)
        with contextlib.suppress(KafkaException):
            start: int = consumer.get_watermark_offsets(place, timeout=self._deadline.remaining_s)[0]
            return start
        return -1


def inject_faults(
    broker: EmbeddedBroker,
    faults: Sequence[StateFault],
    keys: Sequence[SharePartition],
    ends: Mapping[SharePartition, int],
) -> tuple[InjectedFault, ...]:
    """Let `faults` happen to `keys`, one each, and start the broker again, so that its share coordinators load them.

    `ends`: the log end of each key's topic partition. The groups must have no members.
    """
    deadline = WorkloadDeadline(120)
    topic = StateTopicEditor(broker.config(), deadline)
    removed: dict[int, int] = {}
    injected = []
    # What is pruned goes first: the records of other faults must stay.
    for fault, key in sorted(zip(faults, keys, strict=True), key=lambda pair: pair[0].name != "export_gap"):
        states, count = topic.states()
        home = state_partition_of(key, count)
        target = FaultTarget(
            state=states[key],
            partition=key.partition,
            neighbours=tuple(s for s in states.values() if state_partition_of(s.key, count) == home),
            state_partitions=count,
            log_end_offset=ends[key],
            now_ms=time.time_ns() // 1_000_000,
        )
        removed |= topic.append(fault.inject(target))
        injected.append(InjectedFault(fault=fault, key=key))
    broker.restart(_PRUNE)
    topic.wait_until_pruned(removed)
    return tuple(injected)
