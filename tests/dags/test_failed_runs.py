"""A fault before tasks of changes, by the real scheduler: the colour of the run, and what the log advises."""

from __future__ import annotations

import json
import shutil
import socketserver
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from drivers.airflow_home import DAGS_FOLDER
from drivers.airflow_scene import AirflowReviewer, Scene
from servers.kafka_proxy import KafkaProxy, kafka_proxy
from servers.workload import Workload

from acktrail.config import TablesConfig
from acktrail.export.export_run import export
from acktrail_embedded.airflow_standalone import AirflowStandalone
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

pytestmark = [
    *(pytest.mark.airflow, pytest.mark.broker, pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(1800)),
]

RESET, EXPAND = "acktrail_reset_offsets", "acktrail_expand_topic"
CREATE_PARTITIONS, ALTER_OFFSETS = 37, 91
LOADED_ONCE = "acktrail.change.new_plans, acktrail_expectations.reset_gate, acktrail.export.export_run"
"""What tasks need: the scheduler, which forks them, has it loaded before, or each would load it."""
POLICY = """
import socket, sys
from datetime import timedelta
from pathlib import Path

if 'scheduler' in sys.argv:
    import {loaded}

def strike(context):
    number, _, rest = Path(context["params"].get("tables_uri") or "").name.partition("-")
    if rest.partition("-")[0] == context["ti"].task_id and context["ti"].try_number == 1:
        with socket.create_connection(("127.0.0.1", {port})) as control:
            control.sendall(f"{{number}} {{rest.partition('-')[2]}}\\n".encode())
            control.makefile().readline()

def task_policy(task):
    task.retry_delay = timedelta(seconds=1)
    task._pre_execute_hook = strike
"""
"""Airflow's cluster policy: before the first try of the task that the name of the tables has, the fault happens."""


@dataclass(frozen=True, slots=True)
class Case:
    """A fault that happens before a task. `failed` are the tasks that fail by it; `advice` is in the log of the last
    of them."""

    dag_id: str
    task_id: str
    fault: str
    failed: tuple[str, ...]
    advice: str


CASES = (
    Case(RESET, "execute", "request_lost", ("verify",), "it may still arrive"),
    Case(RESET, "execute", "answer_lost", (), ""),
    Case(EXPAND, "execute", "request_lost", ("verify",), "it may still arrive"),
    Case(EXPAND, "execute", "answer_lost", (), ""),
    Case(RESET, "recheck", "broker_gone", ("recheck",), "Nothing was sent yet"),
    Case(RESET, "verify", "broker_gone", ("verify",), "clear the task verify"),
    Case(RESET, "verify", "tables_gone", ("verify",), "not known how the plan stands"),
    Case(EXPAND, "look_again", "broker_gone", ("look_again",), "clear that task"),
    Case(RESET, "execute", "broker_gone", ("execute",), "Nothing was sent"),
    Case(RESET, "check_result", "tables_gone", ("check_result",), "not known how the plan stands"),
    Case(RESET, "note_decision", "tables_gone", ("note_decision", "verify"), "not known how the plan stands"),
    Case(EXPAND, "audit", "tables_gone", ("audit",), "clear this task"),
)
TOGETHER = {"sent": slice(0, 4), "approved": slice(4, 8), "at the ends": slice(8, 12)}
"""Which of them run at the same time."""


@dataclass
class Faults:
    """What happens when a task says that it begins."""

    folder: Path
    networks: dict[int, KafkaProxy] = field(default_factory=dict)

    def strike(self, number: int, fault: str) -> None:
        network = self.networks[number]
        if fault == "broker_gone":
            network.go_down()
        elif fault == "request_lost":
            network.held |= {CREATE_PARTITIONS, ALTER_OFFSETS}
        elif fault == "answer_lost":
            for api_key in (CREATE_PARTITIONS, ALTER_OFFSETS):
                network.cuts[api_key].append(0.0)
        else:
            place = self.tables_of(number)
            place.rename(self.folder / f"away-{number}")
            place.write_text("")

    def tables_of(self, number: int) -> Path:
        """The tables of a case. Their name says where its fault happens."""
        return self.folder / f"{number}-{CASES[number].task_id}-{CASES[number].fault}"


class _Control(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        number, fault = self.rfile.readline().decode().split()
        self.server.faults.strike(int(number), fault)  # type: ignore[attr-defined]
        self.wfile.write(b"done\n")


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Faults, int]]:
    """The faults, and the port at which tasks ask for theirs."""
    found = Faults(tmp_path_factory.mktemp("tables"))
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Control) as server:
        server.faults = found  # type: ignore[attr-defined]
        Thread(target=server.serve_forever, daemon=True).start()
        yield found, server.server_address[1]
        server.shutdown()


@pytest.fixture(scope="module")
def scene(faults: tuple[Faults, int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """An Airflow whose tasks ask for their fault first."""
    folder = tmp_path_factory.mktemp("runs")
    home = (folder / "airflow").resolve()
    (home / "config").mkdir(parents=True)
    settings = POLICY.format(port=faults[1], loaded=LOADED_ONCE)
    (home / "config/airflow_local_settings.py").write_text(settings)
    env = {"ACKTRAIL_SETTLE": "5s", "ACKTRAIL_SPARK_MASTER": "in-process"}
    standalone = AirflowStandalone(DAGS_FOLDER, folder=home, env=env)
    with standalone as airflow, EmbeddedBroker() as broker:
        api = AirflowReviewer.of(standalone)
        for dag_id in dict.fromkeys(case.dag_id for case in CASES):
            airflow.watch().wait_for_dag(dag_id, timeout_s=300)
        tables = TablesConfig(uri=str(folder / "tables"))
        export(broker.config(), tables)
        named: dict[str, Any] = {"logs": home / "logs", "messages": folder, "url": airflow.url, "tokens": ()}
        yield Scene(api=api, broker=broker, tables=tables, **named)


def start(scene: Scene, faults: Faults, number: int, network: KafkaProxy) -> str:
    """The id of the run of a case, through a network of its own, on a topic and a group of its own."""
    case, workload = CASES[number], Workload(scene.broker.config())
    faults.networks[number] = network
    scene.api.add_connection(f"through_{number}", host=network.address)
    workload.create_topic(f"topic-{number}", 1)
    workload.produce(f"topic-{number}", 3)
    workload.acknowledge(f"group-{number}", f"topic-{number}", 3)
    shutil.copytree(scene.tables.uri, faults.tables_of(number))
    form: dict[str, Any] = {"tables_uri": str(faults.tables_of(number)), "kafka_conn_id": f"through_{number}"}
    if case.dag_id == RESET:
        form |= {"groups": [f"group-{number}"], "all_topics": True, "strategy": "to-earliest", "dry_run": False}
    if case.dag_id == EXPAND:
        form |= {"topic": f"topic-{number}", "partitions": 3, "dry_run": False}
    scene.api.set_paused(case.dag_id, paused=False)
    return scene.start(case.dag_id, **form)


def last_advice(scene: Scene, dag_id: str, run_id: str, task_id: str) -> str:
    """The last error of acktrail in the newest log of a task."""
    folder = scene.logs / f"dag_id={dag_id}" / f"run_id={run_id}" / f"task_id={task_id}"
    newest = max(folder.glob("attempt=*.log"), key=lambda path: path.stat().st_mtime)
    entries = [json.loads(line) for line in newest.read_text().splitlines() if line.startswith("{")]
    said = [each["event"] for each in entries if each.get("logger") == "acktrail.dags" and each.get("level") == "error"]
    return said[-1] if said else ""


@pytest.mark.parametrize("which", TOGETHER.values(), ids=TOGETHER)
def test_fault_of_a_change_makes_its_run_red_unless_it_is_done(
    scene: Scene, faults: tuple[Faults, int], which: slice
) -> None:
    """A run whose task met a fault fails, also where the request was lost; it is green only where the answer was lost
    and the change is found. The log of the task that failed last says what a person does."""
    runs: dict[int, str] = {}
    found: dict[int, tuple[set[str], str]] = {}
    with ExitStack() as networks:
        for number in range(len(CASES))[which]:
            network = networks.enter_context(kafka_proxy(scene.broker.bootstrap_servers))
            runs[number] = start(scene, faults[0], number, network)
        for run_id in runs.values():
            scene.answer(scene.approval(run_id), "Approve")
        for number, run_id in runs.items():
            states = scene.ended(CASES[number].dag_id, run_id)
            failed = [task for task, state in states.items() if state == "failed"]
            advice = last_advice(scene, CASES[number].dag_id, run_id, failed[-1]) if failed else ""
            found[number] = {*failed}, advice
    as_expected = {number: {*CASES[number].failed} == failed for number, (failed, _) in found.items()}
    assert all(as_expected.values()), found
    assert all(CASES[number].advice in advice for number, (_, advice) in found.items()), found
