"""Each fault of the library fires exactly its checks and alerts; where there is none, nothing fires. The page of faults
has every fault and every rule."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import pytest
import write_faults  # a program of the folder `tools`
import yaml
from demo.alerts import alerts_of
from demo.faulty_world import FaultyWorld
from prometheus_client.parser import text_string_to_metric_families

from acktrail.config import TablesConfig
from acktrail.format.wire.state_record import decode
from acktrail.model.rules.catalogue import BRANCH_RULES, QUALITY_RULES, QualityRule
from acktrail.view.table_metrics import metrics_text
from acktrail_demo.faults.injections import export_gap
from acktrail_demo.faults.library import FAULTS, StateFault, parse_faults

ROOT = Path(__file__).parents[2]
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


DAMAGE_TESTS = ("tests/expectations", "tests/jobs", "tests/model", "tests/simulation", "tests/copied_logs")
"""Where tests break data that no fault breaks."""


def test_no_fault_is_unseen() -> None:
    """Each fault breaks at least one rule of the catalogue, and no two faults are found in the same way."""
    broken = {name: write_faults.broken_by(fault) for name, fault in FAULTS.items()}
    assert [name for name, rules in broken.items() if not rules] == []
    assert len({(fault.expected.findings, fault.expected.failing) for fault in FAULTS.values()}) == len(FAULTS)


def test_every_rule_is_seen_broken() -> None:
    """Each rule of the trunk is broken by a fault, or named by a test that breaks data."""
    broken = frozenset(BRANCH_RULES).union(*map(write_faults.broken_by, FAULTS.values()))
    texts = [
        file.read_text("utf-8")
        for folder in DAMAGE_TESTS
        for kind in ("py", "json")
        for file in (ROOT / folder).rglob(f"*.{kind}")
    ]
    others = [rule for rule in QUALITY_RULES if rule.id not in broken]
    assert [rule.id for rule in others if not any(_names(text, rule) for text in texts)] == []


def _names(text: str, rule: QualityRule) -> bool:
    return any(re.search(rf'[" ]{id_}[" ]', text) or f"Rule.{id_.upper()}" in text for id_ in rule.ids)


TEXT = files("acktrail_demo.faults").joinpath("faults.toml").read_text("utf-8")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('happens = "', 'occurs = "', "'occurs' is no field of a StateFault"),
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
