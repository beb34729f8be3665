"""Every task of every DAG meets its faults in a real scheduler, as failed_runs.md lists them: the colour of the run,
retries, the status of the plan, and that a person who follows the advice of the log can continue."""

from __future__ import annotations

import copy
import json
import re
import shutil
import socketserver
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from threading import RLock, Thread
from typing import Any, Final, NamedTuple

import pytest
from change.world import World
from drivers.airflow_home import DAGS_FOLDER
from drivers.airflow_scene import FAILED, AirflowReviewer, Scene, asked_until
from servers.kafka_proxy import KafkaProxy, kafka_proxy

from acktrail.branches import branches
from acktrail.config import TablesConfig
from acktrail_connect.export.export_run import export
from acktrail_embedded.airflow_api import AirflowRefused
from acktrail_embedded.airflow_standalone import AirflowStandalone
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

pytestmark = pytest.mark.airflow

TABLE: Final = Path(__file__).with_name("failed_runs.md")
HEAD: Final = "| DAG | task | fault | tried again | run | plan | advice |"
RESET, ROLLBACK, EXPAND = "acktrail_reset_offsets", "acktrail_rollback_offsets", "acktrail_expand_topic"
OF_BRANCHES: Final = {module.rpartition(".")[2] for branch in branches() for module in branch.dags}
DAG_IDS: Final = OF_BRANCHES | {path.stem for path in DAGS_FOLDER.glob("*.py")}
CREATE_PARTITIONS, ALTER_OFFSETS = 37, 91
AT_THE_SAME_TIME: Final = 4
TO_CLEAR: Final = re.compile(r"lear (?:this task|that task|the task (\w+))")
LOADED_ONCE = (
    "acktrail.change.reset_planner, acktrail_expectations.reset_gate, acktrail_connect.export.export_run, "
    "acktrail_jobs.api, acktrail_dashboard.evidence, acktrail.tables.upkeep.maintenance"
)
"""What tasks need: the scheduler, which forks them, has it loaded before, or each would load it."""
POLICY = """
import socket, sys
from datetime import timedelta
from pathlib import Path

from airflow.sdk.bases.notifier import BaseNotifier
from airflow.sdk.definitions.timetables.simple import NullTimetable

if 'scheduler' in sys.argv:
    import {loaded}

def said(context, what):
    number = Path(context.get("params", {{}}).get("tables_uri") or "").name
    if not number.isdigit():
        return ""
    with socket.create_connection(("127.0.0.1", {port})) as control:
        control.sendall(f"{{number}} {{what}}\\n".encode())
        return control.makefile().readline().strip()

def task_policy(task):
    task.retry_delay = timedelta(seconds=1)
    task._pre_execute_hook = lambda context: said(context, context["ti"].task_id)

def dag_policy(dag):
    dag.__dict__.update(schedule=None, timetable=NullTimetable(), max_active_runs=16)

class Chat(BaseNotifier):
    def notify(self, context):
        if said(context, "?notifier down"):
            raise RuntimeError("invalid_auth")

def notifiers():
    return [Chat()]
"""
"""Airflow's cluster policy: a task says that it begins, and waits until its fault has happened. No DAG is
scheduled."""


class Row(NamedTuple):
    """A task that meets a fault: whether it is tried again, the colour of the run and the tasks that make it, how the
    plan stands then, and what the log of the task ends with, or of the one that failed for it."""

    dag_id: str
    task_id: str
    fault: str
    is_retried: str
    run: str
    plan: str
    advice: str

    @property
    def is_passed(self) -> bool:
        """Whether the fault ends with the task, which it does not fail. Tables that were made anew stay for its run."""
        return self.run == "green" and self.fault != "tables gone"


def documented() -> list[Row]:
    """The table, a row for each DAG, task and fault of a line."""
    _, _, rest = TABLE.read_text("utf-8").partition(HEAD)
    lines = [
        [cell.strip() for cell in line.strip().strip("|").split("|")] for line in rest.split("\n\n")[0].splitlines()
    ]
    return [
        Row(*of, *others)
        for first, second, third, *others in lines[2:]
        for of in product(_names(first), _names(second), map(str.strip, third.split(",")))
    ]


def _names(cell: str) -> list[str]:
    return re.findall("`(.+?)`", cell)


def test_each_task_has_its_faults_in_the_table(dag_bag: Any) -> None:
    """Nothing is listed that is not there, and nothing twice."""
    rows = [row for row in documented() if row.dag_id in DAG_IDS]
    assert {row[:2] for row in rows} == {
        (dag_id, task) for dag_id, dag in dag_bag.dags.items() for task in dag.task_ids
    }
    assert len({row[:3] for row in rows}) == len(rows)
    assert {row.fault for row in rows} <= FAULTS.keys()


def _send(api_keys: set[int]) -> Callable[[Walk], object]:
    return lambda walk: walk.network.held.update(api_keys)


def _lose_answers(walk: Walk) -> None:
    for api_key in (CREATE_PARTITIONS, ALTER_OFFSETS):
        walk.network.cuts[api_key].append(0.0)


def _away(place: Path, *, with_file: bool) -> None:
    place.rename(place.with_name(f"{place.name}-away"))
    if with_file:
        place.write_text("")


def _back(place: Path) -> None:
    if (away := place.with_name(f"{place.name}-away")).exists():
        if place.is_dir():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
        away.rename(place)


FAULTS: Final[Mapping[str, Callable[[Walk], object]]] = {
    "broker gone": lambda walk: walk.network.go_down(),
    "request lost": _send({CREATE_PARTITIONS, ALTER_OFFSETS}),
    "answer lost": _lose_answers,
    "tables gone": lambda walk: _away(walk.tables, with_file=False),
    "no tables": lambda walk: _away(walk.tables, with_file=True),
    "no report folder": lambda walk: _away(walk.reports, with_file=True),
    "notifier down": lambda walk: shutil.rmtree(walk.tables / "notifications", ignore_errors=True),
    "each of them": lambda walk: None,
}
ANYWHERE: Final = {"broker gone": {"broker gone"}, "no tables": {"no tables", "tables gone"}}
"""A task ends well under each of them, unless it has a row with one of the faults beside it."""


@dataclass
class Walk:
    """A DAG whose tasks meet one fault after the other. After each a person follows the advice of the log. `is_whole`:
    where no row has a fault, the task is shown not to meet it. `row` is the fault that fails the present run, `faults`
    are those that happened and last."""

    number: int
    dag_id: str
    rows: list[Row]
    is_whole: bool
    folder: Path
    network: KafkaProxy
    form: dict[str, Any] = field(default_factory=dict)
    api: Any = None
    run_id: str = ""
    row: Row | None = None
    faults: tuple[str, ...] = ()
    tries: int = 0
    passed: set[str] = field(default_factory=set)
    found: dict[Row, Row] = field(default_factory=dict)
    lock: Any = field(default_factory=RLock)

    @property
    def tables(self) -> Path:
        """Their name says to whom a task has to say that it begins."""
        return self.folder / str(self.number)

    @property
    def reports(self) -> Path:
        return self.folder / f"reports-{self.number}"

    def begins(self, task_id: str) -> None:
        """A try of a task begins: its next fault happens, unless there is one that fails this run. Of two that run at
        the same time, `notify` comes last."""
        if task_id == "notify":
            asked_until(self.is_last, "the end of the other tasks")
        with self.lock:
            if self.row is None:
                self.lift()
                if task_id != "verify" or "execute" in self.passed:  # else it looks after a failure before it
                    self.strike(task_id)
            self.tries += self.row is not None and self.row.task_id == task_id

    def is_last(self) -> bool:
        """Whether the other tasks of the run ended."""
        others = [task for task in self.api.tasks(self.dag_id, self.run_id) if task.task_id != "notify"]
        return all(task.state in {"success", "skipped", *FAILED} for task in others)

    def strike(self, task_id: str) -> None:
        mine = [row for row in self.rows if row.task_id == task_id]
        self.row = next((row for row in mine if not row.is_passed and row not in self.found), None)
        if self.row is not None:
            self.tries, self.faults = 0, (self.row.fault,)
        elif task_id not in self.passed:
            self.passed.add(task_id)
            green, listed = [row for row in mine if row.is_passed], {row.fault for row in mine}
            others = tuple(fault for fault, alike in ANYWHERE.items() if self.is_whole and not alike & listed)
            self.faults = (*(row.fault for row in green), *others)
            self.found |= {row: row for row in green}
        for fault in self.faults:
            FAULTS[fault](self)

    def lift(self) -> None:
        """What failed works again; what was held back arrives."""
        with self.lock:
            self.row, faults, self.faults = None, self.faults, ()
            if "broker gone" in faults:
                self.network.come_back()
            if "request lost" in faults:
                self.network.release()
            for place in (self.tables, self.reports):
                _back(place)


class _Control(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        number, _, said = self.rfile.readline().decode().strip().partition(" ")
        walk = self.server.walks[int(number)]  # type: ignore[attr-defined]  # set where it is made
        if said.startswith("?"):
            self.wfile.write(b"yes\n" if said[1:] in walk.faults else b"\n")
        else:
            walk.begins(said)
            self.wfile.write(b"\n")


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[Walk], int]]:
    """One walk of each DAG, and one more where a request is lost; the port at which their tasks say that they begin."""
    folder, made = tmp_path_factory.mktemp("tables"), list[Walk]()
    for dag_id, is_lost in product(sorted(DAG_IDS), (False, True)):
        rows = [row for row in documented() if row.dag_id == dag_id and (row.fault == "request lost") is is_lost]
        if rows:
            made.append(Walk(len(made), dag_id, rows, not is_lost, folder, KafkaProxy(("", 0))))
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Control) as server:
        server.walks = made  # type: ignore[attr-defined]  # for its handlers
        Thread(target=server.serve_forever, daemon=True).start()
        yield made, server.server_address[1]
        server.shutdown()


@pytest.fixture(scope="module")
def scene(walks: tuple[list[Walk], int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """An Airflow whose tasks say that they begin, and a topic and a group of its own for each walk."""
    folder = tmp_path_factory.mktemp("runs")
    home = (folder / "airflow").resolve()
    (home / "config").mkdir(parents=True)
    (home / "config/airflow_local_settings.py").write_text(POLICY.format(port=walks[1], loaded=LOADED_ONCE))
    env = {
        "ACKTRAIL_SETTLE": "5s",
        "ACKTRAIL_SPARK_MASTER": "in-process",
        "ACKTRAIL_DAG_PLACES": ",".join(f"through_{walk.number}={walk.tables}" for walk in walks[0]),
        "ACKTRAIL_DAG_FOLDERS": str(walks[0][0].folder),
        "ACKTRAIL_NOTIFIERS": "airflow_local_settings:notifiers",
        "PYTHONPATH": str(home / "config"),
    }
    standalone = AirflowStandalone(DAGS_FOLDER, folder=home, env=env)
    with ExitStack() as entered:
        airflow, broker = entered.enter_context(standalone), entered.enter_context(EmbeddedBroker())
        api, world = AirflowReviewer.of(standalone), World.at(broker.config(), folder)
        for walk in walks[0]:
            walk.network = entered.enter_context(kafka_proxy(broker.bootstrap_servers))
            api.add_connection(f"through_{walk.number}", host=walk.network.address)
            world.workload.create_topic(f"topic-{walk.number}", 1)
            # Three of six wait: there is always something to say.
            world.workload.produce(f"topic-{walk.number}", 6 if walk.dag_id == "acktrail_reconcile" else 3)
            world.workload.acknowledge(f"group-{walk.number}", f"topic-{walk.number}", 3)
        export(world.kafka, world.tables)
        for walk in walks[0]:
            shutil.copytree(world.tables.uri, walk.tables)
            walk.reports.mkdir()
            walk.form, walk.api = form(walk, world), copy.copy(api)
        for dag_id in {walk.dag_id for walk in walks[0]}:
            airflow.watch().wait_for_dag(dag_id, timeout_s=300)
            api.set_paused(dag_id, paused=False)
        named: dict[str, Any] = {"logs": home / "logs", "messages": folder, "url": airflow.url, "tokens": ()}
        yield Scene(api=api, broker=broker, tables=world.tables, **named)


def form(walk: Walk, world: World) -> dict[str, Any]:
    """What a person fills in."""
    group, topic = f"group-{walk.number}", f"topic-{walk.number}"
    through = {"tables_uri": str(walk.tables), "kafka_conn_id": f"through_{walk.number}"}
    if walk.dag_id == "acktrail_maintenance":
        return {"tables_uri": str(walk.tables)}
    if walk.dag_id == "acktrail_reconcile":
        return {**through, "report_folder": str(walk.reports)}
    if walk.dag_id == RESET:
        return {**through, "groups": [group], "all_topics": True, "strategy": "to-earliest", "dry_run": False}
    if walk.dag_id == EXPAND:
        return {**through, "topic": topic, "partitions": 3, "dry_run": False}
    if walk.dag_id == ROLLBACK:
        own = World(kafka=world.kafka, tables=TablesConfig(uri=str(walk.tables)))
        done = own.reset(groups=[group], topics=[topic], strategies={"to-earliest": None})
        return {**through, "plan_id": done["plan_id"], "dry_run": False}
    return {**through, "topics": [topic]} if walk.dag_id == "acktrail_partitions" else through


def last_advice(scene: Scene, dag_id: str, run_id: str, task_id: str) -> tuple[float, str]:
    """When the newest log of a task ended, and the last error of acktrail in it."""
    folder = scene.logs / f"dag_id={dag_id}" / f"run_id={run_id}" / f"task_id={task_id}"
    newest = max(folder.glob("attempt=*.log"), key=lambda path: path.stat().st_mtime)
    entries = [json.loads(line) for line in newest.read_text().splitlines() if line.startswith("{")]
    said = [each["event"] for each in entries if each.get("logger") == "acktrail.dags" and each.get("level") == "error"]
    return newest.stat().st_mtime, said[-1] if said else ""


def plan_of(api: AirflowReviewer, walk: Walk, run_id: str) -> tuple[str, str]:
    """The plan of a run, and how it stands."""
    try:
        plan_id = api.returned(walk.dag_id, run_id, "plan")["plan_id"]
    except AirflowRefused:
        return "PLAN", "none"
    return plan_id, World(kafka=walk.network.config(), tables=TablesConfig(uri=str(walk.tables))).standing(plan_id)


def go(scene: Scene, walk: Walk, api: AirflowReviewer) -> None:
    """From fault to fault, as the log of the task that failed last advises, to a run that is green."""
    scene = replace(scene, api=api)
    run_id = scene.start(walk.dag_id, **walk.form)
    while True:
        walk.run_id = run_id
        asked_until(partial(is_over, scene, walk.dag_id, run_id), run_id, timeout_s=1_500)
        row, states = walk.row, scene.ended(walk.dag_id, run_id)
        walk.lift()
        plan_id, standing = plan_of(api, walk, run_id)
        failed = [task for task, state in states.items() if state == "failed"]
        if row is None and not failed and walk.found.keys() == {*walk.rows}:
            assert standing in {"none", "DONE"}
            return
        if row is None or not failed:
            assert row or not failed or states["verify"] == "skipped", states  # which says that nothing was sent
            if row:
                walk.found[row] = row._replace(run="green", plan=standing, advice="")
            run_id = scene.start(walk.dag_id, **walk.form)
            continue
        logs = {task: last_advice(scene, walk.dag_id, run_id, task) for task in failed}
        _, last = max((at, task) for task, (at, _) in logs.items())
        advice = logs[row.task_id if row.task_id in logs else last][1].replace(plan_id, "PLAN")
        others = " and ".join(f"`{task}`" for task in failed if task != row.task_id)
        colour = "red" if not others else f"red, {others} too" if row.task_id in failed else f"red by {others}"
        retried = "yes" if walk.tries > 1 else "no"
        walk.found[row] = row._replace(is_retried=retried, run=colour, plan=standing, advice=advice)
        again = {of[1] or task for task, (_, text) in logs.items() for of in [TO_CLEAR.search(text)] if of}
        if "rigger" in advice:
            run_id = scene.start(walk.dag_id, **walk.form)
        else:
            body = {"dry_run": False, "only_failed": False, "include_downstream": True, "dag_run_id": run_id}
            which = sorted(again or failed)
            api.send("POST", f"/api/v2/dags/{walk.dag_id}/clearTaskInstances", {**body, "task_ids": which})


def is_over(scene: Scene, dag_id: str, run_id: str) -> bool:
    """Whether the run ended; one that waits for a person is approved."""
    if approval := scene.asked(run_id):
        with suppress(AirflowRefused):  # its database is busy: asked again
            scene.answer(approval, "Approve")
    return bool(scene.is_over(dag_id, run_id))


@pytest.fixture(scope="module")
def ends(scene: Scene, walks: tuple[list[Walk], int]) -> list[BaseException | None]:
    """Why a walk did not come to its end, if so."""
    with ThreadPoolExecutor(AT_THE_SAME_TIME) as threads:
        futures = [threads.submit(go, scene, walk, copy.copy(scene.api)) for walk in walks[0]]
    return [future.exception() for future in futures]


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.full
@pytest.mark.timeout(4_000)
@pytest.mark.parametrize("dag_id", sorted({row.dag_id for row in documented()} & DAG_IDS))
def test_fault_at_a_task_ends_as_documented(
    walks: tuple[list[Walk], int], ends: list[BaseException | None], dag_id: str
) -> None:
    """The colour of the run, retries, the status of the plan and the advice are those of the documentation. Who
    follows the advice after each fault comes to a run that is green, with a plan that is done."""
    for walk, end in zip(walks[0], ends, strict=True):
        if walk.dag_id == dag_id:
            assert end is None, (end, walk.row)
            assert walk.found.keys() == {*walk.rows}
            for row, found in walk.found.items():
                assert found == row._replace(advice=found.advice), row
                assert row.advice in found.advice
