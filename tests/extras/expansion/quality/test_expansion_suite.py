"""What the suite says of the tables of an audit, and what reaches people of it: findings, messages, metrics, alerts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from extras.expansion.support.rows import CLUSTER, RUN, GrownTopic, Rows, rows_of, write_rows
from samples.branch_names import metrics_of_branches
from samples.health_tables import HOSTILE
from view.alert_cases import case, needs_promtool, promtool

from acktrail.branches import loaded
from acktrail.config import TablesConfig
from acktrail.errors import QualityGateFailed
from acktrail.model.rules.catalogue import QualitySeverity, rule_catalogue
from acktrail.tables.delta.store import Tables
from acktrail.view.finding_rows import open_findings
from acktrail.view.notifications import Notification, send_changes
from acktrail.view.table_metrics import metrics_text
from acktrail_expansion import EXPANSION
from acktrail_expansion.ordering.order import FenceGap, OrderVerdict
from acktrail_expansion.quality.expansion_findings import write_findings
from acktrail_expansion.quality.expansion_suite import SUITE, check_expansions, pass_expansion_gate
from acktrail_expectations.data_context import export_suites
from acktrail_expectations.rule_results import ValidationSummary

pytestmark = pytest.mark.filterwarnings("default")

CALM = {"billing-workers": "safe", "audit": "not_proven:not_begun"}
BOTH = {"verdict": "broken", "skipped_records": 5}
LATE = {"status": "settling", "first_seen_new_at": datetime(2026, 1, 1, tzinfo=UTC)}
FOUND = {"settle_time_long_enough", "ordered_group_kept_order", "group_kept_order", "first_records_delivered"}
"""The rules whose breach is a finding."""
DAMAGES: list[tuple[set[str], str, str, dict[str, Any]]] = [
    ({"log_kept_records"}, "expansion_fences", "partition", {"reason": FenceGap.TRUNCATED.value}),
    ({"fence_low_le_high"}, "expansion_fences", "partition", {"fence_high": 1}),
    ({"settle_time_long_enough"}, "expansion_fences", "late_records", {"late_records": 2}),
    ({"expansion_settles"}, "partition_expansions", "status", LATE),
    ({"ordered_group_kept_order"}, "expansion_verdicts", "billing-workers", {"verdict": "broken"}),
    ({"group_kept_order"}, "expansion_verdicts", "audit", {"verdict": "broken"}),
    ({"first_records_delivered"}, "expansion_verdicts", "audit", {"verdict": "skipped", "skipped_records": None}),
    ({"group_kept_order", "first_records_delivered"}, "expansion_verdicts", "audit", BOTH),
]
"""The rules that break, the table, what its rows have, and what is changed in the last of them."""


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tables:
    monkeypatch.setenv("ACKTRAIL_ORDERED_GROUPS", "billing-*")
    return Tables(TablesConfig(uri=str(tmp_path / "tables")))


def grown(verdicts: Mapping[str, str], topic: str = "orders", **verdict: Any) -> Rows:
    """One topic grew from 2 to 3 partitions, another one from 2 to 4."""
    rows = rows_of(*(GrownTopic(topic=each, new_count=n, verdicts=verdicts) for each, n in ((topic, 3), ("pay", 4))))
    for row in rows["expansion_verdicts"]:
        row.update({"skipped_records": row.get("skipped_records", 0), **verdict})
    return rows


def checked(tables: Tables, rows: Rows) -> ValidationSummary:
    tables.begin()
    write_rows(tables, rows)
    summary = check_expansions(tables, RUN)
    assert [result.error for result in summary.results if result.error] == []
    assert {result.expectation for result in summary.results} == rule_catalogue().audits.keys()
    return summary


def found(tables: Tables) -> set[str]:
    """The rules with findings that are open after an audit."""
    write_findings(tables, CLUSTER, 1, tables.transaction_version("findings", EXPANSION.audit))
    return {each.rule for each in open_findings(tables)}


def test_tables_in_order_break_no_rule(tables: Tables, tmp_path: Path) -> None:
    """What has nothing to compare is not evaluated, with a reason: before the first audit, all. Results have totals,
    and the suite is exported with those of runs."""
    nothing = checked(tables, {})
    assert len(nothing.not_evaluated) == len(rule_catalogue().audits) <= 8
    rows = grown(CALM)
    rows["partition_expansions"][0].update(LATE, first_seen_new_at=datetime.now(UTC) - timedelta(minutes=20))
    summary = checked(tables, rows)
    assert [result.expectation for result in summary.not_evaluated] == ["group_kept_order"]
    assert check_expansions(tables, "a-look-that-listed-no-topic").cluster_id == summary.cluster_id == CLUSTER
    assert all(result.reason for result in (*nothing.not_evaluated, *summary.not_evaluated))
    assert Counter(row["state"] for row in tables.rows("quality_results")) == {
        "holds": 12,
        "not_evaluated": len(rule_catalogue().audits) + 2,
    }
    assert SUITE in {file.stem for file in export_suites(tmp_path)}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: "-".join(sorted(damage[0])))
def test_a_damage_breaks_its_rules_alone(tables: Tables, damage: tuple[set[str], str, str, dict[str, Any]]) -> None:
    """What breaks an expectation is a finding. Of critical rules the gate stops, and only of those."""
    (rules, table, of, change), rows = damage, grown(CALM)
    damaged = [row for row in rows[table] if row.get(of) is not None or row.get("group_id") == of]
    damaged[-1].update(change)
    summary = checked(tables, rows)
    assert {result.expectation for result in summary.failed} == rules
    assert found(tables) == rules & FOUND
    is_critical = any(rule_catalogue().by_id[rule].severity is QualitySeverity.CRITICAL for rule in rules)
    with pytest.raises(QualityGateFailed, match=min(rules)) if is_critical else nullcontext():
        pass_expansion_gate(summary)


def test_every_rule_is_broken_and_what_is_not_known_is_not_evaluated(tables: Tables) -> None:
    """Null is neither right nor wrong, and what is not proven is not kept order."""
    assert set().union(*(rules for rules, *_ in DAMAGES)) == rule_catalogue().audits.keys()
    rows = grown({"billing-workers": "not_proven", "audit": "not_proven"}, skipped_records=None)
    for row in rows["expansion_fences"]:
        row.update(fence_low=None, late_records=None)
    summary = checked(tables, rows)
    assert [result.expectation for result in summary.results if result.success is not None] == ["log_kept_records"]


def sent(tables: Tables, verdict: str, group: str = "g", topic: str = "orders") -> list[tuple[str, str]]:
    """Title and text of what goes out after an audit with this verdict of a group."""
    rows = grown({group: verdict}, topic)
    rows["expansion_fences"][1]["late_records"] = 2 if verdict == "skipped" else 0
    write_rows(tables, rows)
    found(tables)
    out: list[Notification] = []
    (messages,) = loaded("messages")
    send_changes(tables, RUN, out.append, messages)
    return [(each.title, each.text) for each in out]


def test_each_topic_that_grew_and_each_finding_is_said_once(tables: Tables) -> None:
    """A finding of a rule is about an expansion, or a group in one: the worst partition, with what is proven and what
    to do. An audit that does not find it any more closes it. Names do no harm."""
    assert {title for title, _ in sent(tables, "safe")} == {
        f"{n} partitions, up from 2" for n in ("orders has 3", "pay has 4")
    }
    assert sent(tables, "safe") == []
    broken = dict(sent(tables, "broken"))
    assert sorted(broken) == [f"Warning finding: group_kept_order in {topic}, group g" for topic in ("orders", "pay")]
    assert broken["Warning finding: group_kept_order in pay, group g"].startswith(
        "expansion from 2 to 4 partitions: Partition 2 was begun with 58 records of partition 0 below offset 4,800 "
        "open, the first at offset 4,711: shown by commits. It is so in 2 partitions. If the group needs order"
    )
    assert sent(tables, "broken") == []
    late, *skipped = (text for _, text in sent(tables, "skipped"))
    assert "Partition 1 got 2 records by the old count after the settle time." in late
    assert [("never got 312 records" in text, "acktrail change plan reset" in text) for text in skipped] == [
        (True, True)
    ] * 2
    hostile = sent(tables, "broken", HOSTILE, HOSTILE)
    assert [(title + text).isprintable() for title, text in hostile] == [True] * 3
    assert sent(tables, "safe") == []
    assert found(tables) == set()


def test_expansions_and_verdicts_are_counted(tables: Tables) -> None:
    """Every status and verdict has a series, and docs/reference/metrics.md names each metric; the suite stands beside
    those of runs."""
    checked(tables, grown({"billing-workers": "broken", "h": "safe"}, skipped_records=2))
    text = metrics_text(tables.config)[0].decode()
    series = re.findall(r'^(acktrail_\w+)\{cluster="[^"]*"(?:,\w+="(\w+)")?\} (.*)$', text, re.MULTILINE)
    values = {(name, label): float(value) for name, label, value in series}
    assert values["acktrail_critical_expectations_failed", SUITE] == 1
    assert {name for name, _ in values if "expansion" in name} == metrics_of_branches()
    assert [values["acktrail_partition_expansions", status] for status in ("settled", "settling")] == [2, 0]
    verdicts = [values["acktrail_expansion_verdicts", verdict] for verdict in OrderVerdict]
    assert (verdicts, values["acktrail_expansion_skipped_records", ""]) == ([3, 3, 0, 0], 12)


@needs_promtool
def test_the_alerts_fire_on_what_they_are_for(tmp_path: Path) -> None:
    """On more broken verdicts and more skipped records within six hours, and on nothing that stays or gets less."""
    broken, skipped = (
        'acktrail_expansion_verdicts{cluster="c",verdict="broken"}',
        'acktrail_expansion_skipped_records{cluster="c"}',
    )
    fires = case(
        "fires", {broken: "later 3 30 2", skipped: "later 1 30"}, "AcktrailOrderBroken", "AcktrailFirstRecordsSkipped"
    )
    done = promtool(tmp_path, [fires, case("quiet", {broken: "later 1 30 2", skipped: "later 5 30 5"})])
    assert done.returncode == 0, done.stdout + done.stderr
