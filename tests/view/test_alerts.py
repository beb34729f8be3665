"""The alert rules fire on what they are for, and on nothing else: Prometheus's own tool evaluates them over hours."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus

import yaml
from samples.branch_names import is_of_branch
from view.alert_cases import (
    MINUTES,
    NOW,
    ROOT,
    RULES,
    Series,
    always,
    case,
    every,
    later,
    needs_promtool,
    promtool,
)

from acktrail_dashboard.web.application import PAGES

DASHBOARD: Final = "{{ with $externalLabels.acktrail_dashboard }}{{ . }}{{ else }}http://127.0.0.1:8085{{ end }}"


def status(name: str, since: int) -> Series:
    return {f'acktrail_group_share_partitions{{cluster="c",group="g",status="{name}"}}': later(1, since)}


FIRING: Final[Mapping[str, tuple[Series, Series]]] = {
    "AcktrailWorkerDown": (
        {'up{job="acktrail",instance="a:9464"}': later(0, 7, 1)},
        {'up{job="acktrail",instance="a:9464"}': later(0, 4, 1), 'up{job="other",instance="b"}': always(0)},
    ),
    "AcktrailTaskFailed": (
        {'acktrail_task_state{connector="state",task="0",state="FAILED"}': later(1, 4)},
        {'acktrail_task_state{connector="state",task="0",state="FAILED"}': later(1, 1)},
    ),
    "AcktrailTaskSilent": (
        {'acktrail_last_success_timestamp_seconds{connector="state",task="0"}': always(60 * (MINUTES - 25))},
        {'acktrail_last_success_timestamp_seconds{connector="state",task="0"}': every(1, lag=14)},
    ),
    "AcktrailExportStale": (
        {'acktrail_export_timestamp_seconds{cluster="c"}': always(60 * (MINUTES - 40))},
        {'acktrail_export_timestamp_seconds{cluster="c"}': every(15, lag=10)},
    ),
    "AcktrailGapRecorded": (
        {'acktrail_export_newest_gap_timestamp_seconds{cluster="c",reason="pruned"}': later(60 * MINUTES - 600, 9)},
        {'acktrail_export_newest_gap_timestamp_seconds{cluster="c",reason="dropped_by_retention"}': every(1)},
    ),
    "AcktrailRecordsQuarantined": (
        {'acktrail_stored_quarantined_records{cluster="c"}': later(8, 30, 7)},
        {'acktrail_stored_quarantined_records{cluster="c"}': later(6, 30, 7)},
    ),
    "AcktrailTablesUnreadable": (
        {'acktrail_tables_readable{cluster="c",part="exports"}': later(0, 17, 1)},
        {'acktrail_tables_readable{cluster="c",part="exports"}': later(0, 10, 1)},
    ),
    "AcktrailMetricsStale": (
        {'acktrail_tables_read_timestamp_seconds{cluster="c"}': always(60 * (MINUTES - 25))},
        {'acktrail_tables_read_timestamp_seconds{cluster="c"}': every(5, lag=5)},
    ),
    "AcktrailCriticalExpectationFailed": (
        {'acktrail_critical_expectations_failed{cluster="c",suite="batches"}': later(1, 1)},
        {'acktrail_expectations{cluster="c",suite="batches",state="fails"}': always(4)},
    ),
    "AcktrailCriticalFinding": (
        {'acktrail_open_findings{cluster="c",severity="critical"}': later(1, 1)},
        {'acktrail_open_findings{cluster="c",severity="error"}': always(2)},
    ),
    "AcktrailReconcileMismatch": (
        {'acktrail_lasting_mismatches{cluster="c"}': later(1, 1)},
        {'acktrail_verdicts{cluster="c",verdict="live_ahead"}': always(2)},
    ),
    "AcktrailReconciliationStale": (
        {
            'acktrail_reconciliation_timestamp_seconds{cluster="c"}': always(60 * (MINUTES - 130)),
            'acktrail_validation_timestamp_seconds{cluster="c"}': always(60 * (MINUTES - 129)),
        },
        {'acktrail_reconciliation_timestamp_seconds{cluster="c"}': every(90)},
    ),
    "AcktrailNotValidated": (
        {'acktrail_validation_timestamp_seconds{cluster="c"}': always(60 * (MINUTES - 240))},
        {'acktrail_validation_timestamp_seconds{cluster="c"}': every(60, lag=70)},
    ),
    "AcktrailRetentionRisk": (status("retention_risk", 1), status("retention_risk", 0)),
    "AcktrailGroupUnattended": (status("unattended", 17), status("unattended", 13)),
    "AcktrailGroupStuck": (status("stuck", 12), status("stuck", 9)),
    "AcktrailArchivingStuck": (status("archiving_stuck", 12), status("archiving_stuck", 9)),
    "AcktrailRejectStorm": (status("reject_storm", 7), status("reject_storm", 4)),
    "AcktrailReleaseLoop": (status("release_loop", 17), status("release_loop", 14)),
    "AcktrailGroupLagging": (status("lagging", 62), status("lagging", 58)),
    "AcktrailStatusUnknown": (status("state_unknown", 122), status("state_unknown", 118)),
    "AcktrailDeadLetterTopicMissing": (
        {'acktrail_dead_letter_topics{state="missing"}': later(1, 17)},
        {'acktrail_dead_letter_topics{state="missing"}': later(1, 13)},
    ),
}
"""By alert: series that make it fire, and some that come close to that; beside those of idle topics."""


def rules() -> list[dict[str, Any]]:
    """Those of branches, too."""
    return [rule for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"] for rule in group["rules"]]


def together(parts: list[Series]) -> Series:
    """All of them; no two have the same series."""
    found = {key: values for part in parts for key, values in part.items()}
    assert len(found) == sum(map(len, parts))
    return found


@needs_promtool
def test_each_alert_fires_on_what_it_is_for(tmp_path: Path) -> None:
    """And no other with it; close to it, and on idle topics, none does. A third of the alerts at once."""
    tests = [case("idle topics", {}), case("close to every alert", together([quiet for _, quiet in FIRING.values()]))]
    for third in range(3):
        names = [*FIRING][third::3]
        tests.append(case(", ".join(names), together([FIRING[name][0] for name in names]), *names))
    done = promtool(tmp_path, tests)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_a_test_of_rules_can_fail(tmp_path: Path) -> None:
    """An alert that is expected and does not fire is noticed."""
    assert "AcktrailGroupStuck" in promtool(tmp_path, [case("wrong", {}, "AcktrailGroupStuck")]).stderr


@needs_promtool
def test_the_texts_name_group_and_runbook(tmp_path: Path) -> None:
    """What a person is sent has the group's name as it is in the label, and links to its page and to the runbook: on
    the dashboard that an external label names, else on this machine."""
    (rule,) = [rule for rule in rules() if rule["alert"] == "AcktrailGroupStuck"]
    group = '<b>{{7*7}}" OR 1=1'
    labels = {"severity": "critical", "cluster": "c", "group": group, "status": "stuck"}
    texts = {
        "summary": f"{group} is stuck",
        "description": rule["annotations"]["description"].replace("{{ $value }}", "1"),
        "dashboard_url": "https://airflow.example/acktrail/group?id=" + quote_plus(group),
        "runbook_url": "https://airflow.example/acktrail/runbooks#acktrailgroupstuck",
    }
    series = f'acktrail_group_share_partitions{{cluster="c",group={json.dumps(group)},status="stuck"}}'
    test = case("texts", {series: later(1, 12)}, "AcktrailGroupStuck")
    fired = [{"exp_labels": labels, "exp_annotations": texts}]
    test["alert_rule_test"] = [{"eval_time": NOW, "alertname": "AcktrailGroupStuck", "exp_alerts": fired}]
    test["external_labels"] = {"acktrail_dashboard": "https://airflow.example/acktrail"}
    here = {
        name: text.replace("https://airflow.example/acktrail", "http://127.0.0.1:8085") for name, text in texts.items()
    }
    usual = case("usual", {series: later(1, 12)}, "AcktrailGroupStuck")
    fired_here = [{"exp_labels": labels, "exp_annotations": here}]
    usual["alert_rule_test"] = [{"eval_time": NOW, "alertname": "AcktrailGroupStuck", "exp_alerts": fired_here}]
    done = promtool(tmp_path, [test, usual])
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_and_has_a_runbook() -> None:
    """A section of docs/runbooks.md each, in the order of the rules, with what it means, a first look and what to do; a
    severity, a summary, a description and links to pages that the dashboard has."""
    text = (ROOT / "docs/runbooks.md").read_text("utf-8")
    names = [rule["alert"] for rule in rules()]
    assert {rule["alert"] for rule in rules() if not is_of_branch(rule)} == set(FIRING)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == names
    for rule in rules():
        section = text.split(f"\n## {rule['alert']}\n")[1].split("\n## ")[0]
        assert all(part in section for part in ("**Means:**", "**First look:**", "**Do:**"))
        assert rule["annotations"]["runbook_url"] == f"{DASHBOARD}/runbooks#{rule['alert'].lower()}"
        page = rule["annotations"]["dashboard_url"].removeprefix(f"{DASHBOARD}/").split("?")[0].split("#")[0]
        assert page in {each.path for each in PAGES} or is_of_branch(rule)
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert {"summary", "description"} < rule["annotations"].keys()
