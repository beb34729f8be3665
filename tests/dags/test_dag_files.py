"""What every DAG file keeps to: each failure says what to mend. DAGs for several clusters: one set for each profile,
and what each works on."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from drivers.airflow_home import DAGS_FOLDER, Late
from drivers.own_process import printed
from servers.workload import Workload

from acktrail.branches import branches
from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, NoTables, UnknownName
from acktrail.tables.delta.store import Tables
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

pytestmark = pytest.mark.airflow

exceptions, task_inputs = Late("acktrail_provider.airflow_names"), Late("acktrail_dags.task_inputs")
sdk_exceptions = Late("airflow.sdk.exceptions")
RESETS = {"acktrail_reset_offsets", "acktrail_rollback_offsets"}
OWN = {"acktrail_export", "acktrail_maintenance", "acktrail_reconcile", *RESETS}
OF_BRANCHES = {module.rpartition(".")[2]: module for branch in branches() for module in branch.dags}
"""DAG id to module."""
DAG_IDS = OWN | OF_BRANCHES.keys()
GATHERS = "acktrail_branches"
HEAVY = (
    "confluent_kafka", "deltalake", "fastapi", "great_expectations", "kafka", "numpy", "pandas", "pyarrow", "pyspark",
    "acktrail.kafka", "acktrail.format.columns", "acktrail.tables",
    "acktrail_dags.mounted_dashboard", "acktrail_dashboard", "acktrail_expectations", "acktrail_jobs",
)  # fmt: skip
TAGS = {"acktrail", "data-quality", "kafka", "maintenance", "share-groups", "spark"}


def test_every_file_gives_its_own_dag_and_nothing_fails_to_import(dag_bag: Any) -> None:
    """A file is named after the one DAG it holds, but for the one that gathers those of branches, which are named after
    their modules; helpers are ignored; no file is broken."""
    assert dag_bag.import_errors == {}
    assert {path.stem for path in DAGS_FOLDER.glob("*.py")} == {*OWN, GATHERS}
    files = {dag_id: Path(dag.fileloc).stem for dag_id, dag in dag_bag.dags.items()}
    assert files == {name: name for name in OWN} | dict.fromkeys(OF_BRANCHES, GATHERS)


def test_the_folder_may_lie_below_airflows_and_loads_nothing_heavy(tmp_path: Path) -> None:
    """In a subfolder of the DAG folder every file gives its DAG, and the shared package is no DAG file. Reading
    them, or the plugin and its views as each of Airflow's processes does, loads neither a Kafka client nor Arrow, Spark
    or Great Expectations, nor tables and pages."""
    folder = tmp_path / "team" / "acktrail"
    shutil.copytree(DAGS_FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    probe = (
        "import json, runpy, sys; import airflow.sdk\n"
        "sys.path.append(sys.argv[1])  # as Airflow does with its DAG folder\n"
        "for path in sys.argv[2:]: runpy.run_path(path)\n"
        "from acktrail_dags.dashboard_plugin import AcktrailPlugin; AcktrailPlugin().external_views\n"
        "loaded = sorted(sys.modules)\n"
        "from airflow.dag_processing.dagbag import DagBag\n"
        "bag = DagBag(dag_folder=sys.argv[1])\n"
        "print(json.dumps([sorted(bag.dags), bag.import_errors, bag.dagbag_stats and len(bag.dagbag_stats), loaded]))"
    )
    files = sorted(map(str, folder.glob("*.py")))
    said = printed(sys.executable, "-c", probe, tmp_path, *files)
    dag_ids, errors, count, modules = json.loads(said.splitlines()[-1])
    assert (errors, set(dag_ids), count) == ({}, DAG_IDS, len(OWN) + 1)
    assert [name for name in HEAVY if name in modules] == []


def test_dag_files_are_short() -> None:
    """One page, at most 90 lines: parameters, tasks and their order. What a task does is in the package."""
    modules = [Path(find_spec(module).origin) for module in OF_BRANCHES.values()]
    for path in (*DAGS_FOLDER.glob("*.py"), *modules):
        assert len(path.read_text().splitlines()) <= 90, f"move work out of {path.name}"


@pytest.fixture(scope="module")
def scheduled(dag_bag: Any) -> dict[str, Any]:
    """The DAGs as the scheduler gets them."""
    from airflow.serialization.serialized_objects import DagSerialization

    return {name: DagSerialization.from_dict(DagSerialization.to_dict(dag)) for name, dag in dag_bag.dags.items()}


@pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
def test_effective_settings(scheduled: dict[str, Any], dag_id: str) -> None:
    """Owner, tags, docs, catchup, concurrency, time limits and retries as the scheduler has them, not as written."""
    dag = scheduled[dag_id]
    assert dag.owner == "acktrail"
    assert "acktrail" in dag.tags
    assert dag.tags <= TAGS
    assert dag.doc_md
    assert "**When it fails**" in dag.doc_md
    assert 0 < len(dag.description) <= 100
    assert dag.catchup is False
    assert dag.max_active_runs == (1 if dag.timetable.can_be_scheduled else 1_000)
    assert dag.dagrun_timeout is not None
    for task in dag.tasks:
        assert task.doc_md, task.task_id
        is_tried_once = task.task_id in {"approve", "execute"}
        assert (task.retries == 0) if is_tried_once else (task.retries >= 2), task.task_id
        assert timedelta(seconds=5) <= task.retry_delay <= timedelta(minutes=1), task.task_id
        if task.task_id != "approve":  # it waits for a person
            assert task.execution_timeout is not None, task.task_id
            assert task.execution_timeout < dag.dagrun_timeout, task.task_id


@pytest.mark.parametrize("dag_id", ["acktrail_reconcile", "acktrail_reset_offsets"])
def test_documentation_shows_the_graph(dag_bag: Any, dag_id: str) -> None:
    """The graph names every task, each after those that it waits for; an example has values that the form takes."""
    dag = dag_bag.dags[dag_id]
    _, graph, *others = dag.doc_md.split("```")
    order = [word.strip("[],") for word in graph.split() if word != ">>"]
    assert sorted(order) == sorted(dag.task_ids)
    assert all(order.index(name) < order.index(task.task_id) for task in dag.tasks for name in task.upstream_task_ids)
    for name, value in json.loads("".join(others[1:2]).removeprefix("json") or "{}").items():
        deepcopy(dag.params.get_param(name)).resolve(value)  # it keeps the value


def test_export_outruns_pruning(scheduled: dict[str, Any]) -> None:
    """The export runs at least twice in the five minutes between two prunings, and at once when it is switched on."""
    from airflow.timetables.base import TimeRestriction

    timetable = scheduled["acktrail_export"].timetable
    whenever = TimeRestriction(earliest=None, latest=None, catchup=False)
    first = timetable.next_dagrun_info(last_automated_data_interval=None, restriction=whenever)
    second = timetable.next_dagrun_info(last_automated_data_interval=first.data_interval, restriction=whenever)
    assert first.run_after <= datetime.now(UTC)
    assert second.run_after - first.run_after <= timedelta(minutes=2.5)


@pytest.mark.parametrize("dag_id", sorted(RESETS))
def test_resets_run_by_hand_and_a_dry_run_is_the_default(scheduled: dict[str, Any], dag_id: str) -> None:
    """Nothing schedules them; without a word they change nothing; a person stands between plan and execution."""
    dag = scheduled[dag_id]
    assert dag.timetable.can_be_scheduled is False
    assert dag.params["dry_run"] is True
    before = set(dag.task_dict["execute"].get_flat_relative_ids(upstream=True))
    assert {"check_plan", "dry_run_ends_here", "approve", "recheck", "note_decision"} <= before
    assert dag.task_dict["execute"].trigger_rule == "all_success"
    assert "verify" in dag.task_dict["execute"].get_flat_relative_ids(upstream=False)


def ended(dag: Any, states: dict[str, str]) -> str:
    """How a run ends by what Airflow decides, in which each task that may begin ends as `states` says, else well."""
    from airflow.utils.session import create_session
    from airflow.utils.types import DagRunTriggeredByType, DagRunType

    made = {"run_type": DagRunType.MANUAL, "triggered_by": DagRunTriggeredByType.TEST, "state": "running"}
    with create_session() as session:
        run = dag.create_dagrun(run_id=uuid4().hex, run_after=datetime.now(UTC), session=session, **made)
        while str(run.state) == "running":
            ready, _ = run.update_state(session=session, execute_callbacks=False)
            for task in ready:
                task.state = states.get(task.task_id, "success")
        return str(run.state)


@pytest.fixture(scope="module")
def _known(dag_bag: Any, airflow_home: Path) -> None:
    """Airflow has the DAGs in its metadata tables."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import sync_bag_to_db

    DagBundlesManager().sync_bundles_to_db()
    sync_bag_to_db(dag_bag, "dags-folder", None)


@pytest.mark.usefixtures("_known")
@pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
def test_no_run_in_which_a_task_failed_is_a_success(
    scheduled: dict[str, Any], monkeypatch: pytest.MonkeyPatch, dag_id: str
) -> None:
    """Each task fails in turn: the run has failed, whether the tasks that run after a failure work or skip themselves.
    Where none fails, the run is a success."""
    dag = scheduled[dag_id]
    monkeypatch.setattr(dag, "params", type(dag.params)())  # a run needs no form here
    assert ended(dag, {}) == "success"
    for fails in dag.task_ids:
        after = dag.task_dict[fails].get_flat_relative_ids(upstream=False)
        later = [name for name in after if dag.task_dict[name].trigger_rule != "all_success"]
        for then in ("success", "skipped") if later else ("success",):
            assert ended(dag, {**dict.fromkeys(later, then), fails: "failed"}) == "failed", (fails, then)


@pytest.fixture(scope="module")
def offering(airflow_home: Path) -> dict[str, Any]:
    """The DAGs where the deployment allows other places: their forms have every field."""
    from airflow.dag_processing.dagbag import DagBag

    with pytest.MonkeyPatch.context() as patched:
        for name, value in (("PLACES", "staging=/tables"), ("SPARK", "spark_there"), ("FOLDERS", "/offsets")):
            patched.setenv(f"ACKTRAIL_DAG_{name}", value)
        return dict(DagBag(dag_folder=DAGS_FOLDER).dags)


BAD: dict[str, list[object]] = {
    "kafka_conn_id": ["", "a b", 7, "x'; drop"],
    "tables_uri": ["", " ", "s3://key:secret@bucket/tables", "x" * 1025, ["/tables"]],
}
"""Values that a parameter of every DAG refuses; of some DAGs below."""
BAD_OF: dict[str, dict[str, list[object]]] = {
    **dict.fromkeys(DAG_IDS, BAD),
    "acktrail_maintenance": {"tables_uri": BAD["tables_uri"], "keep": ["", "1 year", "0d", "365", 365]},
    "acktrail_reconcile": BAD
    | {
        "spark_conn_id": ["", "local[2] --conf x=y", "sc://user:secret@host:15002"],
        "report_folder": ["", "https://user:secret@host/x", 1],
    },
    "acktrail_reset_offsets": BAD
    | {
        "strategy": ["to-tomorrow"],
        "datetime": ["yesterday", "2026-03-01T08:00:00"],
        "offset": [-1],
        "groups": [[""]],
        "topics": [["orders:x"]],
        "wait_for_empty_s": [1_000_000],
        "duration": ["an hour", "P"],
        "dry_run": ["no"],
    },
}


@pytest.mark.parametrize(("dag_id", "name"), [(dag_id, name) for dag_id in sorted(BAD_OF) for name in BAD_OF[dag_id]])
def test_parameters_refuse(offering: dict[str, Any], dag_id: str, name: str) -> None:
    """A value outside a parameter's schema is refused before anything runs."""
    for value in BAD_OF[dag_id][name]:
        with pytest.raises(sdk_exceptions.ParamValidationError):
            offering[dag_id].params.get_param(name).resolve(value)


@pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
def test_parameters_explain_themselves(offering: dict[str, Any], dag_id: str) -> None:
    """Every parameter has a title, a description and a type, and a default that its own schema accepts."""
    for name in offering[dag_id].params:
        found = offering[dag_id].params.get_param(name)
        assert all((found.description, found.schema["title"], found.schema["type"])), name
        if found.has_value:
            found.resolve()
        assert None not in found.schema.get("enum", ()), name


@pytest.mark.parametrize(
    ("dag_id", "required"),
    [("acktrail_reset_offsets", {"groups", "strategy"}), ("acktrail_rollback_offsets", {"plan_id"})],
)
def test_an_empty_form_starts_no_run(dag_bag: Any, dag_id: str, required: set[str]) -> None:
    """What a run cannot do without is required by its schema; the other fields have headings, but for a few."""
    params = dag_bag.dags[dag_id].params
    with pytest.raises(sdk_exceptions.ParamValidationError):
        params.validate()
    fields = {name: params.get_param(name) for name in params}
    needed = {name for name, of in fields.items() if "null" not in of.schema["type"] and not of.has_value}
    assert needed == required
    assert sum("section" not in of.schema for of in fields.values()) <= 6


HIDDEN = "hidden-w0rd"
Bag = Callable[[str], Any]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two profiles in a file, the tables of all under one root; a third is wrong, a fourth is in no file."""
    for name in ("TABLES", "TABLES_OPTIONS", "PROFILE", "DAG_PROFILES", "REPORTS", "DAG_PLACES"):
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
    assert (set(found.dags), found.import_errors) == (DAG_IDS, {})


def test_several_profiles_have_a_set_of_dags_each(bag: Bag) -> None:
    """Ids, connection, tags and documentation name the profile; each reconciliation follows its own export alone.
    Nobody picks another cluster in a form."""
    found = bag("prod-eu, prod-us")
    assert found.import_errors == {}
    assert set(found.dags) == {f"{base}__{end}" for base in DAG_IDS for end in ("prod_eu", "prod_us")}
    for dag_id, dag in found.dags.items():
        end = dag_id.rpartition("__")[2]
        name = end.replace("_", "-")
        assert dag.params["profile"] == name
        with pytest.raises(sdk_exceptions.ParamValidationError):
            dag.params.get_param("profile").resolve("prod-us" if name == "prod-eu" else "prod-eu")
        assert f"profile:{name}" in dag.tags
        assert f"`acktrail_kafka__{end}`" in dag.doc_md
        assert task_inputs.own_connection(name) == f"acktrail_kafka__{end}"
    for end in ("prod_eu", "prod_us"):
        export, reconcile = (found.dags[f"acktrail_{base}__{end}"] for base in ("export", "reconcile"))
        published = {asset.name for task in export.tasks for asset in task.outlets}
        awaited = {asset.name for asset in reconcile.timetable.asset_condition.objects}
        own = {asset.name for task in reconcile.tasks for asset in task.outlets}
        assert awaited == {f"acktrail_exported__{end}"}
        assert published == awaited | {f"acktrail_tables__{end}"}
        assert own == {f"acktrail_reported__{end}", f"acktrail_tables__{end}"}


def test_profiles_that_are_wrong_have_dags_and_break_none(bag: Bag, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsing needs neither a file nor a connection, whatever the names: the first task says what is wrong."""
    monkeypatch.setenv("ACKTRAIL_PROFILES", "/no/such/file")
    names = ["prod-eu", "wrong", "absent", "strange name!", "prod_eu", "é" * 90, "é" * 91]
    found = bag(",".join(names))
    assert found.import_errors == {}
    assert len(found.dags) == len(DAG_IDS) * len(names)
    assert len({task_inputs.own_connection(name) for name in names}) == len(names)
    assert sorted(found.dags) == sorted(bag(",".join(reversed(names))).dags)


def _target(profile: str | None, **params: Any) -> Any:
    task = SimpleNamespace(dag_id="d", run_id="r", try_number=1)
    form = {"profile": profile, "kafka_conn_id": None, "tables_uri": None, **params}
    return task_inputs.export_target({"params": form, "ti": task, "dag_run": SimpleNamespace(run_type="manual")})


def test_a_scheduled_export_finds_the_tables_of_the_one_before(
    airflow_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables that are gone are no new cluster. The first run makes them, and who triggers a run by hand."""
    root = str(tmp_path / "tables")
    monkeypatch.setenv("ACKTRAIL_DAG_PLACES", f"probe={root}")
    form = {"profile": None, "kafka_conn_id": "probe", "tables_uri": root}
    context = {"params": form, "ti": SimpleNamespace(dag_id="d", run_id="r", try_number=1)}
    for run_type, success in (("scheduled", None), ("manual", datetime.now(UTC))):
        own = {"dag_run": SimpleNamespace(run_type=run_type), "prev_start_date_success": success}
        assert task_inputs.export_target({**context, **own})["tables_uri"] == root
    late = {"dag_run": SimpleNamespace(run_type="scheduled"), "prev_start_date_success": datetime.now(UTC)}
    with pytest.raises(NoTables, match="no tables at"):
        task_inputs.export_target({**context, **late})


def test_a_run_works_on_its_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, airflow_home: Path) -> None:
    """Brokers from the profile's connection, else from the file; tables under the root; secrets are masked."""
    from airflow.sdk._shared.secrets_masker import redact

    monkeypatch.setenv("ACKTRAIL_DAG_PROFILES", "prod-eu,prod-us")
    target = _target("prod-eu")
    assert target["kafka_conn_id"] == "acktrail_kafka__prod_eu"
    assert target["tables_uri"] == f"{tmp_path}/tables/prod-eu"
    config = task_inputs.kafka_config(target["kafka_conn_id"], "prod-eu")
    assert (config.bootstrap_servers, config.properties) == ("eu:9092", {"sasl.username": HIDDEN})
    assert HIDDEN not in str(redact(f"tried with {HIDDEN} twice")) + str(target)
    connection = json.dumps({"conn_type": "generic", "host": "of-airflow:9092"})
    monkeypatch.setenv("AIRFLOW_CONN_ACKTRAIL_KAFKA__PROD_EU", connection)
    assert task_inputs.kafka_config(target["kafka_conn_id"], "prod-eu").bootstrap_servers == "of-airflow:9092"


def test_a_run_by_hand_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch, airflow_home: Path) -> None:
    """An unknown profile with the nearest name; a wrong one with its fault; a connection that somebody misspelt is
    never another one."""
    monkeypatch.setenv("ACKTRAIL_DAG_PROFILES", "prod-ue,wrong,prod-eu")
    with pytest.raises(ConfigurationError, match="no Airflow connection 'mine'"):
        task_inputs.kafka_config("mine", "prod-eu")
    for ask in (
        lambda name: task_inputs.tables_config(None, name),
        lambda name: task_inputs.kafka_config(f"acktrail_kafka__{name[:5]}", name),
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
    monkeypatch.setenv("ACKTRAIL_DAG_PLACES", "acktrail_kafka__prod_eu=/mine")
    assert _target("prod-eu", tables_uri="/mine")["tables_uri"] == "/mine"
    reports_folder = import_module("acktrail_dags.task_inputs")._reports_folder
    assert (reports_folder("prod-eu"), reports_folder(None)) == (Path("/reports/prod-eu"), Path("/reports"))
    monkeypatch.delenv("ACKTRAIL_TABLES")
    with pytest.raises(ConfigurationError, match="no root of tables is given"):
        _target("prod-eu")


@pytest.mark.full
@pytest.mark.filterwarnings("default")
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
