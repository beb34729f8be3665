"""Metrics, alerts and pages of the branch: what is counted, what fires, and that every name is described."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest
from expansion.support.rows import write_rows
from expansion.support.suite_rows import suite_rows
from health.alert_cases import case, later, needs_promtool, promtool
from prometheus_client.parser import text_string_to_metric_families
from samples.branch_names import metrics_of_branches
from samples.health_tables import HealthTables

from acktrail.tables.health.metrics_collector import metrics_text
from acktrail.tables.health.table_metrics import SeriesLimits
from acktrail_expansion.quality.expansion_gate import check_expansions

sys.path.append(str(Path(__file__).parents[3] / "tools"))

import write_rules  # a program of the folder `tools`

BROKEN: Final = 'acktrail_expansion_verdicts{cluster="c",verdict="broken"}'
NOT_PROVEN: Final = BROKEN.replace("broken", "not_proven")
SKIPPED: Final = 'acktrail_expansion_skipped_records{cluster="c"}'


@pytest.fixture
def health(tmp_path: Path) -> HealthTables:
    health = HealthTables(tmp_path / "tables")
    health.exported(5)
    health.reconciled()
    health.validated()
    return health


def values(health: HealthTables) -> dict[str, dict[str, float]]:
    """Of each family by its last label; the part of the tables too."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(metrics_text(health.config, SeriesLimits()).decode()):
        for sample in family.samples:
            key = [value for label, value in sorted(sample.labels.items()) if label != "cluster"][-1:]
            found.setdefault(sample.name.removeprefix("acktrail_"), {})["".join(key)] = sample.value
    return found


def test_expansions_and_verdicts_are_counted(health: HealthTables) -> None:
    """Every status and verdict that this release knows has a series; another one adds none. The suite stands beside
    those of runs, and is not taken for one."""
    before = values(health)
    assert "partition_expansions" not in before
    assert before["tables_readable"]["acktrail_expansion"] == 1
    rows = suite_rows({"g": "broken", "h": "safe", "i": "of a later release"}, skipped_records=2)
    write_rows(health.tables, rows)
    check_expansions(health.tables, ordered=("g",))
    found = values(health)

    assert found["partition_expansions"] == {"settled": 2, "settling": 0, "other": 0}
    assert found["expansion_verdicts"] == {"broken": 3, "safe": 3, "skipped": 0, "not_proven": 0, "other": 3}
    assert found["expansion_skipped_records"] == {"": 18}
    assert found["critical_expectations_failed"] == {"state_records": 0, "partition_expansions": 1}
    assert found["validation_timestamp_seconds"] == before["validation_timestamp_seconds"]


def test_every_metric_of_the_branch_is_documented(health: HealthTables) -> None:
    """docs/metrics.md has them in a section of their own, and no other."""
    before = values(health).keys()
    write_rows(health.tables, suite_rows({"g": "safe"}))

    assert {f"acktrail_{name}" for name in values(health).keys() - before} == metrics_of_branches()


@needs_promtool
def test_the_alerts_fire_on_what_they_are_for(tmp_path: Path) -> None:
    """On more broken verdicts and more skipped records within six hours, and on nothing that stays or gets less."""
    fires, quiet = {BROKEN: later(3, 30, 2), SKIPPED: later(1, 30)}, {BROKEN: later(1, 30, 2), SKIPPED: later(5, 30, 5)}
    names = "AcktrailOrderBroken", "AcktrailFirstRecordsSkipped"
    done = promtool(tmp_path, [case("fires", fires, *names), case("quiet", {**quiet, NOT_PROVEN: later(3, 30, 2)})])
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_committed_page_of_rules_has_no_other_section() -> None:
    """docs/rules.md is what `tools/write_rules.py` makes of the trunk's rules and the branch's: run it after a
    change."""
    assert write_rules.PAGE.read_text("utf-8") == write_rules.page()
