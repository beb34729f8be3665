"""A cluster on paper in which all is well, faults that happen to it, and what acktrail then finds."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow.compute as pc
from jobs.world import World, batch, key_of, snapshot, topic_id, update
from samples.history_tables import build
from samples.memory_source import MemoryLog, MemoryTask

from acktrail.config import TablesConfig
from acktrail.connect.contract import SourceTaskContext
from acktrail.errors import InputError
from acktrail.executors import InProcess
from acktrail.format.wire.state_record import decode
from acktrail.model.records import StateRecord
from acktrail.model.share_partition import state_partition_of
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.delta_sink import DeltaSink
from acktrail_demo.faults.injections import FaultTarget, InjectedRecord
from acktrail_demo.faults.library import FoundFaults, InjectedFault, StateFault, find_faults
from acktrail_expectations.gate import validate_run
from acktrail_jobs.pipeline.reconcile_run import reconcile
from acktrail_jobs.pipeline.status_run import write_statuses

GROUP: Final = "order-desk"
RECORDS: Final = 100
"""Records of each partition of the topic."""


class ExportedWorld(World):
    """Its records reach the tables as an export brings them: by a task, positions and the sink."""

    def export(self, run_id: str, *, lost: dict[int, int] | None = None, at_most: int | None = None) -> None:
        """Export what is new from where the tables end; `lost`: the offset before which Kafka pruned a state
        partition."""
        assert at_most is None
        self.log_starts |= lost or {}
        sink = DeltaSink(self.tables, cluster_id="c1", run_id=run_id, clock=lambda: self.now)
        for partition in self.logs:
            task = MemoryTask([self._log(partition)], cluster_id="c1", batch_rows=64)
            task.start(SourceTaskContext(position=sink.position))
            while not task.is_finished:
                for rows in task.poll(0):
                    sink.put(rows)
            self.exported[partition] = len(self.logs[partition])
        sink.flush()

    def _log(self, partition: int) -> MemoryLog:
        log = self.logs[partition]
        return MemoryLog(
            pairs=log,
            partition=partition,
            topic_id=topic_id(99),
            start_offset=self.log_starts[partition],
            end_offset=len(log),
            times={offset: time for (on, offset), time in self.times.items() if on == partition},
        )


class FaultyWorld:
    """One group that finished everything in `partitions` partitions of one topic, and whose members are gone, as in the
    demo; those in `without_state` it never saw."""

    def __init__(self, folder: Path, *, partitions: int, without_state: Iterable[int] = ()) -> None:
        self.world = ExportedWorld(folder, state_partitions=97)
        self.world.topics[topic_id(1)].partitions = dict.fromkeys(range(partitions), (0, RECORDS))
        self.world.members[GROUP] = 0
        self.fresh = frozenset(without_state)
        for partition in range(partitions):
            if partition not in self.fresh:
                self._finish(partition)
        self._healthy = next(iter(self.world.states.values()))
        self._runs = 0

    def copied(self, folder: Path) -> FaultyWorld:
        """The same world at another place."""
        other = copy.copy(self)
        tables, config = self.world.tables, self.world.config
        memo = {id(tables): tables, id(config): config}
        other.world = copy.deepcopy(self.world, memo)
        shutil.copytree(config.uri, folder)
        other.world.config = TablesConfig(uri=str(folder))
        other.world.tables = Tables(other.world.config)
        return other

    def run(self, injected: Iterable[InjectedFault] = ()) -> FoundFaults:
        """Observe, reconcile, keep the history, validate, all in this process; compare with what was injected."""
        self._runs += 1
        run_id = f"r{self._runs}"
        self.world.observe(run_id)
        reconcile(self.world.config, lambda _rows: nullcontext(InProcess()), run_id)
        build(self.world.tables)
        write_statuses(self.world.config, InProcess(), run_id)
        summary = validate_run(self.world.tables, run_id, now=self.world.now)
        assert [result.error for result in summary.failed if result.error] == []
        return find_faults(self.world.tables, run_id, injected)

    def named_rows(self) -> dict[str, list[str]]:
        """The rows that each failing expectation of the newest run names, without what is only for information."""
        rows = self.world.tables.read("quality_results", where=pc.field("run_id") == f"r{self._runs}").to_pylist()
        return {
            f"{row['suite']}.{row['expectation']}": (row["observed_value"] or "").split("; ")
            for row in rows
            if row["success"] is False and row["severity"] != "info"
        }

    def is_of(self, injected: InjectedFault, row: str) -> bool:
        """Whether a named row is of the share partition with a fault, or of its state partition and of no other share
        partition."""
        key = injected.subject
        name = f"{key.group_id}/{self.world.topics[topic_id(1)].name}/{key.partition}"
        home = f"{state_partition_of(injected.key, len(self.world.logs))}/"
        return row == name or row.endswith(f" of {name}") or (row.startswith(home) and " of " not in row)

    def inject(self, fault: StateFault, partition: int) -> InjectedFault:
        """Let `fault` happen to the share partition of `partition`, as its broker would take it."""
        topic = self.world.topics[topic_id(1)]
        start, end = topic.partitions[partition]
        topic.partitions[partition] = (start, end + fault.grows_by)
        for record in fault.inject(self.target(partition)):
            self._append(record)
        key = key_of(GROUP, partition=partition)
        if key not in self.world.states:  # the group lists it all the same
            self.world.described[key] = {"start_offset": None, "lag": None}
        return InjectedFault(fault=fault, key=key)

    def target(self, partition: int) -> FaultTarget:
        """The share partition of `partition`, as it is now."""
        key, count = key_of(GROUP, partition=partition), len(self.world.logs)
        home = state_partition_of(key, count)
        states = self.world.states
        healthy = self._healthy if partition in self.fresh else states[key]
        return FaultTarget(
            state=healthy,
            partition=partition,
            neighbours=tuple(s for s in states.values() if state_partition_of(s.key, count) == home),
            state_partitions=count,
            log_end_offset=self.world.topics[topic_id(1)].partitions[partition][1],
            now_ms=int(self.world.now.timestamp() * 1_000),
        )

    def _append(self, record: InjectedRecord) -> None:
        on, offset = self.world.write_bytes(record.state_partition, record.key, record.value)
        self.world.times[on, offset] = record.timestamp_ms
        if record.is_pruned:
            self.world.log_starts[on] = offset + 1
        loaded = _decoded(record)
        if loaded is not None and state_partition_of(loaded.key, len(self.world.logs)) == on:
            self.world.take(loaded)
            if loaded.key.group_id != GROUP:  # no coordinator has the group
                self.world.groups[loaded.key.group_id] = "Dead"

    def _finish(self, partition: int) -> None:
        key = key_of(GROUP, partition=partition)
        first = snapshot(key, None, snapshot_epoch=0, leader_epoch=0)
        half = update(key, 0, RECORDS // 2, (batch(0, RECORDS // 2 - 1),))
        rest = update(key, 0, RECORDS, (batch(RECORDS // 2, RECORDS - 1),))
        self.world.write(first, *(replace(each, snapshot_epoch=0) for each in (half, rest)))


def _decoded(record: InjectedRecord) -> StateRecord | None:
    try:
        return decode(record.key, record.value)
    except InputError:
        return None
