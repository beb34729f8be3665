"""The DAGs of expansions as the scheduler has them, and by the real one against a real broker. What every DAG keeps to
is checked with those of the trunk."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dags.test_tasks import FORM, validated
from drivers.airflow_home import DAGS_FOLDER, RunningTask
from drivers.airflow_scene import AirflowReviewer, Scene
from drivers.sent_messages import FACTORY, FILE, messages
from extras.expansion.change.test_expansion_plan import HOSTILE, a_group, a_plan
from servers.kafka_proxy import kafka_proxy
from servers.workload import Workload

from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables
from acktrail_embedded.airflow_standalone import AirflowStandalone
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

pytestmark = pytest.mark.airflow


def test_a_person_comes_before_an_expansion_and_a_wait_after_it(dag_bag: Any) -> None:
    """Plan, answer and its record come before it; the wait for producers holds no slot; the last look and the audit
    come after it, and only after an expansion. Messages follow the audit of looks, and the gate ends a run."""
    from airflow.providers.standard.sensors.date_time import DateTimeSensorAsync

    dag, looks = (dag_bag.dags[dag_id] for dag_id in ("acktrail_expand_topic", "acktrail_partitions"))
    before = ["plan", "dry_run_ends_here", "approve", "note_decision", "recheck"]
    line = [*before, "execute", "verify", "settle", "look_again", "audit"]
    for number, name in enumerate(line):
        assert dag.task_dict[name].get_flat_relative_ids(upstream=True) == {*line[:number]}
    assert {dag.task_dict[name].trigger_rule for name in line if name != "verify"} == {"all_success"}
    assert "execute" in dag.task_dict["settle"].upstream_task_ids
    assert isinstance(dag.task_dict["settle"], DateTimeSensorAsync)
    assert dag.params["dry_run"] is True
    assert {task.task_id for task in looks.leaves} == {"validate", "notify"}
    assert all("audit" in task.upstream_task_ids for task in looks.leaves)


def test_what_is_allowed_is_in_the_request_of_a_reset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is filled in is in the request; what is empty is not asked for."""
    monkeypatch.setenv("ACKTRAIL_TABLES", str(tmp_path))
    form = {**FORM, "topics": ["orders"]}
    assert validated({**form, "allow": ["order_broken"]})["allow"] == ["order_broken"]
    assert validated(form)["allow"] == []


BAD = [*(("topic", name) for name in (None, "x'; drop", "x" * 250)), *(("partitions", at) for at in (None, 0, 10_001))]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_the_form_of_an_expansion_refuses(dag_bag: Any, name: str, value: object) -> None:
    """Names that no topic has, and counts that no topic gets."""
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError):
        dag_bag.dags["acktrail_expand_topic"].params.get_param(name).resolve(value)


def test_the_preview_has_keys_groups_and_notices_with_names_harmless() -> None:
    """A hostile id stays text in a line of code, or in one cell. Of sixty groups fifty are shown, and the others
    counted."""
    from acktrail_dags.plan_text import plan_text

    groups = [a_group(HOSTILE, is_ordered=True, open_records=7), *(a_group(f"h{number}") for number in range(59))]
    preview = plan_text(a_plan(3, *groups), where="here")
    assert all(text in preview.replace("\\", "") for text in ("2/3 of all keys move", "open_before_expansion"))
    markdown = [line for line in preview.splitlines() if not line.startswith("    ")]
    assert all(raw not in "\n".join(markdown) for raw in ("<b>", "](", "\x1b", "|`", "\n# head"))
    assert all(line.isprintable() for line in preview.splitlines())
    assert "10 more" in preview


EXPAND, LOOKS = "acktrail_expand_topic", "acktrail_partitions"
CREATE_PARTITIONS = 37


@pytest.mark.broker
def test_lost_request_fails_the_run_until_it_is_settled(
    airflow_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A request that the broker never got: `verify` fails, and so does the run when it is cleared, which makes no other
    plan. The log says what a person does. Once the request arrived, `verify` settles the plan."""
    from acktrail_dags import change_steps
    from acktrail_expansion.dags import expansion_steps
    from acktrail_provider.airflow_names import AirflowFailException

    monkeypatch.setattr("acktrail_expansion.change.expansion_kind._SPREAD_S", 2.0)
    with EmbeddedBroker() as broker, kafka_proxy(broker.bootstrap_servers) as network:
        for steps in (change_steps, expansion_steps):
            monkeypatch.setattr(steps, "cluster_at", lambda _: network.config())
        Workload(broker.config()).create_topic("lost-request", 1)
        monkeypatch.setenv("ACKTRAIL_TABLES", str(tmp_path))
        form = {"topic": "lost-request", "partitions": 3, "dry_run": False, "reason": None}
        context: Any = {
            "params": form,
            "dag_run": SimpleNamespace(triggering_user_name="ann"),
            "ti": (task := RunningTask(EXPAND)),
        }
        plan = expansion_steps.plan_expansion.function(**context)
        task.answers["approve"] = {"chosen_options": ["Approve"], "responded_by_user": {"id": "1", "name": "eve"}}
        approver = change_steps.note_decision.function(plan, **context)
        network.held.add(CREATE_PARTITIONS)
        change_steps.execute.function(plan, approver)
        with pytest.raises(AirflowFailException, match="its outcome is unknown"):
            change_steps.verify.function(plan, **context)
        assert "the request may still take effect. Clear the task verify to check again" in caplog.text
        with pytest.raises(AirflowFailException, match=f"{plan['plan_id']} before, and its outcome is not determined"):
            expansion_steps.plan_expansion.function(**context)
        network.release()
        assert change_steps.verify.function(plan, **context)["groups"] == {"": "done"}
        assert expansion_steps.plan_expansion.function(**{**context, "params": {**context["params"], "partitions": 4}})


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.full
@pytest.mark.timeout(1200)
def test_an_expansion_waits_for_a_person_and_for_producers(tmp_path: Path) -> None:
    """What is approved is done between looks; once producers must know the count, the fences are closed. The audit
    names who decided. The ledger's next scheduled run tells of the topic that grew."""
    tables, home, sent = TablesConfig(uri=str(tmp_path / "t")), (tmp_path / "airflow").resolve(), tmp_path / "messages"
    env = {"ACKTRAIL_TABLES": tables.uri, "ACKTRAIL_NOTIFIERS": FACTORY, FILE: str(sent), "ACKTRAIL_SETTLE": "5s"}
    env |= {"ACKTRAIL_SPARK_MASTER": "in-process", "PYTHONPATH": str(Path(__file__).parents[3] / "support")}
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
