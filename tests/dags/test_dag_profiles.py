"""DAGs for several clusters: one set for each profile, and what each works on."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from drivers.airflow_home import Late
from servers.workload import Workload

from acktrail.branches import branches
from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, UnknownName
from acktrail.tables.delta.store import Tables
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]

exceptions, run_target = Late("airflow.sdk.exceptions"), Late("acktrail_dags.run_target")
DAGS_FOLDER = Path(__file__).resolve().parents[2] / "dags"
OF_BRANCHES = {module.rpartition(".")[2] for branch in branches() for module in branch.dags}
BASES = {path.stem for path in DAGS_FOLDER.glob("*.py")} - {"acktrail_branches"} | OF_BRANCHES
HIDDEN = "hidden-w0rd"
Bag = Callable[[str], Any]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two profiles in a file, the tables of all under one root; a third is wrong, a fourth is in no file."""
    for name in ("TABLES", "TABLES_OPTIONS", "PROFILE", "DAG_PROFILES", "REPORTS"):
        monkeypatch.delenv(f"ACKTRAIL_{name}", raising=False)
    file = tmp_path / "profiles.toml"
    file.write_text(
        f"""
        root = "{tmp_path}/tables"
        [profiles.prod-eu]
        bootstrap.servers = "eu:9092"
        [profiles.prod-eu.kafka]
        sasl.username = "${{env:PROBE}}"
        [profiles.prod-us]
        bootstrap.servers = "us:9092"
        [profiles.wrong]
        bootstrap.server = "us:9092"
        """
    )
    monkeypatch.setenv("ACKTRAIL_PROFILES", str(file))
    monkeypatch.setenv("PROBE", HIDDEN)


@pytest.fixture
def bag(monkeypatch: pytest.MonkeyPatch) -> Bag:
    """The DAG folder as Airflow reads it where ACKTRAIL_DAG_PROFILES has a value."""

    def read(names: str) -> Any:
        from airflow.dag_processing.dagbag import DagBag

        monkeypatch.setenv("ACKTRAIL_DAG_PROFILES", names)
        return DagBag(dag_folder=DAGS_FOLDER)

    return read


@pytest.mark.parametrize("names", ["", " , ", "prod-eu", "prod-eu,prod-eu"])
def test_one_cluster_keeps_the_plain_ids(bag: Bag, names: str) -> None:
    """With no profile or one, no id has a suffix."""
    found = bag(names)
    assert (set(found.dags), found.import_errors) == (BASES, {})


def test_several_profiles_have_a_set_of_dags_each(bag: Bag) -> None:
    """Ids, connection, tags and documentation name the profile; each reconciliation follows its own export alone.
    Nobody picks another cluster in a form."""
    found = bag("prod-eu, prod-us")
    assert found.import_errors == {}
    assert set(found.dags) == {f"{base}__{end}" for base in BASES for end in ("prod_eu", "prod_us")}
    for dag_id, dag in found.dags.items():
        end = dag_id.rpartition("__")[2]
        name = end.replace("_", "-")
        assert dag.params["profile"] == name
        with pytest.raises(exceptions.ParamValidationError):
            dag.params.get_param("profile").resolve("prod-us" if name == "prod-eu" else "prod-eu")
        assert f"profile:{name}" in dag.tags
        assert f"`acktrail_kafka__{end}`" in dag.doc_md
        assert dag.params.get("kafka_conn_id") in {None, f"acktrail_kafka__{end}"}
    for end in ("prod_eu", "prod_us"):
        for base in ("export", "reset_offsets", "rollback_offsets"):
            assert found.dags[f"acktrail_{base}__{end}"].params["kafka_conn_id"] == f"acktrail_kafka__{end}"
        export, reconcile = (found.dags[f"acktrail_{base}__{end}"] for base in ("export", "reconcile"))
        published = {asset.name for task in export.tasks for asset in task.outlets}
        awaited = {asset.name for asset in reconcile.timetable.asset_condition.objects}
        own = {asset.name for task in reconcile.tasks for asset in task.outlets}
        assert (published, own) == (awaited, {f"acktrail_reported__{end}"})
        assert published == {f"acktrail_exported__{end}"}


def test_profiles_that_are_wrong_have_dags_and_break_none(bag: Bag, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsing needs neither a file nor a connection, whatever the names: the first task says what is wrong."""
    monkeypatch.setenv("ACKTRAIL_PROFILES", "/no/such/file")
    names = ["prod-eu", "wrong", "absent", "strange name!", "prod_eu", "é" * 90, "é" * 91]
    found = bag(",".join(names))
    assert found.import_errors == {}
    assert len(found.dags) == len(BASES) * len(names)
    exports = [dag for dag_id, dag in found.dags.items() if dag_id.startswith("acktrail_export__")]
    assert len({dag.params["kafka_conn_id"] for dag in exports}) == len(names)
    assert sorted(found.dags) == sorted(bag(",".join(reversed(names))).dags)


def _target(profile: str | None, **params: Any) -> Any:
    task = SimpleNamespace(dag_id="d", run_id="r", try_number=1)
    form = {"profile": profile, "kafka_conn_id": None, "tables_uri": None, **params}
    return run_target.export_target({"params": form, "ti": task})  # type: ignore[typeddict-item]


def test_a_run_works_on_its_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, airflow_home: Path) -> None:
    """Brokers from the profile's connection, else from the file; tables under the root; secrets are masked."""
    from airflow.sdk._shared.secrets_masker import redact

    monkeypatch.setenv("ACKTRAIL_DAG_PROFILES", "prod-eu,prod-us")
    target = _target("prod-eu")
    assert target["kafka_conn_id"] == "acktrail_kafka__prod_eu"
    assert target["tables_uri"] == f"{tmp_path}/tables/prod-eu"
    config = run_target.kafka_config(target["kafka_conn_id"], "prod-eu")
    assert (config.bootstrap_servers, config.properties) == ("eu:9092", {"sasl.username": HIDDEN})
    assert HIDDEN not in str(redact(f"tried with {HIDDEN} twice")) + str(target)
    connection = json.dumps({"conn_type": "generic", "host": "of-airflow:9092"})
    monkeypatch.setenv("AIRFLOW_CONN_ACKTRAIL_KAFKA__PROD_EU", connection)
    assert run_target.kafka_config(target["kafka_conn_id"], "prod-eu").bootstrap_servers == "of-airflow:9092"


def test_a_run_by_hand_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch, airflow_home: Path) -> None:
    """An unknown profile with the nearest name; a wrong one with its fault; a connection that somebody misspelt is
    never another one."""
    monkeypatch.setenv("ACKTRAIL_DAG_PROFILES", "prod-ue,wrong,prod-eu")
    with pytest.raises(ConfigurationError, match="no Airflow connection 'mine'"):
        run_target.kafka_config("mine", "prod-eu")
    for ask in (
        lambda name: run_target.tables_config(None, name),
        lambda name: run_target.kafka_config(f"acktrail_kafka__{name[:5]}", name),
    ):
        with pytest.raises(ConfigurationError, match=r"unknown key 'bootstrap\.server'"):
            ask("wrong")
    with pytest.raises(UnknownName, match="unknown profile 'prod-ue'") as caught:
        _target("prod-ue")
    assert "prod-eu" in caught.value.hint


def test_connections_alone_will_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a file of profiles each has its connection, and its tables and reports under the common folders."""
    monkeypatch.delenv("ACKTRAIL_PROFILES")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("ACKTRAIL_DAG_PROFILES", "prod-eu,prod-us")
    monkeypatch.setenv("ACKTRAIL_TABLES", "s3://bucket/acktrail/")
    monkeypatch.setenv("ACKTRAIL_REPORTS", "/reports")
    assert _target("prod-eu")["tables_uri"] == "s3://bucket/acktrail/prod-eu"
    assert _target("prod-eu", tables_uri="/mine")["tables_uri"] == "/mine"
    reports_folder = import_module("acktrail_dags.run_target")._reports_folder
    assert (reports_folder("prod-eu"), reports_folder(None)) == (Path("/reports/prod-eu"), Path("/reports"))
    monkeypatch.delenv("ACKTRAIL_TABLES")
    with pytest.raises(ConfigurationError, match="no tables named"):
        _target("prod-eu")


@pytest.mark.full
def test_two_clusters_are_exported_side_by_side(
    bag: Bag, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, airflow_home: Path
) -> None:
    """One by its connection, one by the file; each into tables of its own, with an asset of its own. A profile that is
    wrong fails its own run, with the reason."""
    workload = Workload(broker.config())
    workload.create_topic("side-by-side")
    workload.produce("side-by-side", 3)
    workload.acknowledge("side-by-side-group", "side-by-side", 3)
    file = tmp_path / "profiles.toml"
    file.write_text(file.read_text().replace("us:9092", broker.bootstrap_servers))
    connection = json.dumps({"conn_type": "generic", "host": broker.bootstrap_servers})
    monkeypatch.setenv("AIRFLOW_CONN_ACKTRAIL_KAFKA__PROD_EU", connection)
    dags = bag("prod-eu,prod-us,wrong").dags
    for name in ("prod-eu", "prod-us"):
        run = dags[f"acktrail_export__{name.replace('-', '_')}"].test()
        assert str(run.state) == "success"
        assert Tables(TablesConfig(uri=str(tmp_path / "tables" / name))).exists("state_records")
    assert str(dags["acktrail_export__wrong"].test().state) == "failed"
