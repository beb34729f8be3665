"""Each fault of the library fires exactly its checks and alerts; where there is none, nothing fires."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from demo.fault_library.alerts import alerts_of
from demo.fault_library.faulty_world import FaultyWorld
from prometheus_client.parser import text_string_to_metric_families

from acktrail.config import TablesConfig
from acktrail.format.wire.dialects import decode
from acktrail.view.table_metrics import metrics_text
from acktrail_demo.faults.injections import export_gap
from acktrail_demo.faults.library import FAULTS, StateFault

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
    text = metrics_text(tables).decode()
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
