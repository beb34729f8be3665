"""The Grafana boards and the alert rules show what is really served, and every board is what its program writes. The
alert rules fire on what they are for, and on nothing else: Prometheus's own tool evaluates them over hours."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus

import pytest
import yaml
from drivers.own_process import finished
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.parser import text_string_to_metric_families
from samples.branch_names import is_of_branch, metric_names, metrics_of_branches
from samples.health_tables import HealthTables
from samples.observed_batch import observed
from view.alert_cases import FIRING, NOW, ROOT, RULES, Series, case, needs_promtool, promtool

from acktrail.model.queue_status import STATUS_TABLE, Urgency
from acktrail.package_data import metric_definitions
from acktrail.serving.group_gauges import SeenGroup, SeenQueue, gauges_of
from acktrail.view.table_metrics import metrics_text
from acktrail.view.wording import in_words
from acktrail_connect.sources.observation_source import group_gauges
from acktrail_connect.worker.connector_run import ConfigStore
from acktrail_connect.worker.worker import Worker
from acktrail_connect.worker.worker_metrics import LagWatch, WorkerMetrics
from acktrail_dashboard.web.application import PAGES

FOLDER: Final = ROOT / "dashboards/grafana"
BOARDS: Final = sorted(FOLDER.glob("*.json"))
DASHBOARD: Final = "{{ with $externalLabels.acktrail_dashboard }}{{ . }}{{ else }}http://127.0.0.1:8085{{ end }}"


def board(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return found


def panels(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Those that show something, in rows or not."""
    for panel in content["panels"]:
        yield from panel.get("panels") or ()
        if panel["type"] != "row":
            yield panel


def queries() -> dict[str, str]:
    """Every query of every board with its variables filled in, by board, panel and letter."""
    filled = {"$__rate_interval": "5m", "$cluster": ".*", "$group": ".*", "$topic": ".*"}
    found: dict[str, str] = {}
    for file in BOARDS:
        for panel in panels(board(file)):
            for target in panel["targets"]:
                expression = target["expr"]
                for variable, value in filled.items():
                    expression = expression.replace(variable, value)
                found[f"{file.stem} {panel['title']} {target['refId']}"] = expression
    return found


def families(text: str) -> set[str]:
    """Names of series in an exposition, of families without a series too."""
    found = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    return found | set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))


@pytest.fixture(scope="module")
def of_tables(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """What the trunk's tables are shown by, with everything in them."""
    health = HealthTables(tmp_path_factory.mktemp("boards") / "tables")
    health.exported(5, reason="pruned")
    health.reconciled(run_id="run-1", minutes=65)
    health.reconciled([health.queue("g", "stuck")], [{"rule": "unknown", "severity": "warning"}])
    health.validated()
    return families(metrics_text(health.config)[0].decode())


@pytest.fixture(scope="module")
def served(of_tables: set[str]) -> set[str]:
    """What tables, a worker, its sources and the brokers' JMX exporter show."""
    worker = Worker(ConfigStore())
    of_worker = {
        metric.name + ("_total" if metric.type == "counter" else "")
        for metric in WorkerMetrics(worker, LagWatch(worker.runs)).collect()
    }
    worker.stop()
    of_groups = {gauge.name for gauge in group_gauges(observed(3, 4), 1.0)}
    of_sources = metric_definitions("acktrail_connect", "sources").keys()
    rules = yaml.safe_load(RULES.with_name("jmx-exporter.yml").read_text("utf-8"))["rules"]
    return of_tables | of_worker | of_groups | of_sources | {rule["name"] for rule in rules}


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_a_board_has_the_form_of_grafana(file: Path) -> None:
    """It goes through Grafana's schema and comes back the same; panels say what they show, are of the datasource that
    the reader chose, and say "none" where there is nothing."""
    content = board(file)
    again = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(content)))
    assert again == content
    variables = {each["name"] for each in content["templating"]["list"]}
    assert {"datasource", "cluster"} <= variables
    assert (file.stem == "acktrail-groups") == ({"group", "topic"} <= variables)
    shown = list(panels(content))
    assert len({panel["title"] for panel in shown}) == len(shown) >= 8
    for panel in shown:
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["noValue"] == "none"
        letters = [target["refId"] for target in panel["targets"]]
        assert letters
        assert len(set(letters)) == len(letters)
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
    ids = [content["uid"] for content in map(board, BOARDS)]
    assert len(set(ids)) == len(ids)


def test_a_board_counts_as_urgent_what_is_urgent_everywhere() -> None:
    """Every status that asks for action is in that number, and named beside it; those that need nothing are no
    trouble."""
    shown = {panel["title"]: panel for panel in panels(board(FOLDER / "acktrail-overview.json"))}
    found = {title: re.findall(r'status[=!]~"(.+?)"', panel["targets"][0]["expr"]) for title, panel in shown.items()}
    of = {urgency: [s.value for s, row in STATUS_TABLE.items() if row.urgency is urgency] for urgency in Urgency}
    assert found["Groups to act on"] == ["|".join(of[Urgency.ACT])]
    assert shown["Groups to act on"]["description"].endswith(f": {', '.join(map(in_words, of[Urgency.ACT]))}.")
    assert found["Groups in trouble"] == ["|".join(of[Urgency.NOTHING])]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_prometheus_understands_every_query(tmp_path: Path) -> None:
    """Each is read as the expression of a rule; one that is wrong is noticed."""

    def check(expressions: list[str]) -> int:
        rules = [{"record": f"query:{number}", "expr": each} for number, each in enumerate(expressions)]
        file = tmp_path / "queries.yml"
        file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}), "utf-8")
        return finished("promtool", "check", "rules", file).returncode

    assert check(list(queries().values())) == 0
    assert check(["sum by (x acktrail_groups"]) != 0


def test_every_metric_that_is_asked_for_is_served(served: set[str]) -> None:
    """In queries and variables of boards, and in alerts."""
    texts = dict(queries())
    texts |= {f"{file.stem} variables": json.dumps(board(file)["templating"]) for file in BOARDS}
    texts |= {rule["alert"]: rule["expr"] for rule in alert_rules()}
    asked = {where: metric_names(text) for where, text in texts.items()}
    known = served | metrics_of_branches()
    assert {where: names - known for where, names in asked.items() if names - known} == {}
    assert all(names or "up{" in texts[where] for where, names in asked.items())


def test_every_defined_metric_is_served(of_tables: set[str], served: set[str]) -> None:
    """Of tables and workers: docs/reference/metrics.md is made from the definitions."""
    assert metric_definitions("acktrail.serving", "tables").keys() == of_tables - {"acktrail_build_info"}
    assert metric_definitions("acktrail_connect", "worker").keys() <= served


def test_every_defined_metric_of_a_source_is_made() -> None:
    """A gauge without a definition ends the task that makes it; here a definition without a gauge fails."""
    files = (ROOT / "connectors/acktrail_connect/sources").glob("*.py")
    made = "".join(file.read_text("utf-8") for file in files)
    defined = {name.removesuffix("_passed_offsets") for name in metric_definitions("acktrail_connect", "sources")}
    assert {name for name in defined if f'"{name}"' not in made} == set()


def test_gauges_of_groups_have_the_labels_of_their_definitions() -> None:
    """With ages, which only observations of the brokers have."""
    gauges = gauges_of([SeenGroup("g", "Stable", 1, 0)], [SeenQueue("g", "t", 0, 3, 4, (1.0, 2.0))], 1.0)
    defined = {own.name: own.labels for own in metric_definitions("acktrail.serving", "brokers").values()}
    assert {gauge.name: tuple(gauge.labels) for gauge in gauges} == defined


def test_the_provisioning_files_lead_to_the_boards() -> None:
    """A provider of files and a datasource of Prometheus."""
    (provider,) = yaml.safe_load((FOLDER / "provisioning/dashboards/acktrail.yml").read_text("utf-8"))["providers"]
    (source,) = yaml.safe_load((FOLDER / "provisioning/datasources/prometheus.yml").read_text("utf-8"))["datasources"]
    assert (provider["type"], source["type"]) == ("file", "prometheus")


def alert_rules() -> list[dict[str, Any]]:
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
def test_no_alert_fires_on_an_idle_cluster_in_a_week(tmp_path: Path) -> None:
    """With the worker's observations, and a reconciliation every six minutes."""
    gap = 'acktrail_export_newest_gap_timestamp_seconds{cluster="c",reason="pruned"}'
    steps = {f'acktrail_{of}_timestamp_seconds{{cluster="c"}}': "every 6" for of in ("reconciliation", "validation")}
    done = promtool(tmp_path, [case("a week", {**steps, gap: "always -4000"}, minutes=7 * 24 * 60, within="7d")])
    assert done.returncode == 0, done.stdout + done.stderr
    silent = {'acktrail_export_timestamp_seconds{cluster="c"}': "stopped 60"}
    done = promtool(
        tmp_path, [case("no observations", {**steps, gap: "always -4000", **silent}, minutes=600, within="7d")]
    )
    assert "AcktrailExportStale" in done.stderr + done.stdout


@needs_promtool
def test_a_test_of_rules_can_fail(tmp_path: Path) -> None:
    """An alert that is expected and does not fire is noticed."""
    assert "AcktrailGroupStuck" in promtool(tmp_path, [case("wrong", {}, "AcktrailGroupStuck")]).stderr


@needs_promtool
def test_the_texts_name_group_and_runbook(tmp_path: Path) -> None:
    """What a person is sent has the group's name as it is in the label, and links to its page and to the runbook: on
    the dashboard that an external label names, else on this machine."""
    (rule,) = [rule for rule in alert_rules() if rule["alert"] == "AcktrailGroupStuck"]
    group = '<b>{{7*7}}" OR 1=1'
    labels = {"severity": "critical", "cluster": "c", "group": group, "status": "stuck"}
    series = f'acktrail_group_share_partitions{{cluster="c",group={json.dumps(group)},status="stuck"}}'
    tests = []
    airflow = "https://airflow.example/acktrail"
    for base, external in ((airflow, {"acktrail_dashboard": airflow}), ("http://127.0.0.1:8085", {})):
        texts = {
            "summary": f"{group} is stuck",
            "description": rule["annotations"]["description"].replace("{{ $value }}", "1"),
            "dashboard_url": f"{base}/group?id={quote_plus(group)}",
            "runbook_url": f"{base}/runbooks#acktrailgroupstuck",
        }
        fired = [{"exp_labels": labels, "exp_annotations": texts}]
        asked = [{"eval_time": NOW, "alertname": "AcktrailGroupStuck", "exp_alerts": fired}]
        test = case(base, {series: "later 1 12"}, "AcktrailGroupStuck")
        tests.append({**test, "alert_rule_test": asked, "external_labels": external})
    done = promtool(tmp_path, tests)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_and_has_a_runbook() -> None:
    """A section of docs/reference/runbooks.md each, in the order of the rules, with what it means, a first look and
    what to do; a severity, a summary, a description and links to pages that the dashboard has."""
    text = (ROOT / "docs/reference/runbooks.md").read_text("utf-8")
    names = [rule["alert"] for rule in alert_rules()]
    assert {rule["alert"] for rule in alert_rules() if not is_of_branch(rule)} == set(FIRING)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == names
    for rule in alert_rules():
        section = text.split(f"\n## {rule['alert']}\n")[1].split("\n## ")[0]
        assert all(part in section for part in ("**Means:**", "**First look:**", "**Do:**"))
        assert rule["annotations"]["runbook_url"] == f"{DASHBOARD}/runbooks#{rule['alert'].lower()}"
        page = rule["annotations"]["dashboard_url"].removeprefix(f"{DASHBOARD}/").split("?")[0].split("#")[0]
        assert page in {each.path for each in PAGES} or is_of_branch(rule)
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert {"summary", "description"} < rule["annotations"].keys()
