"""The demo's hold on a cluster: topics, groups, their configuration, the records that it writes, what the share
coordinators write meanwhile, and faults in the state topic: records that they did not write.

Faults are for throw-away brokers. Kafka takes records for an internal topic from a client with the id of its own admin
client, and a share coordinator that is started again loads them as if it had written them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from acktrail.config import KafkaConfig
from acktrail.errors import ConfigurationError, InputError, RetryableError
from acktrail.format.wire.state_record import decode
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.kafka.changes import ConfigsChange, raise_unless_done
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail.kafka.client.error_codes import error_for, librdkafka_error
from acktrail.kafka.describe_configs import broker_config
from acktrail.kafka.log_reader import LogReader, StateTopic
from acktrail.model.records import StateRecord, Tombstone
from acktrail.model.replay import SharePartitionState, advance
from acktrail.model.share_partition import STATE_TOPIC, SharePartition, TopicId, state_partition_of
from acktrail_demo.faults.injections import FaultTarget, InjectedRecord
from acktrail_demo.faults.library import FAULTS, InjectedFault, StateFault
from acktrail_demo.workload.scenario import DemoRecord
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

_PAUSE_S: Final = 0.05
_PATIENCE_S: Final = 30.0
# Full batches of fifty at any pace of this machine: they decide which records consumers get together.
_BATCHES: Final = {"linger.ms": 5_000, "batch.num.messages": 50, "enable.idempotence": True}
_ADMIN_CLIENT: Final = "__admin_client"
_PRUNE: Final = {"share.coordinator.state.topic.prune.interval.ms": "1000"}


class WorkloadUnfinished(RetryableError):
    """The workload did not finish; its groups and topics remain."""

    def __init__(self, reason: str, *, waiting_for: str) -> None:
        super().__init__(
            f"the demo workload is not finished, {reason}: waiting for {waiting_for}",
            hint="give it more time, or start it on an idle broker",
            data={"waiting_for": waiting_for},
        )


class WorkloadDeadline:
    """`seconds` from now. Several threads share it, and any of them can bring it forward."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds
        self._stopped = threading.Event()

    @property
    def remaining_s(self) -> float:
        """Seconds left, at least a tenth: clients take no time-out of zero."""
        return max(0.1, self._end - time.monotonic())

    def stop(self) -> None:
        """Make every later `check` fail."""
        self._stopped.set()

    def check(self, waiting_for: str) -> None:
        """Do nothing in time. Raises WorkloadUnfinished when time is up or another thread gave up."""
        if self._stopped.is_set():
            raise WorkloadUnfinished("it was stopped", waiting_for=waiting_for)
        if time.monotonic() > self._end:
            raise WorkloadUnfinished(f"its {self.seconds:g} s are over", waiting_for=waiting_for)

    def wait_until(self, condition: Callable[[], bool], waiting_for: str) -> None:
        """Wait until `condition` holds. Raises WorkloadUnfinished."""
        while not condition():
            self.check(waiting_for)
            self._stopped.wait(_PAUSE_S)


class DemoCluster:
    """Each call waits for its answer, at most until `deadline`. The methods may be called from several threads.

    Raises Unreachable; ConfigurationError for Kafka before 4.2: a 4.1 broker fails on the member ids that half of all
    share consumers of librdkafka take (base64 with ``+`` or ``/``), and they then ask again without a pause.
    """

    def __init__(self, config: KafkaConfig, deadline: WorkloadDeadline) -> None:
        self.config = config
        self._deadline = deadline
        with self._admin() as admin:
            capabilities = admin.capabilities()
        if not capabilities.reports_lag:
            raise ConfigurationError(
                f"the demo workload needs Kafka 4.2 or later, this cluster is {capabilities.release}",
                hint="4.1 cannot serve every share consumer; start a newer broker",
            )
        self._client = AdminClient(client_properties(config))

    def _admin(self) -> ShareGroupAdmin:
        """A client of its own for each call: it is not for several threads."""
        return ShareGroupAdmin(self.config, bootstrap_timeout_s=min(10.0, self._deadline.remaining_s))

    def create_topics(self, partitions: Mapping[str, int]) -> dict[str, TopicId]:
        """Create topics, partition counts by name, and wait until the cluster knows their ids."""
        new = [NewTopic(name, count) for name, count in partitions.items()]
        self._settle(self._client.create_topics(new, request_timeout=self._deadline.remaining_s), "CREATE")
        with self._admin() as admin:
            self._deadline.wait_until(lambda: partitions.keys() <= _names(admin), "the new topics to be known")
            return {topic.name: TopicId(topic.topic_id or "") for topic in admin.known_topics([*partitions])}

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until the cluster does not know the name any more."""
        self._settle(self._client.delete_topics([name], request_timeout=self._deadline.remaining_s), "DELETE")
        with self._admin() as admin:
            self._deadline.wait_until(lambda: name not in _names(admin), f"topic {name!r} to be deleted")

    def delete_group(self, group_id: str) -> None:
        """Delete a group that has no members."""
        with self._admin() as admin:
            raise_unless_done([admin.delete_group(group_id)], operation="DELETE")

    def wait_until_empty(self, group_ids: Sequence[str]) -> None:
        """Wait until no group has a member."""
        with self._admin() as admin:
            self._deadline.wait_until(
                lambda: not any(group.members for group in admin.describe_groups(group_ids)), "groups to be empty"
            )

    def configure_group(self, group_id: str, configs: Mapping[str, str]) -> int:
        """Set those of `configs` that this release knows; the delivery count limit that then holds for the group."""
        with self._admin() as admin:
            (found,) = admin.group_configs([group_id])
            if (in_force := found.configs) is None:
                raise error_for(found.error_code, None, operation="DESCRIBE_CONFIGS", kind="group", name=group_id)
            known = {name: value for name, value in configs.items() if name in in_force}
            change = ConfigsChange(group_id=group_id, configs=tuple(known.items()))
            raise_unless_done([admin.alter_group_configs(change)], operation="ALTER_CONFIGS")
            limit = {**in_force, **known}.get("share.delivery.count.limit")
            limit = limit or broker_config(client_of(admin), "group.share.delivery.count.limit")
        if limit is None:
            raise RetryableError("the brokers do not report how often they deliver a record", hint="try again")
        return int(limit)

    def _settle(self, answers: Mapping[str, Future[Any]], operation: str) -> None:
        """The first failure is raised."""
        for name, future in answers.items():
            try:
                future.result(timeout=self._deadline.remaining_s + 1)
            except KafkaException as error:
                raise librdkafka_error(error.args[0], operation=operation, kind="topic", name=name) from error


def _names(admin: ShareGroupAdmin) -> frozenset[str]:
    return frozenset(topic.name for topic in admin.topics())


class DemoProducer:
    """An idempotent producer: records of a topic that has no other one get the offsets of the plan. Threads take
    turns."""

    def __init__(self, config: KafkaConfig, deadline: WorkloadDeadline) -> None:
        self._deadline = deadline
        self._lock = threading.Lock()
        self._producer = Producer({**client_properties(config), **_BATCHES})
        self.written = 0

    def write(self, topic: str, records: Iterable[DemoRecord]) -> None:
        """Write `records` to `topic` and wait until the broker has them. Raises WorkloadUnfinished."""
        rows = ({"key": each.key, "value": each.value, "partition": each.partition} for each in records)
        with self._lock:
            write_all(self._producer, topic, rows, self._deadline, self._count)

    def _count(self) -> None:
        self.written += 1


def write_all(
    producer: Producer,
    topic: str,
    rows: Iterable[Mapping[str, Any]],
    deadline: WorkloadDeadline,
    count: Callable[[], None] = lambda: None,
) -> dict[int, int]:
    """Write records, each as ``Producer.produce`` takes it, and wait until the broker has them; the last offset by
    partition. `count` is called for each one. Raises WorkloadUnfinished, and why the first one that failed did."""
    last: dict[int, int] = {}
    failures: list[KafkaError] = []

    def note(error: KafkaError | None, message: Message) -> None:
        count()
        if error is None:
            last[message.partition() or 0] = message.offset() or 0
        else:
            failures.append(error)

    for row in rows:
        producer.produce(topic, on_delivery=note, **row)
        producer.poll(0)
    left = producer.flush(deadline.remaining_s)
    if failures:
        raise librdkafka_error(failures[0], operation="WRITE", kind="topic", name=topic)
    if left:
        raise WorkloadUnfinished("the time limit was reached", waiting_for=f"{left} records to be written to {topic!r}")
    return last


class StateObserver:
    """Which share partitions have state, and which had it deleted, by the records of the state topic."""

    def __init__(self, config: KafkaConfig, deadline: WorkloadDeadline) -> None:
        self._deadline = deadline
        self._lock = threading.Lock()
        self._is_deleted: dict[SharePartition, bool] = {}
        self._ends: Mapping[int, int] = {}
        self._admin = ShareGroupAdmin(config)

    def has_state(self, share_partitions: Iterable[SharePartition], *, deleted: bool = False) -> bool:
        """Whether each of them has state by now, or had it `deleted`."""
        with self._lock:
            records, self._ends = state_records(self._admin, self._ends)
            self._is_deleted |= {record.key: isinstance(record, Tombstone) for _, record in records}
            return all(self._is_deleted.get(key) is deleted for key in share_partitions)

    def wait(self, share_partitions: Collection[SharePartition], *, deleted: bool = False) -> None:
        """Until each of them has state, or had it `deleted`. Raises WorkloadUnfinished."""
        waiting_for = "share group state to be " + ("deleted" if deleted else "initialized")
        self._deadline.wait_until(lambda: self.has_state(share_partitions, deleted=deleted), waiting_for)

    def close(self) -> None:
        """Disconnect."""
        self._admin.close()


def state_records(
    admin: ShareGroupAdmin, begins: Mapping[int, int] = MappingProxyType({})
) -> tuple[list[tuple[int, StateRecord]], dict[int, int]]:
    """The records of the state topic from `begins` on, by state partition, each with its state partition, and where the
    logs end. None while the topic is not there: the first share group makes it. What cannot be read is left out."""
    topic, found = StateTopic(admin), list[tuple[int, StateRecord]]()
    if not topic.is_present:
        return found, {}
    logs = topic.log_offsets()
    ends = {number: log.high_watermark or 0 for number, log in logs.items()}
    ranges = {
        number: (max(begins.get(number, 0), logs[number].log_start_offset or 0), end) for number, end in ends.items()
    }
    for record in LogReader(topic, patience_s=_PATIENCE_S).records(ranges):
        with contextlib.suppress(InputError):
            found.append((record.state_partition, decode(record.key, record.value)))
    return found, ends


def client_properties(config: KafkaConfig) -> dict[str, Any]:
    """What a client of librdkafka is configured with to connect as `config` says; it logs nothing."""
    return {**to_librdkafka(config), "log_level": 2}


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
        for is_pruned, own in groupby(records, attrgetter("is_pruned")):
            rows = (
                {"key": r.key, "value": r.value, "partition": r.state_partition, "timestamp": r.timestamp_ms}
                for r in own
            )
            last = write_all(producer, STATE_TOPIC, rows, self._deadline)
            pruned |= last if is_pruned else {}
        return pruned

    def wait_until_pruned(self, removed: Mapping[int, int]) -> None:
        """Wait until each state partition begins after the offset in `removed`."""
        self._deadline.wait_until(lambda: self._begins_after(removed), "redundant state records to be pruned")

    def _begins_after(self, removed: Mapping[int, int]) -> bool:
        """Whether each state partition begins after its offset. False, too, while a partition has no leader."""
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
    broker.restart(_PRUNE)  # has a time-out of its own, which is longer
    StateTopicEditor(broker.config(), WorkloadDeadline(_PATIENCE_S)).wait_until_pruned(removed)
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
