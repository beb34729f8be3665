"""DAGs of others by the real scheduler, against a real broker: sensors that hold no slot, a reset by operators."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer
from drivers.airflow_scene import AirflowReviewer, asked_until
from servers.workload import Workload, until

from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail_embedded.airflow_standalone import AirflowStandalone
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

pytestmark = [pytest.mark.airflow, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLE: Final = "backfill_billing"
NEWCOMER: Final = "close_the_day"
RECORDS: Final = 3
LOADED_ONCE: Final = "acktrail.change.reset_planner, acktrail_provider.operators, acktrail_provider.sensors"
"""What tasks need: the scheduler, which forks them, has it loaded before, or each would load it."""
SLACK_S: Final = 20
"""For a machine that others use, too."""


def documented() -> str:
    """The first DAG of the page for newcomers, as it stands there."""
    page = (ROOT / "docs/how-to/write-your-own-dag.md").read_text("utf-8")
    return page.partition("```python\n")[2].partition("```")[0]


@dataclass(frozen=True)
class Place:
    """An Airflow with somebody's DAGs, and a broker."""

    api: AirflowReviewer
    broker: EmbeddedBroker
    work: Workload
    home: Path

    def start(self, dag_id: str) -> str:
        self.api.set_paused(dag_id, paused=False)
        return self.api.trigger(dag_id)

    def state(self, dag_id: str, run_id: str, task_id: str) -> str | None:
        return next(task.state for task in self.api.tasks(dag_id, run_id) if task.task_id == task_id)

    def pool(self) -> dict[str, int]:
        return self.api.send("GET", "/api/v2/pools/default_pool")

    def said(self, dag_id: str, run_id: str, task_id: str) -> list[tuple[float, str]]:
        """What the log of a task says of groups, on the worker and in the triggerer, in order of time."""
        folder = self.home / "logs" / f"dag_id={dag_id}" / f"run_id={run_id}" / f"task_id={task_id}"
        lines = [json.loads(line) for file in folder.glob("*") for line in file.read_text().splitlines()]
        found = [(dt.datetime.fromisoformat(of["timestamp"]).timestamp(), str(of["event"])) for of in lines]
        return sorted((at, text) for at, text in found if text.startswith("group "))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("provider")
    home = (folder / "airflow").resolve()
    (home / "config").mkdir(parents=True)
    (home / "config/airflow_local_settings.py").write_text(
        f"import sys\nif 'scheduler' in sys.argv: import {LOADED_ONCE}\n"
    )
    env = {
        "ACKTRAIL_TABLES": str(folder / "tables"),
        "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "1",
    }
    dags = folder / "dags"
    shutil.copytree(ROOT / "examples/airflow", dags)
    (dags / f"{NEWCOMER}.py").write_text(documented())
    standalone = AirflowStandalone(dags, folder=home, env=env)
    with standalone as airflow, EmbeddedBroker() as broker:
        api = AirflowReviewer.of(standalone)
        asked_until(lambda: api.health().get("triggerer") == "healthy", "the triggerer")
        host, port = broker.bootstrap_servers.split(":")
        api.add_connection("acktrail_kafka", conn_type="acktrail_kafka", host=host, port=int(port))
        for dag_id in (EXAMPLE, NEWCOMER):
            airflow.watch().wait_for_dag(dag_id, timeout_s=300)
        yield Place(api, broker, Workload(broker.config()), home)


def test_example_waits_without_a_slot_and_ends_on_time(place: Place) -> None:
    """The sensor is deferred and the pool has nothing that runs while a member holds records; seconds after the last
    acknowledgement it fires. The reset is done and verified, and the backfill runs."""
    place.work.create_topic("orders")
    place.work.produce("orders", RECORDS)
    place.work.configure_group("billing", share_auto_offset_reset="earliest")
    explicit = {"share.acknowledgement.mode": "explicit"}
    member = ShareConsumer({**to_librdkafka(place.broker.config()), "group.id": "billing", **explicit})
    member.subscribe(["orders"])
    held = until(lambda: list(member.poll(0.5) or ()), what="records")

    run_id = place.start(EXAMPLE)
    asked_until(lambda: place.state(EXAMPLE, run_id, "drained") == "deferred", "the wait")
    asked_until(lambda: place.pool()["deferred_slots"] == 1, "the slot")
    assert place.pool()["occupied_slots"] == 0
    asked_until(lambda: len(place.said(EXAMPLE, run_id, "drained")) == 2, "a look by the triggerer")

    def accepted() -> bool:
        """Accepts what it holds; if that took so long that the locks are over, what it gets again."""
        for message in held or member.poll(0.5) or ():
            member.acknowledge(message, AcknowledgeType.ACCEPT)
        held.clear()
        member.commit_sync()
        with ShareGroupAdmin(place.broker.config()) as admin:
            return admin.describe_offsets("billing")[0].lag == 0

    until(accepted, what="acknowledgements")
    acknowledged = time.time()
    asked_until(lambda: place.state(EXAMPLE, run_id, "drained") == "success", "the end of the wait")
    assert place.state(EXAMPLE, run_id, "plan") is None
    member.close()
    asked_until(lambda: place.api.run(EXAMPLE, run_id).state in {"success", "failed"}, "the end")

    states = {task.task_id: task.state for task in place.api.tasks(EXAMPLE, run_id)}
    assert states == dict.fromkeys(("drained", "stopped", "plan", "apply", "verify", "backfill"), "success")
    with ShareGroupAdmin(place.broker.config()) as admin:
        (offset,) = admin.describe_offsets("billing")
    assert (offset.start_offset, offset.lag) == (0, RECORDS)
    said = place.said(EXAMPLE, run_id, "drained")
    fired = [at for at, text in said if text == "group billing: drained: nothing is left in 1 share partitions"]
    assert all(text.startswith("group billing: at most 3 offsets left") for _, text in said[: -len(fired)])
    assert fired[0] - acknowledged < 5 + SLACK_S


@pytest.mark.full
def test_documented_dag_of_a_newcomer(place: Place) -> None:
    """As it stands on the page: 30 lines. It waits for the lag, then deferred until billing has drained, and reports
    what the hook says."""
    assert len(documented().splitlines()) <= 32
    run_id = place.start(NEWCOMER)
    asked_until(lambda: place.state(NEWCOMER, run_id, "drained") == "deferred", "the wait")
    assert place.state(NEWCOMER, run_id, "caught_up") == "success"
    place.work.acknowledge("billing", "orders", RECORDS)
    asked_until(lambda: place.api.run(NEWCOMER, run_id).state in {"success", "failed"}, "the end")
    assert {task.state for task in place.api.tasks(NEWCOMER, run_id)} == {"success"}
    assert place.api.returned(NEWCOMER, run_id, "report") == {"orders-0": 0}


def test_test_of_the_connection_in_airflow(place: Place) -> None:
    """What Airflow's own *Test* answers: which cluster it is, or why it does not answer."""
    asked = {"connection_id": "probe", "conn_type": "acktrail_kafka"}
    hosts = (place.broker.bootstrap_servers, "127.0.0.1:1")
    answers = [place.api.send("POST", "/api/v2/connections/test", {**asked, "host": host}) for host in hosts]
    assert [answer["status"] for answer in answers] == [True, False]
    assert answers[0]["message"].startswith("Kafka ")
    assert "127.0.0.1:1" in answers[1]["message"]
