"""The DAGs of expansions by the real DAG processor and scheduler, against a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivers.airflow_home import DAGS_FOLDER
from drivers.airflow_scene import AirflowReviewer, Scene
from drivers.sent_messages import FACTORY, FILE, messages
from servers.workload import Workload

from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables
from acktrail_embedded.airflow_standalone import AirflowStandalone
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

pytestmark = [pytest.mark.airflow, pytest.mark.broker, pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(1200)]

EXPAND, LOOKS = "acktrail_expand_topic", "acktrail_partitions"


def test_an_expansion_waits_for_a_person_and_for_producers(tmp_path: Path) -> None:
    """What is approved is done between looks; once producers must know the count, the fences are closed. The audit
    names who decided. The ledger's next scheduled run tells of the topic that grew."""
    tables, home, sent = TablesConfig(uri=str(tmp_path / "t")), (tmp_path / "airflow").resolve(), tmp_path / "messages"
    env = {"ACKTRAIL_TABLES": tables.uri, "ACKTRAIL_NOTIFIERS": FACTORY, FILE: str(sent), "ACKTRAIL_SETTLE": "5s"}
    env |= {"ACKTRAIL_SPARK_MASTER": "in-process", "PYTHONPATH": str(Path(__file__).parents[2] / "support")}
    standalone = AirflowStandalone(DAGS_FOLDER, folder=home, env=env)
    with standalone as airflow, EmbeddedBroker() as broker:
        api, workload = AirflowReviewer.of(standalone), Workload(broker.config())
        api.add_connection("acktrail_kafka", host=broker.bootstrap_servers)
        named = {"logs": home / "logs", "messages": sent, "url": airflow.url, "tokens": ()}
        scene = Scene(api=api, broker=broker, tables=tables, **named)
        for dag_id in (EXPAND, LOOKS):
            airflow.watch().wait_for_dag(dag_id, timeout_s=300)
        workload.create_topic("parcels", 2)
        workload.produce("parcels", 3)
        workload.acknowledge("parcel-desk", "parcels", 3)
        api.set_paused(EXPAND, paused=False)
        run = scene.start(EXPAND, topic="parcels", partitions=3, dry_run=False)
        asked = scene.approval(run)
        assert "2 to 3 partitions" in asked.body
        scene.answer(asked, "Approve")
        assert set(scene.ended(EXPAND, run).values()) == {"success"}
        assert "producers know the count" in api.returned(EXPAND, run, "look_again")["note"]
        plan_id = api.returned(EXPAND, run, "plan")["plan_id"]
        steps = {("approved", "admin"), ("before_call", "admin"), ("after_call", "admin")}
        assert steps <= set(scene.events(plan_id))
        assert {row["group_id"] for row in Tables(tables).rows("expansion_verdicts")} == {"parcel-desk"}
        (found,) = Tables(tables).rows("partition_expansions")
        assert (found["new_count"], found["is_single"], found["status"]) == (3, True, "settled")

        api.set_paused(LOOKS, paused=False)
        assert set(scene.ended(LOOKS, scene.start(LOOKS, topics=["parcels"])).values()) == {"success"}
    assert found["event_id"] in {each["subject"] for each in messages(sent)}
