"""Both DAGs, run in process against a real broker."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from change.world import World
from confluent_kafka import AcknowledgeType
from drivers.sent_messages import FACTORY, FILE, messages

from acktrail.config import TablesConfig
from acktrail.model.rules.catalogue import QualitySeverity, rule_catalogue
from acktrail.tables.delta.store import Tables
from acktrail_dashboard.evidence import FileFate, verify_pack
from acktrail_demo.faults.library import FAULTS, faults_on, find_faults
from acktrail_demo.workload.demo_cluster import inject_faults
from acktrail_demo.workload.scenario import HOSTILE_GROUP
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

pytestmark = [
    *(pytest.mark.airflow, pytest.mark.broker, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)),
    pytest.mark.filterwarnings("default"),  # Airflow, Spark and Great Expectations warn of each other's future
]


RECORDS = 40
RELEASE = "4.4.0"
FAULTY = faults_on(RELEASE)
"""A share partition each."""


@pytest.fixture(scope="module")
def own_broker() -> Iterator[EmbeddedBroker]:
    """A broker with nothing on it but this module's groups."""
    with EmbeddedBroker(RELEASE) as running:
        yield running


@pytest.fixture(scope="module")
def exported(own_broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> TablesConfig:
    """The tables that the tests below share, in their order; a group with a hostile name has been at work."""
    world = World.at(own_broker.config(), tmp_path_factory.mktemp("runs"))
    world.make_topic("orders", len(FAULTY), RECORDS)
    world.settle(HOSTILE_GROUP, "orders", len(FAULTY) * RECORDS, lambda _: AcknowledgeType.ACCEPT)
    return world.tables


@pytest.fixture(autouse=True)
def connected(
    own_broker: EmbeddedBroker,
    exported: TablesConfig,
    airflow_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection that the DAGs name by default, places that runs may name, and a notifier."""
    connection = {"conn_type": "generic", "host": own_broker.bootstrap_servers}
    monkeypatch.setenv("AIRFLOW_CONN_ACKTRAIL_KAFKA", json.dumps(connection))
    for name in ("ACKTRAIL_TABLES", "ACKTRAIL_REPORTS", "ACKTRAIL_TABLES_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    tables = (exported.uri, f"{tmp_path}/tables")
    monkeypatch.setenv("ACKTRAIL_DAG_PLACES", ",".join(f"acktrail_kafka={uri}" for uri in tables))
    monkeypatch.setenv("ACKTRAIL_DAG_FOLDERS", str(tmp_path))
    monkeypatch.setenv("ACKTRAIL_NOTIFIERS", FACTORY)
    monkeypatch.setenv(FILE, str(tmp_path / "messages"))


def _events(run: Any) -> dict[str, dict[str, Any]]:
    """Asset name to the extra of the event that a run published."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select

    own = (AssetEvent.source_dag_id == run.dag_id, AssetEvent.source_run_id == run.run_id)
    with create_session() as session:
        return {event.asset.name: dict(event.extra) for event in session.scalars(select(AssetEvent).where(*own))}


def _states(run: Any) -> dict[str, str]:
    return {task.task_id: str(task.state) for task in run.get_task_instances()}


def _results(run: Any) -> dict[str, dict[str, Any]]:
    """What each task handed over by XCom."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    own = (XComModel.dag_id == run.dag_id, XComModel.run_id == run.run_id, XComModel.key == "result")
    with create_session() as session:
        return {found.task_id: found.value for found in session.scalars(select(XComModel).where(*own))}


def _run_ids(tables: TablesConfig, table: str) -> set[str]:
    return set(Tables(tables).read(table, columns=["run_id"])["run_id"].to_pylist())


@pytest.mark.full
def test_a_cluster_without_share_groups_is_no_failure(dag_bag: Any, tmp_path: Path) -> None:
    """Before the first share consumer there is nothing to reconcile: the export succeeds, the reconciliation skips."""
    conf = {"tables_uri": str(tmp_path / "tables")}
    export = dag_bag.dags["acktrail_export"].test(run_conf=conf)
    assert _states(export) == {"export": "success"}
    counts = _events(export)["acktrail_exported"]["counts"]
    assert (counts["status"], counts["records_read"]) == ("state_topic_absent", 0)
    reconcile = dag_bag.dags["acktrail_reconcile"].test(run_conf={**conf, "report_folder": str(tmp_path)})
    assert set(_states(reconcile).values()) == {"skipped"}
    assert str(reconcile.state) == "success"


def test_export_tells_what_it_did_and_the_next_one_goes_on_there(dag_bag: Any, exported: TablesConfig) -> None:
    """The event carries the run and its counts; a second run finds nothing it has already."""
    dag = dag_bag.dags["acktrail_export"]
    first, second = (dag.test(run_conf={"tables_uri": exported.uri}) for _ in range(2))
    told, again = (_events(run)["acktrail_exported"] for run in (first, second))
    assert f"file://{exported.uri}/state_records" in _events(first)
    assert told["counts"]["records_read"] > 0
    assert told["counts"]["status"] == "complete"
    assert told["tables_uri"] == exported.uri
    assert again["counts"]["records_read"] == 0
    assert _run_ids(exported, "state_records") == {told["run_id"]}
    rows = Tables(exported).read("state_records").num_rows
    assert rows == told["counts"]["records_read"]


def test_reconcile_goes_from_observation_to_report_under_one_run_id(
    dag_bag: Any, exported: TablesConfig, tmp_path: Path
) -> None:
    """Every share partition gets a verdict, the gate passes, the report is whole."""
    conf = {"tables_uri": exported.uri, "report_folder": str(tmp_path)}
    run = dag_bag.dags["acktrail_reconcile"].test(run_conf=conf)
    assert set(_states(run).values()) == {"success"}
    told = _events(run)["acktrail_reported"]
    for table in ("reconciliations", "share_partition_states", "quality_results"):
        assert _run_ids(exported, table) == {told["run_id"]}, table
    rows = Tables(exported).read("reconciliations").to_pylist()
    assert sorted((row["group_id"], row["partition"]) for row in rows) == [
        (HOSTILE_GROUP, n) for n in range(len(FAULTY))
    ]
    assert {row["verdict"] for row in rows} == {"match"}
    assert told["summary"]["share_partitions"] == len(rows)
    page = Path(told["report"]).read_text(encoding="utf-8")
    assert told["run_id"] in page
    assert "<b>eilig</b>" not in page
    results = _results(run)
    assert {name: of["run_id"] for name, of in results.items()} == dict.fromkeys(_states(run), told["run_id"])
    assert results["reconcile"]["counts"]["verdicts"] == {"match": len(rows)}
    assert results["validate"]["counts"]["critical_failures"] == 0
    assert results["publish"]["counts"]["share_partitions"] == len(rows)
    assert results["publish"]["links"]["report"] == told["report"]
    evidence = verify_pack(exported, Path(results["publish"]["links"]["evidence"]))
    assert (evidence.fate, evidence.sha256) == (FileFate.SAME, results["publish"]["evidence_sha256"])
    data = json.loads(Path(results["publish"]["links"]["report_data"]).read_text(encoding="utf-8"))
    assert data["head"]["run_id"] == told["run_id"]


def test_an_automatic_run_looks_first_and_skips_where_nothing_changed(
    dag_bag: Any, exported: TablesConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an export that brought nothing, `observe` asks no broker, writes no observation and says why it skips."""
    from acktrail_dags import pipeline_steps
    from acktrail_provider.airflow_names import AirflowSkipException

    export = dag_bag.dags["acktrail_export"].test(run_conf={"tables_uri": exported.uri})
    told = _events(export)["acktrail_exported"]
    before = _run_ids(exported, "offset_observations")
    run = "acktrail_connect.export.export_run"
    monkeypatch.setattr(f"{run}.observe", lambda *_, **__: pytest.fail("a broker was asked"))
    with pytest.raises(AirflowSkipException, match="nothing changed since run"):
        pipeline_steps.observe.function(**_automatic(told, tmp_path))
    assert _run_ids(exported, "offset_observations") == before


def _automatic(extra: dict[str, Any], folder: Path) -> Any:
    """What of Airflow's context `observe` reads in a run that follows an export."""
    params = {"kafka_conn_id": None, "tables_uri": None, "report_folder": str(folder)}
    event = SimpleNamespace(extra=extra, timestamp=dt.datetime.now(dt.UTC))
    return {
        "params": params,
        "ti": SimpleNamespace(dag_id="acktrail_reconcile", run_id="asset_triggered__x", try_number=1),
        "dag_run": SimpleNamespace(run_type="asset_triggered"),
        "triggering_asset_events": {"acktrail_exported": [event]},
    }


def stops(fault: Any) -> frozenset[str]:
    """The critical expectations that a fault breaks."""
    names = {name.split(".", 1)[1] for name in fault.expected.failing}
    return frozenset(name for name in names if rule_catalogue().by_id[name].severity is QualitySeverity.CRITICAL)


def test_the_gate_stops_on_critical_faults_alone(
    dag_bag: Any, exported: TablesConfig, own_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Every fault happens, each to one share partition: brokers that load them describe what was replayed, and exactly
    the faults are found. Those that break no critical rule are reported; of the others the run stops and names each
    critical rule with its advice. So does its report, in the place of the last one, and one message. No asset tells of
    a good run. The next run, which has nothing new to reconcile, fails, too: it is not well."""
    assert len(FAULTY) == sum(fault.on_broker for fault in FAULTS.values())
    injected = inject_faults(own_broker, FAULTY, group_id=HOSTILE_GROUP, topic="orders", records=RECORDS)
    conf = {"tables_uri": exported.uri, "report_folder": str(tmp_path)}

    run = dag_bag.dags["acktrail_reconcile"].test(run_conf=conf)

    ended = {"observe": "success", "reconcile": "success", "notify": "success"}
    assert _states(run) == {**ended, "validate": "failed", "publish": "upstream_failed"}
    assert _events(run) == {}
    validated = _results(run)["validate"]
    found = find_faults(Tables(exported), validated["run_id"], injected)
    assert {each.fault.name: signs for each, signs in zip(injected, found.missing, strict=True) if signs} == {}
    assert found.others == frozenset()
    page = (tmp_path / "acktrail-report.html").read_text(encoding="utf-8")
    assert "The checks stopped this run" in page.split("</h1>")[0]
    assert page == Path(validated["links"]["report"]).read_text(encoding="utf-8")
    assert verify_pack(exported, Path(validated["links"]["evidence"])).fate is FileFate.SAME
    stopping = [failure for failure in validated["failures"] if failure["stops"]]
    assert {failure["rule"] for failure in stopping} == frozenset[str]().union(*map(stops, FAULTY))
    assert len(stopping) < len(validated["failures"])
    data = json.loads((tmp_path / "acktrail-report.json").read_text())
    assert data["totals"]["expectations_stopping"] == len(stopping)
    for failure in stopping:
        assert failure["where"]
        assert failure["advice"] == rule_catalogue().by_id[failure["rule"]].advice
    (gate,) = [each for each in messages(tmp_path / "messages") if each["kind"] == "gate"]
    assert min(failure["rule"] for failure in stopping) in gate["title"]

    from acktrail_dags import pipeline_steps
    from acktrail_provider.airflow_names import AirflowFailException

    told = _events(dag_bag.dags["acktrail_export"].test(run_conf={"tables_uri": exported.uri}))["acktrail_exported"]
    with pytest.raises(AirflowFailException, match=f"the gate still stops run {validated['run_id']}"):
        pipeline_steps.observe.function(**_automatic(told, tmp_path))
