"""Resets and reconciliations by the real scheduler, against a real broker; approvals are answered through Airflow's own
interface."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from change.world import World
from confluent_kafka import AcknowledgeType
from drivers import command_line
from drivers.airflow_home import RunningTask
from drivers.airflow_scene import AirflowPages, AirflowReviewer, Approval, Scene, asked_until, succeeded
from drivers.axe import axe_violations_in_frame, show_as
from drivers.browser import CHROMIUM, Page, browsing
from drivers.sent_messages import FACTORY, FILE, messages
from jobs.test_session import TOKEN, acktrail, served
from servers.workload import Workload

from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables
from acktrail_connect.export.export_run import export
from acktrail_embedded.airflow_api import AirflowApi
from acktrail_embedded.airflow_standalone import HOST, AirflowStandalone
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

pytestmark = [pytest.mark.airflow, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(1200)]

DAGS_FOLDER = Path(__file__).resolve().parents[2] / "dags"
RESET, ROLLBACK = "acktrail_reset_offsets", "acktrail_rollback_offsets"
RECONCILE = "acktrail_reconcile"
RECORDS = 40
CARRIED_OUT = {
    *("validate", "preflight", "group_empty", "plan", "check_plan", "dry_run_ends_here", "approve", "recheck"),
    *("note_decision", "execute", "verify", "check_result"),
}
HOSTILE = "g`'\"```<b>;--"
LOADED_ONCE = "acktrail.change.reset_planner, acktrail_dashboard.evidence, acktrail_expectations.reset_gate"
"""What tasks need: the scheduler, which forks them, has it loaded before, or each would load it."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The DAGs of resets and of the reconciliation unpaused."""
    folder = tmp_path_factory.mktemp("resets")
    tables = TablesConfig(uri=str(folder / "tables"))
    home = (folder / "airflow").resolve()
    (home / "config").mkdir(parents=True)
    settings = f"import sys\nif 'scheduler' in sys.argv: import {LOADED_ONCE}\n"
    (home / "config/airflow_local_settings.py").write_text(settings)
    sent = folder / "messages"
    env = {
        "ACKTRAIL_TABLES": tables.uri,
        "ACKTRAIL_DAG_SPARK": "spark_here,spark_there,spark_closed",
        "ACKTRAIL_DAG_FOLDERS": str(tmp_path_factory.getbasetemp()),
        "ACKTRAIL_NOTIFIERS": FACTORY,
        FILE: str(sent),
        "PYTHONPATH": str(Path(__file__).parents[1] / "support"),
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "1",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,vera:viewer,ulla:user",
    }
    standalone = AirflowStandalone(DAGS_FOLDER, folder=home, env=env)
    with standalone as airflow, EmbeddedBroker() as broker:
        workload = Workload(broker.config())
        for topic, group_id in (("orders", HOSTILE), ("bills", "bills-desk")):
            workload.create_topic(topic)
            workload.produce(topic, 10)
            workload.acknowledge(group_id, topic, 10)
        api = AirflowReviewer.of(standalone)
        api.add_connection("acktrail_kafka", host=broker.bootstrap_servers)
        for dag_id in (RESET, ROLLBACK, RECONCILE):
            airflow.watch().wait_for_dag(dag_id, timeout_s=300)
            api.set_paused(dag_id, paused=False)
        passwords = json.loads((home / "passwords.json").read_text())
        tokens = tuple(
            AirflowApi(HOST, airflow.port, user=user, password=passwords[user]).token() for user in ("vera", "ulla")
        )
        yield Scene(
            api=api, broker=broker, tables=tables, logs=home / "logs", messages=sent, url=airflow.url, tokens=tokens
        )


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page | None]:
    """One tab for all of them; None: no browser on this machine."""
    with browsing(tmp_path_factory.mktemp("browser") / "profile") if CHROMIUM else nullcontext() as page:
        yield page


def approve_on_its_page(scene: Scene, approval: Approval, tab: Page | None) -> None:
    """As a person does it: open Airflow's page, read, press the button. Without a browser, by REST."""
    if tab is None:
        scene.answer(approval, "Approve")
        return
    address = f"dags/{approval.dag_id}/runs/{quote(approval.run_id, safe='')}/tasks/{approval.task_id}/required_actions"
    tab.open(f"{scene.url}/{address}", _token=scene.api.token())
    tab.until("document.querySelectorAll('table').length >= 2 && document.body.innerText.includes(', repeats ')")
    tab.press("Approve")
    asked_until(lambda: approval not in scene.api.approvals(), "the answer")
    tab.open("about:blank")


def test_plan_approval_execution_and_undo(scene: Scene, tab: Page | None, capsys: pytest.CaptureFixture[str]) -> None:
    """What is approved, on the web page, is done and verified; what is rejected leaves everything as it was, and the
    command line refuses it too; a form that is wrong fails. The audit names who decided. A dry run of the undo leaves
    a plan, which brings the start offset back, and there is no second one, nor one of what was rejected."""
    before = {group: scene.start_offset(group) for group in (HOSTILE, "bills-desk")}
    approved = scene.start(RESET, groups=[HOSTILE], topics=["orders"], strategy="to-earliest", dry_run=False)
    rejected = scene.start(RESET, groups=["bills-desk"], all_topics=True, strategy="to-offset", offset=3, dry_run=False)
    wrong = scene.start(RESET, groups=["bills-desk"], all_topics=True, strategy="to-offset", dry_run=False)

    asked, other = scene.approval(approved), scene.approval(rejected)
    place, costs = scene.broker.bootstrap_servers, "loses 0, repeats 10 (archived before: unknown)"
    assert asked.subject == f"Reset {HOSTILE} to-earliest on {place}, {costs}: admin asks"
    assert asked.body.count("```") % 2 == 0
    first, second, *_ = asked.body.split("\n\n")
    assert first.replace("\\", "").startswith(
        f"admin asks for this reset of {HOSTILE} **to-earliest on cluster 127.0.0.1:"
    )
    assert second.replace("\\", "") == "**It loses 0, repeats 10 (archived before: unknown).**"
    assert {group: scene.start_offset(group) for group in before} == before
    scene.answer(other, "Reject")
    approve_on_its_page(scene, asked, tab)

    assert succeeded(scene.ended(RESET, approved)) == CARRIED_OUT
    assert scene.start_offset(HOSTILE) == 0
    assert [name for name, _ in scene.api.asset_events(RESET, approved)] == [f"kafka://{place}/orders"]
    plan_id = scene.api.returned(RESET, approved, "plan")["plan_id"]
    events = scene.events(plan_id)
    assert [event for event, _ in events] == [
        *("planned", "approved", "lease_taken", "before_call", "after_call", "verified", "lease_released"),
    ]
    assert events[1] == ("approved", "admin")

    states = scene.ended(RESET, rejected)
    assert (states["execute"], states["verify"], states["note_decision"]) == ("skipped", "skipped", "success")
    assert scene.start_offset("bills-desk") == before["bills-desk"]
    closed = scene.api.returned(RESET, rejected, "plan")["plan_id"]
    assert [event for event in scene.events(closed) if event[0] != "planned"] == [("rejected", "admin")]
    where = ("--execute", "--bootstrap-server", scene.broker.bootstrap_servers, "--tables", scene.tables.uri)
    assert "[plan_rejected]" in command_line.run(capsys, "change", "apply", closed, *where).complaint(2)

    states = scene.ended(RESET, wrong)
    assert {task for task, state in states.items() if state == "failed"} == {"validate"}
    assert "to-offset needs Offset" in scene.reason(RESET, wrong, "validate")

    dry = scene.start(ROLLBACK, plan_id=plan_id)
    states = scene.ended(ROLLBACK, dry)
    assert (states["check_plan"], states["approve"], states["execute"]) == ("success", "skipped", "skipped")
    command_line.run(capsys, "change", "apply", scene.api.returned(ROLLBACK, dry, "plan")["plan_id"], *where)
    assert scene.start_offset(HOSTILE) in {before[HOSTILE], 10}
    for plan, rule in ((plan_id, "plan_undone"), (closed, "nothing_to_undo")):
        with pytest.raises(Exception, match=rule):
            validated_undo(scene, plan)
    suites = set(Tables(scene.tables).read("quality_results", columns=["suite"])["suite"].to_pylist())
    assert suites == {"reset_plan", "reset_result"}
    look_at_the_dashboard(scene, approved, plan_id, tab)
    told = {
        (approved, "approval", "act", f"An approval is waited for: {asked.subject}"): "No answer in 20 hours",
        (approved, "change", "nothing", f"Done: {asked.subject}"): "Decided by admin. Nothing is left to do.",
        (rejected, "change", "nothing", f"Rejected: {other.subject}"): "Decided by admin. The plan is closed.",
        (wrong, "change", "act", f"Failed without a plan: {RESET} of bills-desk: admin asks"): "The log of the task",
    }
    for message, text in told.items():
        asked_until(lambda message=message: message in _about_resets(scene), f"{message} in {_about_resets(scene)}")
        assert _about_resets(scene)[message].startswith(text)


def test_wait_for_an_empty_group_holds_no_slot(scene: Scene, tmp_path: Path) -> None:
    """While a group has a member `group_empty` is deferred; when the member leaves the run continues. When the time is
    up the task is tried again."""
    world, group = World.at(scene.broker.config(), tmp_path), "stock-takers"
    world.make_topic("shelves", 1, 1)
    form = {"groups": [group], "topics": ["shelves"], "strategy": "to-earliest"}
    with world.member(group, "shelves"):
        short = scene.start(RESET, **form, wait_for_empty_s=1)
        run = scene.start(RESET, **form, wait_for_empty_s=3_600)
        states = asked_until(lambda: _states_while(scene, run, "deferred"), "the wait")
        assert (states["preflight"], states["plan"]) == ("success", None)
        asked_until(lambda: "up_for_retry" in _group_empty(scene, short), "the end of the short wait")
        asked_until(lambda: scene.api.send("GET", "/api/v2/pools/default_pool")["occupied_slots"] == 0, "the slots")
        assert "deferred" in _group_empty(scene, run)
    assert scene.ended(RESET, run)["check_plan"] == "success"
    assert scene.ended(RESET, short)["check_plan"] == "success"


def _group_empty(scene: Scene, run_id: str) -> set[str | None]:
    return {task.state for task in scene.api.tasks(RESET, run_id) if task.task_id == "group_empty"}


def _states_while(scene: Scene, run_id: str, state: str) -> dict[str, str | None]:
    """The states of all tasks while that of `group_empty` is `state`; else none."""
    states = {task.task_id: task.state for task in scene.api.tasks(RESET, run_id)}
    return states if states.get("group_empty") == state else {}


def validated_undo(scene: Scene, plan_id: str) -> Any:
    """The order that a filled-in form of the undo becomes."""
    from acktrail_dags.reset_steps import validate_rollback

    form = {"topics": None, "reason": None, "plan_id": plan_id, "dry_run": False, "allow_moved_on": False}
    ti = RunningTask(ROLLBACK, "by-hand")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ACKTRAIL_TABLES", scene.tables.uri)
        return validate_rollback.function(params=form, dag_run=SimpleNamespace(triggering_user_name="ann"), ti=ti)


def forge_a_range(tables: Tables) -> None:
    """Note records behind the exported ones that are not there: a critical rule is broken from then on."""
    ranges = tables.read("export_ranges", where=pc.field("last_offset").is_valid())
    (row,) = ranges.slice(0, 1).to_pylist()
    beyond = row["last_offset"] + 3
    forged = {**row, "run_id": "forged", "first_offset": beyond, "last_offset": beyond + row["records_read"] - 1}
    tables.append("export_ranges", pa.Table.from_pylist([forged], schema=ranges.schema))


def test_the_gate_stops_a_reconciliation(scene: Scene, tab: Page | None, tmp_path: Path) -> None:
    """Records that an export counted are gone: the run stops, its report says so, and there is one message. The work is
    done where the Spark connection says."""
    scene.api.add_connection("spark_here", conn_type="spark", host="local[1]")
    world = World(kafka=scene.broker.config(), tables=scene.tables)
    world.make_topic("stock", 1, RECORDS)
    world.settle("stock-keeping", "stock", RECORDS, lambda _: AcknowledgeType.REJECT)
    export(world.kafka, world.tables, run_id="counted")
    forge_a_range(Tables(scene.tables))

    run = scene.start(RECONCILE, report_folder=str(tmp_path), spark_conn_id="spark_here")
    states = scene.ended(RECONCILE, run)
    assert (states["observe"], states["reconcile"]) == ("success", "success")
    assert " on local[1], application " in scene.api.returned(RECONCILE, run, "reconcile", "result")["ran_on"]
    assert (states["validate"], states["publish"], states["notify"]) == ("failed", "upstream_failed", "success")
    failures = scene.api.returned(RECONCILE, run, "validate", "result")["failures"]
    stopping = [failure["rule"] for failure in failures if failure["stops"]]
    report = json.loads((tmp_path / "acktrail-report.json").read_text())
    assert report["totals"]["expectations_stopping"] == len(stopping) > 0
    (gate,) = [each for each in messages(scene.messages) if each["kind"] == "gate"]
    assert gate["urgency"] == "act"
    assert gate["link"].endswith("/plugin/acktrail/acktrail/checks")
    assert stopping[0] in gate["title"]
    open_every_page(scene, tab)


@pytest.mark.full
def test_a_reconciliation_has_its_driver_off_the_worker(scene: Scene, tmp_path: Path) -> None:
    """A connection to a Spark Connect server: the work is done by the server's application, with the connection's
    token, which is in no log. A task that is given a wrong one fails with one line."""
    token = "t0ken-of-the-server"
    with served(token) as server:
        place = json.loads(acktrail("run", "spark", "check", server.url, "--json", **{TOKEN: token}).stdout)
        port = int(server.url.rpartition(":")[2])
        for name, password in (("spark_there", token), ("spark_closed", "guessed")):
            scene.api.add_connection(name, conn_type="spark_connect", host="localhost", port=port, password=password)
        run = scene.start(RECONCILE, report_folder=str(tmp_path), spark_conn_id="spark_there")
        closed = scene.start(RECONCILE, report_folder=str(tmp_path), spark_conn_id="spark_closed")
        assert scene.ended(RECONCILE, run)["reconcile"] == "success"
        assert scene.ended(RECONCILE, closed)["reconcile"] == "failed"
    ran_on = scene.api.returned(RECONCILE, run, "reconcile", "result")["ran_on"]
    assert ran_on == f"Spark {place['version']} on {place['master']}, application {place['application_id']}"
    assert "the Spark job failed" in scene.reason(RECONCILE, closed, "reconcile")
    logs = [file.read_text() for file in scene.logs.rglob("*.log") if "task_id=reconcile" in str(file)]
    assert any(ran_on in text for text in logs)
    assert not any(token in text for text in logs)


def open_every_page(scene: Scene, tab: Page | None) -> None:
    """As a viewer, within Airflow: each page of the menu, and by links a group, a share partition, a finding, its
    record, a check and its rule. No table is missing on any."""
    if tab is None:
        return
    walks = (
        *(("overview", ()), ("changes", ()), ("export", ()), ("share-partitions", ())),
        ("groups", ("group?", "share-partition?")),
        ("findings", ("finding?", "record?")),
        ("checks", ("check?", "rule?")),
    )
    pages = AirflowPages(tab, scene.url, scene.tokens[0])
    pages.open("plugin/acktrail")
    pages.frame_is_at("acktrail/")
    for first, links in walks:
        if first != "overview":
            pages.press_in_frame(f"nav a[href='{first}']")
            pages.frame_is_at(first)
        if first == "findings":
            is_accessible_in_frame(pages)
        for part in links:
            pages.press_in_frame(f"main a[href^='{part}']")
            pages.frame_is_at(part)
        assert pages.frame_value("d.querySelector('main > .alert') === null"), first
        assert pages.frame_value("d.querySelector('main h1, main h2') !== null"), first


def is_accessible_in_frame(pages: AirflowPages) -> None:
    """Beside Airflow's menu, in a wide window and on a phone: nothing for axe, no scrolling sideways."""
    for width in (390, 1400):
        show_as(pages.page, "light", width)
        assert axe_violations_in_frame(pages.page) == [], width
        assert pages.frame_value("d.documentElement.scrollWidth <= d.documentElement.clientWidth"), width


def _about_resets(scene: Scene) -> dict[tuple[str, ...], str]:
    """The texts of the messages, each of which came once."""
    sent, key = messages(scene.messages), ("run_id", "kind", "urgency", "title")
    found = {tuple(each[name] for name in key): each["text"] for each in sent}
    assert len(found) == len(sent)
    return found


def look_at_the_dashboard(scene: Scene, run_id: str, plan_id: str, tab: Page | None) -> None:
    """As a person does it: without a login there is Airflow's; a user comes from the run's tab to the plan, and by a
    link out of the frame, which has Airflow's theme, to all pages and by their menu to the plan again."""
    if tab is None:
        return
    tab.call("Network.clearBrowserCookies")
    tab.open(f"{scene.url}/acktrail/changes")
    tab.until("location.pathname.startsWith('/auth/login')")
    pages = AirflowPages(tab, scene.url, scene.tokens[1])
    pages.open(f"dags/{RESET}/runs/{quote(run_id, safe='')}/plugin/acktrail-dag-run")
    pages.frame_has(plan_id)
    is_accessible_in_frame(pages)
    assert pages.frame_value("[...d.styleSheets].every(sheet => sheet.cssRules.length > 0)")
    tab.value("document.documentElement.classList.replace('light', 'dark')")
    tab.until("document.querySelector('iframe').contentDocument.documentElement.classList.contains('dark')")
    pages.press_in_frame("a[data-outer]")
    tab.until("location.pathname.startsWith('/plugin/acktrail')")
    pages.frame_is_at("acktrail/")
    pages.press_in_frame("nav a[href='changes']")
    pages.frame_has(plan_id)
    tab.until("location.pathname === '/plugin/acktrail/acktrail/changes'")
