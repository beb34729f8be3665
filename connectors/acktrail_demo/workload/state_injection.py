"""Faults in the state topic of a running broker: what its share coordinators hold, and records that they did not write.

For throw-away brokers. Kafka takes records for an internal topic from a client with the id of its own admin client, and
a share coordinator that is started again loads them as if it had written them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaException, Producer

from acktrail.config import KafkaConfig
from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail.errors import ConfigurationError, RetryableError
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.log_reader import StateTopic
from acktrail.model.replay import SharePartitionState, advance
from acktrail.model.share_partition import STATE_TOPIC, SharePartition, state_partition_of
from acktrail_demo.faults.injections import FaultTarget, InjectedRecord
from acktrail_demo.faults.library import FAULTS, InjectedFault, StateFault
from acktrail_demo.workload.demo_cluster import (
    DemoProducer,
    WorkloadDeadline,
    client_properties,
    state_records,
    to_acktrail_error,
)
from acktrail_demo.workload.scenario import DemoRecord

_ADMIN_CLIENT: Final = "__admin_client"
_PATIENCE_S: Final = 120.0
_PRUNE: Final = {"share.coordinator.state.topic.prune.interval.ms": "1000"}


class StateTopicEditor:
    """The state topic of one broker. Each call waits for its answer, at most until `deadline`."""

    def __init__(self, config: KafkaConfig, deadline: WorkloadDeadline) -> None:
        self._config = config
        self._deadline = deadline

    def states(self) -> tuple[dict[SharePartition, SharePartitionState], int]:
        """What the share coordinators hold, by all records that are there; and the number of state partitions."""
        states: dict[SharePartition, SharePartitionState] = {}
        with ShareGroupAdmin(self._config) as admin:
            records, ends = state_records(admin)
        for number, record in records:
            if state_partition_of(record.key, len(ends)) == number:
                advance(states, record)
        return states, len(ends)

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
        self._deadline.wait_until(lambda: self._begins_after(removed), "redundant state records to be pruned")

    def _begins_after(self, removed: Mapping[int, int]) -> bool:
        """False while a leader is not there."""
        with contextlib.suppress(RetryableError), ShareGroupAdmin(self._config) as admin:
            logs = StateTopic(admin).log_offsets(removed)
            return all((logs[number].log_start_offset or 0) > offset for number, offset in removed.items())
        return False


def inject_faults(
    broker: EmbeddedBroker, faults: Sequence[StateFault], *, group_id: str, topic: str, records: int
) -> tuple[InjectedFault, ...]:
    """Let each of `faults` happen to one share partition of a group, and start the broker again, so that its share
    coordinators load them.

    The group has finished all `records` of each partition of the topic, and has no members. Raises ConfigurationError:
    it has fewer share partitions than there are faults.
    """
    deadline = WorkloadDeadline(_PATIENCE_S)
    editor = StateTopicEditor(broker.config(), deadline)
    keys = sorted(key for key in editor.states()[0] if key.group_id == group_id)
    if len(keys) < len(faults):
        raise ConfigurationError(
            f"group {group_id!r} has {len(keys)} share partitions, and {len(faults)} faults are to happen to it",
            hint="give the topic more partitions",
        )
    injected = tuple(InjectedFault(fault=fault, key=key) for fault, key in zip(faults, keys, strict=False))
    DemoProducer(broker.config(), deadline).write(topic, _growth(injected, records))
    removed: dict[int, int] = {}
    # What is pruned goes first: the records of other faults must stay.
    for each in sorted(injected, key=lambda each: each.fault is not FAULTS["export_gap"]):
        removed |= editor.append(each.fault.inject(_target(editor, each, records + each.fault.grows_by)))
    broker.restart(_PRUNE)
    editor.wait_until_pruned(removed)
    return injected


def _growth(injected: Sequence[InjectedFault], records: int) -> Iterator[DemoRecord]:
    for each in injected:
        for offset in range(records, records + each.fault.grows_by):
            yield DemoRecord(partition=each.key.partition, offset=offset, key=b"", value=b"{}")


def _target(editor: StateTopicEditor, injected: InjectedFault, log_end_offset: int) -> FaultTarget:
    states, count = editor.states()
    home = state_partition_of(injected.key, count)
    return FaultTarget(
        state=states[injected.key],
        partition=injected.key.partition,
        neighbours=tuple(s for s in states.values() if state_partition_of(s.key, count) == home),
        state_partitions=count,
        log_end_offset=log_end_offset,
        now_ms=time.time_ns() // 1_000_000,
    )
