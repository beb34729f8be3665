"""The DAGs of expansions by the real DAG processor and scheduler, against a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker.workload import Workload
from drivers.airflow_home import DAGS_FOLDER
from drivers.airflow_reviewer import AirflowReviewer
from drivers.airflow_scene import Scene
from drivers.recording_notifier import FACTORY, FILE, messages

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.config import TablesConfig
from acktrail.embedded.airflow.airflow_standalone import AirflowStandalone
from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail.tables.delta.store import Tables

pytestmark = [pytest.mark.airflow, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(1200)]

EXPAND, LOOKS = "acktrail_expand_topic", "acktrail_partitions"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Both DAGs unpaused, as the folder of DAG files brings them."""
    folder = tmp_path_factory.mktemp("expansions")
    tables, home, sent = TablesConfig(uri=str(folder / "tables")), (folder / "airflow").resolve(), folder / "messages"
    env = {
        "ACKTRAIL_TABLES": tables.uri,
        "ACKTRAIL_NOTIFIERS": FACTORY,
        FILE: str(sent),
        "ACKTRAIL_SETTLE": "5s",
        "ACKTRAIL_KEY_MAPPINGS": "*=murmur2",
        "ACKTRAIL_SPARK_MASTER": "in-process",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    standalone = AirflowStandalone(DAGS_FOLDER, folder=home, env=env)
    with standalone as airflow, EmbeddedBroker() as broker:
        api = AirflowReviewer.of(standalone)
        api.add_connection("acktrail_kafka", host=broker.bootstrap_servers)
        for dag_id in (EXPAND, LOOKS):
            airflow.watch().wait_for_dag(dag_id, timeout_s=300)
        api.set_paused(EXPAND, paused=False)
        yield Scene(
            api=api, broker=broker, tables=tables, logs=home / "logs", messages=sent, url=airflow.url, tokens=()
        )


@pytest.mark.full  # tests/expansion/change has the plan and the waiting
def test_an_expansion_waits_for_a_person_and_for_producers(scene: Scene) -> None:
    """A dry run, a refused plan and a rejection change nothing, and the rejection is noted. What is approved is done
    between looks; once producers must know the count, the fences are closed. The audit names who decided. The ledger's
    next scheduled run tells of the topic that grew."""
    workload = Workload(scene.broker.config())
    workload.create_topic("parcels", 2)
    workload.produce("parcels", 3)
    workload.acknowledge("parcel-desk", "parcels", 3)
    dry = scene.start(EXPAND, topic="parcels", partitions=3)
    approved = scene.start(EXPAND, topic="parcels", partitions=3, dry_run=False)
    refused = scene.start(EXPAND, topic="parcels", partitions=2, dry_run=False)
    rejected = scene.start(EXPAND, topic="parcels", partitions=4, dry_run=False)
    asked, other = scene.approval(approved), scene.approval(rejected)
    scene.answer(other, "Reject")
    states = scene.ended(EXPAND, rejected)
    assert (states["note_decision"], states["expand"], states["publish"]) == ("success", "skipped", "skipped")
    closed = json.loads(scene.api.returned(EXPAND, rejected, "plan")["plan"])["plan_id"]
    assert scene.events(closed) == [("rejected", "admin")]
    assert "keys move" in asked.body
    scene.answer(asked, "Approve")

    assert set(scene.ended(EXPAND, approved).values()) == {"success"}
    result = scene.api.returned(EXPAND, approved, "look_again", "result")
    assert (result["is_settled"], result["counts"]["partitions"]) == (True, 3)
    with ShareGroupAdmin(scene.broker.config()) as admin:
        (topic,) = admin.topics(["parcels"])
    assert topic.partition_count == 3
    steps = [(event, who) for event, who in scene.events(result["run_id"])]
    assert steps == [(event, "admin") for event in ("approved", "before_call", "after_call", "verified")]
    states = scene.ended(EXPAND, dry)
    assert (states["plan"], states["approve"], states["expand"]) == ("success", "skipped", "skipped")
    assert scene.ended(EXPAND, refused)["plan"] == "failed"
    assert "not_more_partitions" in scene.reason(EXPAND, refused, "plan")
    verdicts = scene.api.returned(EXPAND, approved, "publish", "result")
    stored = Tables(scene.tables).rows("expansion_verdicts", {"event_id": verdicts["event_id"]})
    assert {row["group_id"] for row in stored} == {"parcel-desk"}
    assert sum(verdicts["counts"]["verdicts"].values()) == len(stored)

    scene.api.set_paused(LOOKS, paused=False)
    run = scene.start(LOOKS, topics=["parcels"])
    assert set(scene.ended(LOOKS, run).values()) == {"success"}
    (found,) = Tables(scene.tables).rows("partition_expansions", {"event_id": verdicts["event_id"]})
    assert (found["old_count"], found["new_count"], found["is_single"]) == (2, 3, True)
    assert verdicts["event_id"] in {each["subject"] for each in messages(scene.messages)}
