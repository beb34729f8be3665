"""Resets and reconciliations by the real scheduler, against a real broker; approvals are answered through Airflow's own
interface."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from change.world import World
from confluent_kafka import AcknowledgeType
from drivers import command_line
from drivers.airflow_pages import AirflowPages
from drivers.airflow_reviewer import AirflowReviewer, Approval
from drivers.airflow_scene import Scene, asked_until, succeeded
from drivers.axe import axe_violations_in_frame, show_as
from drivers.browser import CHROMIUM, browsing
from drivers.sent_messages import FACTORY, FILE, messages
from jobs.test_connect_server import TOKEN, acktrail, served
from servers.workload import Workload

from acktrail.config import TablesConfig
from acktrail.embedded.airflow.airflow_api import AirflowApi
from acktrail.embedded.airflow.airflow_standalone import HOST, AirflowStandalone
from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail.model.rules.catalogue import RULE_BY_ID
from acktrail.model.rules.quality_rule import QualitySeverity
from acktrail.tables.delta.store import Tables

pytestmark = [pytest.mark.airflow, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(1200)]

DAGS_FOLDER = Path(__file__).resolve().parents[2] / "dags"
RESET, ROLLBACK = "acktrail_reset_offsets", "acktrail_rollback_offsets"
RECONCILE = "acktrail_reconcile"
RECORDS = 40
COPY = "copy."
BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"
CARRIED_OUT = {
    *("validate", "preflight", "group_empty", "plan", "check_plan", "dry_run_ends_here", "approve", "recheck"),
    *("note_decision", "execute", "verify", "check_result"),
}
HOSTILE = "g`'\"```<b>;--"


@pytest.fixture(scope="module")
def copies(dag_bag: Any, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of copies of DAGs, one for each task that may fail and one in which none does: see `failing_copies`.
    A task that its trigger rule lets run after a failure works in one of them, and skips itself in another one. Of
    DAGs with the same tasks one is copied. With ``--all`` of every DAG, else of those of resets and of the
    reconciliation."""
    wanted = dag_bag.dags.keys() if pytestconfig.getoption("--all") else {RESET, ROLLBACK, RECONCILE}
    folder = tmp_path_factory.mktemp("copies")
    found: dict[str, Any] = {}
    shapes = {
        dag_id: {
            task.task_id: {"rule": task.trigger_rule, "after": sorted(task.upstream_task_ids)} for task in dag.tasks
        }
        for dag_id, dag in sorted(dag_bag.dags.items())
        if dag_id in wanted
    }
    for dag_id, shape in {json.dumps(shape): (dag_id, shape) for dag_id, shape in shapes.items()}.values():
        before = {task.task_id: task.get_flat_relative_ids(upstream=True) for task in dag_bag.dags[dag_id].tasks}
        for fails in (*shape, "nothing"):
            later = {name for name, of in shape.items() if of["rule"] != "all_success" and fails in before[name]}
            for then in ("works", "skips") if later else ("works",):
                work = {**dict.fromkeys(later, then), fails: "fails"}
                tasks = {name: {**of, "work": work.get(name, "works")} for name, of in shape.items()}
                found[f"{COPY}{dag_id}.{fails}.{then}"] = tasks
    (folder / "copies.json").write_text(json.dumps(found))
    shutil.copy(Path(__file__).with_name("failing_copies.py"), folder)
    return folder


@pytest.fixture(scope="module")
def scene(copies: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The DAGs of resets and of the reconciliation unpaused, and copies of all DAGs paused."""
    folder = tmp_path_factory.mktemp("resets")
    bundles = [
        {"name": path.name, "classpath": BUNDLE, "kwargs": {"path": str(path)}} for path in (DAGS_FOLDER, copies)
    ]
    tables = TablesConfig(uri=str(folder / "tables"))
    home = (folder / "airflow").resolve()
    sent = folder / "messages"
    env = {
        "ACKTRAIL_TABLES": tables.uri,
        "ACKTRAIL_NOTIFIERS": FACTORY,
        FILE: str(sent),
        "PYTHONPATH": str(Path(__file__).parents[1] / "support"),
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
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
            api=api,
            broker=broker,
            tables=tables,
            logs=home / "logs",
            messages=sent,
            url=airflow.url,
            tokens=tokens,
        )


def test_no_run_in_which_a_task_failed_is_a_success(scene: Scene, copies: Path) -> None:
    """In each DAG each task fails in turn, by the scheduler: the run has failed, whatever runs after a failure. Where
    none fails, the run is a success."""
    planned = json.loads((copies / "copies.json").read_text())
    scene.api.unpause(COPY)

    def ended() -> dict[str, str] | None:
        states = scene.api.run_states(COPY)
        return states if states.keys() == planned.keys() and set(states.values()) <= {"success", "failed"} else None

    expected = {dag_id: "success" if ".nothing." in dag_id else "failed" for dag_id in planned}
    assert asked_until(ended, "the copies") == expected


def approve_on_its_page(scene: Scene, approval: Approval, tmp_path: Path) -> None:
    """As a person does it: open Airflow's page, read, press the button. Without a browser, by REST."""
    if CHROMIUM is None:
        scene.answer(approval, "Approve")
        return
    run_id = quote(approval.run_id, safe="")
    with browsing(tmp_path / "profile") as page:
        address = f"{scene.url}/dags/{approval.dag_id}/runs/{run_id}/tasks/{approval.task_id}/required_actions"
        page.open(address, _token=scene.api.token())
        page.until("document.querySelectorAll('table').length >= 2 && document.body.innerText.includes(', repeats ')")
        page.press("Approve")
        scene.answers[approval.run_id] = "Approve"
        asked_until(lambda: approval not in scene.api.approvals(), "the answer")


def test_plan_approval_execution_and_undo(scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run changes nothing; what is approved is done and verified; what is rejected leaves everything as it was;
    the command line refuses it too; the undo, approved on the web page, brings the start offset back, and there is no
    second one, nor one of what was rejected. The audit names who decided."""
    before = {group: scene.start_offset(group) for group in (HOSTILE, "bills-desk")}
    dry = scene.start(RESET, groups=[HOSTILE], topics=["orders"], strategy="to-earliest")
    approved = scene.start(RESET, groups=[HOSTILE], topics=["orders"], strategy="to-earliest", dry_run=False)
    rejected = scene.start(RESET, groups=["bills-desk"], all_topics=True, strategy="to-offset", offset=3, dry_run=False)
    wrong = scene.start(RESET, groups=["bills-desk"], all_topics=True, strategy="to-offset", dry_run=False)

    asked, other = scene.approval(approved), scene.approval(rejected)
    assert "HOSTILE" not in asked.subject
    assert asked.body.count("```") % 2 == 0
    first, second, *_ = asked.body.split("\n\n")
    assert first.replace("\\", "").startswith(
        f"admin asks for a reset of {HOSTILE} **to-earliest on cluster 127.0.0.1:"
    )
    assert second.replace("\\", "") == "**It loses 0, repeats 10, revives unknown poison.**"
    assert {group: scene.start_offset(group) for group in before} == before
    scene.answer(asked, "Approve")
    scene.answer(other, "Reject")

    assert succeeded(scene.ended(RESET, approved)) == CARRIED_OUT
    assert scene.start_offset(HOSTILE) == 0
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
    where = ("--bootstrap-server", scene.broker.bootstrap_servers, "--tables", scene.tables.uri)
    assert "[plan_rejected]" in command_line.run(capsys, "change", "apply", closed, "--execute", *where).complaint(2)

    states = scene.ended(RESET, dry)
    assert (states["check_plan"], states["approve"], states["execute"]) == ("success", "skipped", "skipped")

    states = scene.ended(RESET, wrong)
    assert {task for task, state in states.items() if state == "failed"} == {"validate"}
    assert "to-offset needs Offset" in scene.reason(RESET, wrong, "validate")

    undo = scene.start(ROLLBACK, plan_id=plan_id, dry_run=False)
    approve_on_its_page(scene, scene.approval(undo), tmp_path)
    assert succeeded(scene.ended(ROLLBACK, undo)) == CARRIED_OUT
    assert scene.start_offset(HOSTILE) in {before[HOSTILE], 10}
    again = {plan: scene.start(ROLLBACK, plan_id=plan, dry_run=False) for plan in (plan_id, closed)}
    for plan, rule in ((plan_id, "plan_undone"), (closed, "nothing_to_undo")):
        assert scene.ended(ROLLBACK, again[plan])["validate"] == "failed"
        assert rule in scene.reason(ROLLBACK, again[plan], "validate")
    suites = set(Tables(scene.tables).read("quality_results", columns=["suite"])["suite"].to_pylist())
    assert suites == {"reset_plan", "reset_result"}
    look_at_the_dashboard(scene, approved, plan_id, tmp_path / "reader")
    about = [(each["kind"], each["run_id"], each["urgency"]) for each in messages(scene.messages)]
    # A busy Airflow gives a task up and tries it again: each try asks.
    tries = len([*scene.logs.rglob(f"run_id={approved}/task_id=approve/attempt=*.log")])
    assert 1 <= about.count(("approval", approved, "act")) <= tries
    asked_until(lambda: ("reset", wrong, "act") in _about_resets(scene), "the message about the failed run")
    asked_until(lambda: ("reset", dry, "nothing") in _about_resets(scene), "the message about the dry run")


def stops(fault: Any) -> frozenset[str]:
    """The critical expectations that a fault breaks."""
    names = {name.split(".", 1)[1] for name in fault.expected.failing}
    return frozenset(name for name in names if RULE_BY_ID[name].severity is QualitySeverity.CRITICAL)


def test_the_gate_passes_on_warnings_and_stops_on_critical_faults(scene: Scene, tmp_path: Path) -> None:
    """Faults that break no critical rule are reported, and the run is published. Then every fault that breaks one
    happens: the run stops and names each critical rule, so do its report, in the place of the last one, and one
    message. The work is done where the Spark connection says, else where the environment does."""
    pytest.importorskip("acktrail_demo", reason="the faults are of the branch acktrail_demo, which is not there")
    from acktrail_demo.faults.library import faults_on
    from acktrail_demo.workload.state_injection import inject_faults

    scene.api.add_connection("spark_here", conn_type="spark", host="local[1]")
    world = World(kafka=scene.broker.config(), tables=scene.tables)
    faults = faults_on(scene.broker.version)
    mild, grave = ([each for each in faults if bool(stops(each)) is wanted] for wanted in (False, True))
    assert len(mild) > 3
    assert len(grave) > 3
    for group_id, topic, injected in (("mild", "stock", mild), ("grave", "store", grave)):
        world.make_topic(topic, len(injected), RECORDS)
        world.settle(group_id, topic, len(injected) * RECORDS, lambda _: AcknowledgeType.ACCEPT)

    def reconcile(place: str, **conf: str) -> tuple[dict[str, str | None], dict[str, Any]]:
        run = scene.start(RECONCILE, report_folder=str(tmp_path), **conf)
        states = scene.ended(RECONCILE, run)
        assert (states["observe"], states["reconcile"]) == ("success", "success")
        assert place in scene.api.returned(RECONCILE, run, "reconcile", "result")["ran_on"]
        return states, scene.api.returned(RECONCILE, run, "validate", "result")

    inject_faults(scene.broker, mild, group_id="mild", topic="stock", records=RECORDS)
    states, result = reconcile(" on local[1], application ", spark_conn_id="spark_here")
    assert set(states.values()) == {"success"}, (states, result)
    assert result["failures"]
    assert not any(failure["stops"] for failure in result["failures"])
    report = tmp_path / "acktrail-report.json"
    assert json.loads(report.read_text())["totals"]["expectations_stopping"] == 0
    assert not [each for each in messages(scene.messages) if each["kind"] == "gate"]

    inject_faults(scene.broker, grave, group_id="grave", topic="store", records=RECORDS)
    expected = sorted(frozenset[str]().union(*map(stops, grave)))
    states, result = reconcile("this process")
    assert (states["validate"], states["publish"], states["notify"]) == ("failed", "upstream_failed", "success")
    stopping = [failure["rule"] for failure in result["failures"] if failure["stops"]]
    assert sorted(set(stopping)) == expected
    assert json.loads(report.read_text())["totals"]["expectations_stopping"] == len(stopping)
    (gate,) = [each for each in messages(scene.messages) if each["kind"] == "gate"]
    assert gate["urgency"] == "act"
    assert gate["link"].endswith("/plugin/acktrail/checks")
    assert expected[0] in gate["title"]
    open_every_page(scene, tmp_path / "viewer")


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


def open_every_page(scene: Scene, profile: Path) -> None:
    """As a viewer, within Airflow: each page of the menu, and by links a group, a share partition, a finding, its
    record, a check and its rule. No table is missing on any."""
    if CHROMIUM is None:
        return
    walks = (
        *(("overview", ()), ("changes", ()), ("export", ()), ("share-partitions", ())),
        ("groups", ("group?", "share-partition?")),
        ("findings", ("finding?", "record?")),
        ("checks", ("check?", "rule?")),
    )
    with browsing(profile) as page:
        pages = AirflowPages(page, scene.url, scene.tokens[0])
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


def _about_resets(scene: Scene) -> list[tuple[str, str, str]]:
    return [(each["kind"], each["run_id"], each["urgency"]) for each in messages(scene.messages)]


def look_at_the_dashboard(scene: Scene, run_id: str, plan_id: str, profile: Path) -> None:
    """As a person does it: without a login there is Airflow's; a viewer and a user come from the menu to the plan, and
    from the run's tab; the frame has Airflow's theme, and a link out of it leads to all pages."""
    if CHROMIUM is None:
        return
    with browsing(profile) as page:
        page.open(f"{scene.url}/acktrail/changes")
        page.until("location.pathname.startsWith('/auth/login')")
        for token in scene.tokens:
            pages = AirflowPages(page, scene.url, token)
            pages.open("plugin/acktrail")
            pages.frame_has("acktrail")
            pages.press_in_frame("nav a[href='changes']")
            pages.frame_has(plan_id)
            page.until("location.pathname === '/plugin/acktrail/acktrail/changes'")
        pages.open(pages.run_tab(RESET, run_id))
        pages.frame_has(plan_id)
        is_accessible_in_frame(pages)
        assert pages.frame_value("[...d.styleSheets].every(sheet => sheet.cssRules.length > 0)")
        page.value("document.documentElement.classList.replace('light', 'dark')")
        page.until("document.querySelector('iframe').contentDocument.documentElement.classList.contains('dark')")
        pages.press_in_frame("a[data-outer]")
        page.until("location.pathname.startsWith('/plugin/acktrail')")
