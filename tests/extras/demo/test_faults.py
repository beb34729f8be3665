"""Each fault of the library fires exactly its checks and alerts; where there is none, nothing fires. The page of faults
has every fault and every rule."""

from __future__ import annotations

import copy
import re
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Final

import pyarrow.compute as pc
import pytest
import yaml
from extras.demo.alerts import alerts_of
from jobs.world import World, batch, key_of, snapshot, topic_id, update
from prometheus_client.parser import text_string_to_metric_families
from samples.history_tables import build
from samples.memory_source import MemoryLog, MemoryTask

from acktrail.config import TablesConfig
from acktrail.errors import InputError
from acktrail.format.wire.state_record import decode
from acktrail.model.share_partition import state_partition_of
from acktrail.tables.delta.store import Tables
from acktrail.view.table_metrics import metrics_text
from acktrail_connect.contract import SourceTaskContext
from acktrail_connect.sinks.delta_sink import DeltaSink
from acktrail_demo.faults.injections import FaultTarget, InjectedRecord, export_gap
from acktrail_demo.faults.library import FAULTS, FoundFaults, InjectedFault, StateFault, find_faults, parse_faults
from acktrail_expectations.gate import validate_run
from acktrail_jobs.frames import in_process
from acktrail_jobs.reconcile.reconcile_run import reconcile
from acktrail_jobs.statuses.status_run import write_statuses

sys.path.append(str(Path(__file__).parents[3] / "tools"))

import write_faults  # a program of the folder `tools`

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
        for partition, pairs in self.logs.items():
            log = MemoryLog(
                pairs=pairs,
                partition=partition,
                topic_id=topic_id(99),
                start_offset=self.log_starts[partition],
                end_offset=len(pairs),
                times={offset: time for (on, offset), time in self.times.items() if on == partition},
            )
            task = MemoryTask([log], cluster_id="c1", batch_rows=64)
            task.start(SourceTaskContext(position=sink.position))
            while not task.is_finished:
                for rows in task.poll(0):
                    sink.put(rows)
            self.exported[partition] = len(pairs)
        sink.flush()


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
        reconcile(self.world.config, in_process(), run_id)
        build(self.world.tables)
        write_statuses(self.world.config, in_process(), run_id)
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
        with suppress(InputError):
            loaded = decode(record.key, record.value)
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


ROOT = Path(__file__).parents[3]
ALL = tuple(FAULTS.values())


def simple_alerts() -> dict[str, tuple[str, dict[str, str]]]:
    """Metric and labels of the alerts that fire where such a metric is above 0."""
    groups = yaml.safe_load((ROOT / "dashboards/prometheus/acktrail-alerts.yml").read_text("utf-8"))["groups"]
    rules = {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}
    parsed = {name: re.fullmatch(r"(\w+)(?:\{(\w+)=\"(\w+)\"\})? > 0", expr) for name, expr in rules.items()}
    return {name: (m[1], {m[2]: m[3]} if m[2] else {}) for name, m in parsed.items() if m}


def alerts_by_metrics(tables: TablesConfig) -> set[str]:
    """The simple alerts that fire now."""
    text = metrics_text(tables)[0].decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {
        name
        for name, (metric, labels) in simple_alerts().items()
        if any(s.name == metric and labels.items() <= s.labels.items() and s.value > 0 for s in samples)
    }


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> FaultyWorld:
    """A share partition for each fault, exported and reconciled once; nothing was found."""
    added = [number for number, fault in enumerate(ALL) if fault.is_new_partition]
    world = FaultyWorld(tmp_path_factory.mktemp("healthy") / "tables", partitions=len(ALL), without_state=added)
    assert world.run().others == frozenset()
    assert alerts_by_metrics(world.world.config) == set()
    return world


def test_a_gap_ends_where_nothing_else_is_lost(healthy: FaultyWorld) -> None:
    """The log begins at the snapshot of the share partition with the gap: others may have newer ones and lose none."""
    number = next(number for number, fault in enumerate(ALL) if fault.name == "export_gap")
    others = tuple(healthy.target(each).state for each in range(4) if each not in healthy.fresh)
    target = replace(healthy.target(number), neighbours=(*others, healthy.target(number).state))
    kept = [decode(record.key, record.value) for record in export_gap(target) if not record.is_pruned]

    assert kept[0].key == target.key
    assert sorted(record.key for record in kept) == sorted(state.key for state in target.neighbours)


def apart() -> list[list[StateFault]]:
    """The faults in groups in which no two make the same rule of the gate fail. What ends a state log comes first."""
    groups: list[list[StateFault]] = []
    for fault in sorted(ALL, key=lambda fault: -len(fault.expected.failing)):
        fitting = (own for own in groups if all(fault.expected.failing.isdisjoint(o.expected.failing) for o in own))
        own = next(fitting, None)
        groups.append([fault]) if own is None else own.append(fault)
    return [sorted(own, key=lambda fault: fault.name != "export_gap") for own in groups]


@pytest.mark.few(1)
@pytest.mark.parametrize("group", apart(), ids=lambda group: group[0].name)
def test_a_fault_fires_exactly_its_checks(healthy: FaultyWorld, tmp_path: Path, group: list[StateFault]) -> None:
    """Findings, verdicts and statuses of each share partition are those that its fault names, no more and no fewer; so
    are the expectations that fail, and the rows that they name are of the share partition that has the fault."""
    world = healthy.copied(tmp_path / "tables")
    injected = [world.inject(fault, ALL.index(fault)) for fault in group]

    found = world.run(injected)

    assert (set(found.missing), found.others) == ({frozenset()}, frozenset())
    cause = {rule: each for each in injected for rule in each.fault.expected.failing}
    named = world.named_rows()
    assert named.keys() == cause.keys()
    for rule, rows in named.items():
        assert rows, rule
        assert all(world.is_of(cause[rule], row) for row in rows), (rule, rows)


def test_all_faults_at_once_are_found_one_by_one(healthy: FaultyWorld, tmp_path: Path) -> None:
    """No fault hides another one: together they fire what each of them fires alone."""
    world = healthy.copied(tmp_path / "tables")
    pruned_first = sorted(ALL, key=lambda fault: fault.name != "export_gap")
    found = world.run([world.inject(fault, ALL.index(fault)) for fault in pruned_first])
    assert found.is_exact, found
    raised = frozenset().union(*map(alerts_of, ALL))
    assert alerts_by_metrics(world.world.config) == raised & simple_alerts().keys()


def test_no_fault_is_unseen() -> None:
    """Each fault breaks at least one rule of the catalogue, and no two faults are found in the same way."""
    broken = {name: write_faults.broken_by(fault) for name, fault in FAULTS.items()}
    assert [name for name, rules in broken.items() if not rules] == []
    assert len({(fault.expected.findings, fault.expected.failing) for fault in FAULTS.values()}) == len(FAULTS)


TEXT = files("acktrail_demo.faults").joinpath("faults.toml").read_text("utf-8")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('happens = "', 'occurs = "', "'occurs' is not a field of StateFault"),
        ('happens = "', '# "', "'happens' is missing"),
        ('seen = "kafka', 'seen = "nowhere', "'nowhere' is not a valid Seen"),
        ('status = "rewound', 'status = "unwound', "'unwound' is not a valid QueueStatus"),
        ('fails = ["state_records.', 'fails = ["state_record.', "there is no rule 'state_record."),
        ('name = "start_offset_regression', 'name = "start_offset_progress', "nothing injects start_offset_progress"),
        ('name = "complete_count_regression', 'name = "start_offset_regression', "another fault has the name"),
        ("[[fault]]", "[[fault]", "f: "),
    ],
)
def test_a_wrong_fault_is_refused_with_its_line(old: str, new: str, says: str) -> None:
    """A field that is missing or not known, an unknown origin, status, rule or injection, a name twice, no TOML."""
    with pytest.raises(ValueError, match=rf"f, line \d+: .*{says}|^{says}.*line"):
        parse_faults(TEXT.replace(old, new, 1), "f")
