"""What a fault is, and where it is injected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from acktrail.format.wire.dialects.released import encode
from acktrail.model.batches import StateBatch
from acktrail.model.queue_status import QueueStatus
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord
from acktrail.model.replay import SharePartitionState
from acktrail.model.share_partition import SharePartition, state_partition_of


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedRecord:
    """One record that is appended to the state topic, as bytes. `is_pruned`: Kafka removes it before it is read."""

    state_partition: int
    key: bytes
    value: bytes | None
    timestamp_ms: int
    is_pruned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTarget:
    """A healthy share partition, to which a fault happens: every record of its log is acknowledged.

    `state`: what its share coordinator holds; before a fault of a partition that was added, the state of another
    partition of the same topic. `partition`: the partition of the topic. `neighbours`: the states of all share
    partitions on its state partition, itself included.
    """

    state: SharePartitionState
    partition: int
    neighbours: tuple[SharePartitionState, ...]
    state_partitions: int
    log_end_offset: int
    now_ms: int

    @property
    def key(self) -> SharePartition:
        """The share partition."""
        return replace(self.state.key, partition=self.partition)

    @property
    def start(self) -> int:
        """The recorded start offset."""
        return self.state.start_offset or 0

    @property
    def done(self) -> int:
        """The recorded delivery complete count."""
        return self.state.delivery_complete_count or 0

    @property
    def leader_epoch(self) -> int:
        """The recorded leader epoch, 0 where no update named one."""
        return self.state.leader_epoch or 0

    def update(self, **changes: Any) -> ShareUpdate:
        """An update that changes nothing else."""
        plain = ShareUpdate(
            key=self.key,
            snapshot_epoch=self.state.snapshot_epoch,
            leader_epoch=None,
            start_offset=None,
            delivery_complete_count=self.done,
            batches=(),
        )
        return replace(plain, **changes)

    def snapshot(self, **changes: Any) -> ShareSnapshot:
        """The next snapshot, of the same state unless `changes` say otherwise."""
        plain = next_snapshot(self.state, self.now_ms)
        return replace(replace(plain, key=self.key), **changes)

    def placed(self, *records: StateRecord, on: int | None = None, age_ms: int = 0) -> tuple[InjectedRecord, ...]:
        """`records` where a coordinator puts them (or `on` another state partition), as old as `age_ms`."""
        return tuple(self._placed(record, on, age_ms) for record in records)

    def _placed(self, record: StateRecord, on: int | None, age_ms: int) -> InjectedRecord:
        home = state_partition_of(record.key, self.state_partitions)
        key, value = encode(record)
        place = home if on is None else on
        return InjectedRecord(state_partition=place, key=key, value=value, timestamp_ms=self.now_ms - age_ms)


def next_snapshot(state: SharePartitionState, now_ms: int) -> ShareSnapshot:
    """The snapshot that a coordinator writes of `state` once it was not written for a while."""
    return ShareSnapshot(
        key=state.key,
        snapshot_epoch=state.snapshot_epoch + 1,
        state_epoch=state.state_epoch or 0,
        leader_epoch=state.leader_epoch or 0,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp_ms=min(state.create_timestamp_ms or now_ms, now_ms - 1),
        write_timestamp_ms=now_ms,
        batches=state.batches,
    )


def batch(first: int, last: int, state: int, count: int = 1) -> StateBatch:
    """Offsets `first` to `last` in one delivery state."""
    return StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)


class Seen(StrEnum):
    """Where a fault was seen."""

    KAFKA = "a fault of Kafka"
    CLUSTER = "a fault of a cluster or of its operation"
    STORED = "no broker writes it: damage, or a foreign writer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Exactly what is found of a fault that happens to one share partition: rules of ``findings``, names
    ``suite.rule`` of expectations that fail, the verdict on the share partition, and its status after that run."""

    findings: frozenset[str] = frozenset()
    failing: frozenset[str] = frozenset()
    verdict: str = "match"
    status: QueueStatus = QueueStatus.OK


def _itself(key: SharePartition) -> SharePartition:
    return key


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFault:
    """A named fault.

    `happens`: what goes wrong, and what comes of it. `issue`: where Kafka's developers describe it. `releases`: which
    are concerned. `inject`: the records that a state topic has after it, from the share partition it happens to. Before
    them `grows_by` records are written to the partition itself. `is_new_partition`: it happens to a partition that was
    added to the topic, and that has no state yet. `on_broker`: a running broker that loads the records describes the
    share partition as the fault says, from release `since` on. `subject`: the share partition that findings name, by
    the one that the fault happens to.
    """

    name: str
    happens: str
    seen: Seen
    releases: str
    inject: Callable[[FaultTarget], tuple[InjectedRecord, ...]]
    expected: Expected
    issue: str | None = None
    grows_by: int = 0
    is_new_partition: bool = False
    subject: Callable[[SharePartition], SharePartition] = _itself
    on_broker: bool = True
    since: str = "4.2"


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedFault:
    """A fault, and the share partition that it happened to."""

    fault: StateFault
    key: SharePartition

    @property
    def subject(self) -> SharePartition:
        """The share partition that findings name."""
        return self.fault.subject(self.key)
