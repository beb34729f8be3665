"""A state topic as a share coordinator writes it, in memory: what a broker's normal life leaves behind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from acktrail.columnar.decode import decode_records
from acktrail.columnar.schemas import RAW_RECORDS, STATE_RECORDS
from acktrail.model.batches import combine_state_batches
from acktrail.model.delivery import StateBatch, terminal_count
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.replay import SharePartitionState, advance
from acktrail.model.share_partition import GroupId, SharePartition, TopicId, state_partition_of
from acktrail.tables.conform import conform
from acktrail.wire.state_record import encode

STATE_PARTITIONS = 3
CLUSTER = "cluster-1"
TOPIC = TopicId("AQIDBAUGBwgJCgsMDQ4PEA")
OTHER_TOPIC = TopicId("EBESExQVFhcYGRobHB0eHw")

Bytes = tuple[bytes | None, bytes | None]


def share_partition(group: str = "orders", topic_id: TopicId = TOPIC, partition: int = 0) -> SharePartition:
    return SharePartition(group_id=GroupId(group), topic_id=topic_id, partition=partition)


def batch(first: int, last: int, state: int = 2, count: int = 1) -> StateBatch:
    return StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)


@dataclass
class Coordinator:
    """Writes records by the laws of Kafka 4.4 (``ShareCoordinatorShard``); after `limit` updates comes a snapshot."""

    limit: int = 5
    clock_ms: int = 1_000
    log: list[StateRecord] = field(default_factory=list)
    states: dict[SharePartition, SharePartitionState] = field(default_factory=dict)
    updates: dict[SharePartition, int] = field(default_factory=dict)

    def initialize(self, key: SharePartition, *, state_epoch: int = 1, start_offset: int | None = 0) -> None:
        """First start, or a reset from outside."""
        known = self.states.get(key)
        now = self._now()
        self._append(
            ShareSnapshot(
                key=key,
                snapshot_epoch=0 if known is None else known.snapshot_epoch + 1,
                state_epoch=state_epoch,
                leader_epoch=0,
                start_offset=start_offset,
                delivery_complete_count=None if start_offset is None else 0,
                create_timestamp_ms=now,
                write_timestamp_ms=now,
                batches=(),
            )
        )

    def write(self, key: SharePartition, start_offset: int, *batches: StateBatch) -> None:
        """Acknowledgements, from a share-partition leader."""
        state = self.states[key]
        start = start_offset if state.start_offset is None else max(start_offset, state.start_offset)
        whole = combine_state_batches(state.batches, batches, start)
        done = terminal_count(whole, start)
        if self.updates.get(key, 0) >= self.limit:
            now = self._now()
            self._snapshot(state, start, done, whole, created_ms=now, written_ms=now)
            self.updates[key] = 0
        else:
            self._update(state, state.leader_epoch, start, done, combine_state_batches((), batches, start))

    def load(self, key: SharePartition, leader_epoch: int) -> None:
        """A new leader reads the state: an empty update with its epoch."""
        state = self.states[key]
        self._update(state, leader_epoch, state.start_offset, state.delivery_complete_count, ())

    def cool(self) -> None:
        """The job that snapshots what was not written for a while."""
        for state in list(self.states.values()):
            created = state.create_timestamp_ms or 0
            start, done = state.start_offset, state.delivery_complete_count
            self._snapshot(state, start, done, state.batches, created_ms=created, written_ms=self._now())

    def delete(self, key: SharePartition) -> None:
        """92, a deleted group, a deleted topic."""
        self._append(Tombstone(key=key))
        self.updates.pop(key, None)

    def table(self) -> pa.Table:
        """The log as rows of ``STATE_RECORDS``."""
        return exported(self.log)

    def _snapshot(
        self,
        state: SharePartitionState,
        start_offset: int | None,
        done: int | None,
        batches: tuple[StateBatch, ...],
        *,
        created_ms: int,
        written_ms: int,
    ) -> None:
        assert state.state_epoch is not None
        assert state.leader_epoch is not None
        self._append(
            ShareSnapshot(
                key=state.key,
                snapshot_epoch=state.snapshot_epoch + 1,
                state_epoch=state.state_epoch,
                leader_epoch=state.leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=done,
                create_timestamp_ms=created_ms,
                write_timestamp_ms=written_ms,
                batches=batches,
            )
        )

    def _update(
        self,
        state: SharePartitionState,
        leader_epoch: int | None,
        start_offset: int | None,
        done: int | None,
        batches: tuple[StateBatch, ...],
    ) -> None:
        self._append(
            ShareUpdate(
                key=state.key,
                snapshot_epoch=state.snapshot_epoch,
                leader_epoch=leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=done,
                batches=batches,
            )
        )
        self.updates[state.key] = self.updates.get(state.key, 0) + 1

    def _append(self, record: StateRecord) -> None:
        self.log.append(record)
        advance(self.states, record)

    def _now(self) -> int:
        self.clock_ms += 1
        return self.clock_ms


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
    return conform(rows, STATE_RECORDS)


def everyday() -> Coordinator:
    """Every kind of record that normal life writes, for several share partitions of several groups."""
    life = Coordinator()
    first, second, waiting = (share_partition("orders", partition=n) for n in range(3))
    audit = share_partition("audit: ünï:code", OTHER_TOPIC)
    for key in (first, second, waiting):
        life.initialize(key, start_offset=None)
    life.initialize(audit, state_epoch=2, start_offset=7)
    life.load(first, 0)
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
