"""The alert rules fire on what they are for, and on nothing else: Prometheus's own tool evaluates them over hours."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus

import yaml
from samples.branch_names import is_of_branch
from view.alert_cases import FIRING, NOW, ROOT, RULES, Series, case, needs_promtool, promtool

from acktrail_dashboard.web.application import PAGES

DASHBOARD: Final = "{{ with $externalLabels.acktrail_dashboard }}{{ . }}{{ else }}http://127.0.0.1:8085{{ end }}"


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
    tests = [case("idle topics", {}), case("close to every alert", together([of["quiet"] for of in FIRING.values()]))]
    for third in range(3):
        names = [*FIRING][third::3]
        tests.append(case(", ".join(names), together([FIRING[name]["fires"] for name in names]), *names))
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
    test = case("texts", {series: "later 1 12"}, "AcktrailGroupStuck")
    fired = [{"exp_labels": labels, "exp_annotations": texts}]
    test["alert_rule_test"] = [{"eval_time": NOW, "alertname": "AcktrailGroupStuck", "exp_alerts": fired}]
    test["external_labels"] = {"acktrail_dashboard": "https://airflow.example/acktrail"}
    here = {
        name: text.replace("https://airflow.example/acktrail", "http://127.0.0.1:8085") for name, text in texts.items()
    }
    usual = case("usual", {series: "later 1 12"}, "AcktrailGroupStuck")
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
