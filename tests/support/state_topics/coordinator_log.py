"""A state topic as a share coordinator writes it, in memory: what a broker's normal life leaves behind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from definitions.batch_rules import terminal_count

from acktrail.format.columns.decoding.decode_records import decode_records
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS, STATE_RECORDS
from acktrail.format.wire.state_record import encode
from acktrail.model.batches import StateBatch, combine_state_batches
from acktrail.model.records import StateRecord
from acktrail.model.replay import SharePartitionState
from acktrail.model.share_partition import GroupId, SharePartition, TopicId, state_partition_of
from acktrail.tables.delta.table_layout import cast_to_schema
from acktrail_simulation.coordinator.state_topic import ShareCoordinatorService
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.messages.persister_messages import PersisterRequest, StateDelete, StateInitialize, StateRead

STATE_PARTITIONS = 3
CLUSTER = "cluster-1"
TOPIC = TopicId("AQIDBAUGBwgJCgsMDQ4PEA")
OTHER_TOPIC = TopicId("EBESExQVFhcYGRobHB0eHw")

Bytes = tuple[bytes | None, bytes | None]


def share_partition(group: str = "orders", topic_id: TopicId = TOPIC, partition: int = 0) -> SharePartition:
    return SharePartition(group_id=GroupId(group), topic_id=topic_id, partition=partition)


def batch(first: int, last: int, state: int = 2, count: int = 1) -> StateBatch:
    return StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)


class Coordinator:
    """The simulated share coordinators of a small cluster, and all they wrote in the order of their writes.

    After `limit` updates of a key comes a snapshot. Every call is one that Kafka would take.
    """

    def __init__(self, limit: int = 5) -> None:
        self.topic = ShareCoordinatorService(partitions=STATE_PARTITIONS, updates_per_snapshot=limit, cold_after_ms=0)
        for topic_id in (TOPIC, OTHER_TOPIC):
            self.topic.create_topic(topic_id, 1_000)
        self.log: list[StateRecord] = []

    @property
    def states(self) -> dict[SharePartition, SharePartitionState]:
        return self.topic.states()

    def patience(self, limit: int) -> None:
        """From now on a snapshot comes after `limit` updates."""
        for coordinator in self.topic.coordinators:
            coordinator.memory.updates_per_snapshot = limit

    def initialize(self, key: SharePartition, *, state_epoch: int = 1, start_offset: int | None = 0) -> None:
        """First start, or a reset from outside."""
        self._ask(StateInitialize(key=key, state_epoch=state_epoch, start_offset=start_offset))

    def write(self, key: SharePartition, start_offset: int, *batches: StateBatch) -> None:
        """Acknowledgements, from the share-partition leader."""
        memory = self.topic.coordinator_of(key).memory
        state = memory.states[key]
        start = max(start_offset, state.start_offset or 0)
        self._ask(
            StateWrite(
                key=key,
                state_epoch=memory.state_epochs[key],
                leader_epoch=memory.leader_epochs[key],
                start_offset=start,
                delivery_complete_count=terminal_count(combine_state_batches(state.batches, batches, start), start),
                batches=batches,
            )
        )

    def load(self, key: SharePartition, leader_epoch: int) -> None:
        """A leader reads the state: an empty update with its epoch, when that is new."""
        self._ask(StateRead(key=key, leader_epoch=leader_epoch))

    def cool(self) -> None:
        """The job that snapshots what was not written for a while."""
        self.topic.clock.advance(1)
        for coordinator in self.topic.coordinators:
            self.log += coordinator.snapshot_cold()

    def delete(self, key: SharePartition) -> None:
        """92, a deleted group, a deleted topic."""
        self._ask(StateDelete(key=key))

    def table(self) -> pa.Table:
        """The log as rows of ``STATE_RECORDS``."""
        return exported(self.log)

    def _ask(self, request: PersisterRequest) -> None:
        self.topic.clock.advance(1)
        coordinator = self.topic.coordinator_of(request.key)
        before = coordinator.log.end_offset
        assert coordinator.answer(request).error is ErrorCode.NONE
        self.log += [entry.record for entry in coordinator.log.entries if entry.offset >= before]


def exported(records: Iterable[StateRecord], *, run_id: str = "run-1") -> pa.Table:
    """Records as the exporter writes them: to bytes, to their state partition, and decoded again."""
    ends = [0] * STATE_PARTITIONS
    rows = []
    for record in records:
        home = state_partition_of(record.key, STATE_PARTITIONS)
        key, value = encode(record)
        rows.append({"partition": home, "offset": ends[home], "timestamp": 1_000, "key": key, "value": value})
        ends[home] += 1
    return from_raw(rows, run_id=run_id)


def from_raw(rows: list[dict[str, Any]], *, run_id: str = "run-1") -> pa.Table:
    decoded = decode_records(pa.Table.from_pylist(rows, schema=RAW_RECORDS))
    return stamped(decoded, run_id=run_id)


def stamped(rows: pa.Table, *, run_id: str = "run-1") -> pa.Table:
    for name, text in (("cluster_id", CLUSTER), ("run_id", run_id)):
        rows = rows.append_column(name, pa.repeat(text, rows.num_rows))
    return cast_to_schema(rows, STATE_RECORDS)


def everyday() -> Coordinator:
    """Every kind of record that normal life writes, for several share partitions of several groups."""
    life = Coordinator()
    first, second, waiting = (share_partition("orders", partition=n) for n in range(3))
    audit = share_partition("audit: ünï:code", OTHER_TOPIC)
    for key in (first, second, waiting):
        life.initialize(key, start_offset=None)
    life.initialize(audit, state_epoch=2, start_offset=7)
    life.load(first, 1)
    life.write(first, 0, batch(0, 9))
    for at in range(10, 70, 10):
        life.write(first, at - 10, batch(at, at + 4), batch(at + 5, at + 6, 0, 1), batch(at + 8, at + 9, 4, 5))
    life.write(second, 0, batch(0, 0), batch(2, 2, 4, 3))
    life.cool()
    life.load(first, 2)
    life.load(second, 2)
    life.write(first, 60, batch(65, 66, 2, 2))
    life.initialize(first, state_epoch=9, start_offset=3)
    life.initialize(first, state_epoch=9, start_offset=1)
    life.write(first, 1, batch(1, 4))
    life.delete(second)
    life.delete(audit)
    life.initialize(share_partition("audit: ünï:code", TOPIC), state_epoch=3)
    life.initialize(second, state_epoch=1, start_offset=0)
    life.write(second, 0, batch(0, 5))
    life.cool()
    return life
