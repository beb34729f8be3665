"""What every DAG file keeps to. Each failure says what to mend."""

from __future__ import annotations

import json
import shutil
import sys
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from drivers.airflow_home import Late
from drivers.own_process import printed

from acktrail.branches import branches

pytestmark = pytest.mark.airflow

exceptions = Late("airflow.sdk.exceptions")
DAGS_FOLDER = Path(__file__).resolve().parents[2] / "dags"
RESETS = {"acktrail_reset_offsets", "acktrail_rollback_offsets"}
OWN = {"acktrail_export", "acktrail_maintenance", "acktrail_reconcile", *RESETS}
OF_BRANCHES = {module.rpartition(".")[2]: module for branch in branches() for module in branch.dags}
"""DAG id to module."""
DAG_IDS = OWN | OF_BRANCHES.keys()
GATHERS = "acktrail_branches"
NEVER_TRIED_AGAIN = {"execute"}
WAITS_FOR_A_PERSON = {"approve"}
HEAVY = (
    "confluent_kafka", "deltalake", "fastapi", "great_expectations", "kafka", "numpy", "pandas", "pyarrow", "pyspark",
    "acktrail.kafka", "acktrail.format.columns", "acktrail.tables",
    "acktrail_dashboard", "acktrail_expectations", "acktrail_jobs",
)  # fmt: skip
TAGS = {"acktrail", "data-quality", "kafka", "maintenance", "share-groups", "spark"}


def test_every_file_gives_its_own_dag_and_nothing_fails_to_import(dag_bag: Any) -> None:
    """A file is named after the one DAG it holds, but for the one that gathers those of branches, which are named after
    their modules; helpers are ignored; no file is broken."""
    assert dag_bag.import_errors == {}
    assert {path.stem for path in DAGS_FOLDER.glob("*.py")} == {*OWN, GATHERS}
    assert {dag_id: Path(dag.fileloc).stem for dag_id, dag in dag_bag.dags.items()} == {
        **{name: name for name in OWN},
        **dict.fromkeys(OF_BRANCHES, GATHERS),
    }


def test_the_folder_may_lie_below_airflows_and_loads_nothing_heavy(tmp_path: Path) -> None:
    """In a subfolder of the DAG folder every file gives its DAG, and the shared package is no DAG file. Reading them
    loads neither a Kafka client nor Arrow, Spark or Great Expectations."""
    folder = tmp_path / "team" / "acktrail"
    shutil.copytree(DAGS_FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    probe = (
        "import json, runpy, sys; import airflow.sdk\n"
        "sys.path.append(sys.argv[1])  # as Airflow does with its DAG folder\n"
        "for path in sys.argv[2:]: runpy.run_path(path)\n"
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
    assert dag.description
    assert len(dag.description) <= 100
    assert dag.catchup is False
    assert dag.max_active_runs == (1 if dag.timetable.can_be_scheduled else 4)
    assert dag.dagrun_timeout is not None
    for task in dag.tasks:
        assert task.doc_md, task.task_id
        assert (task.retries == 0) if task.task_id in NEVER_TRIED_AGAIN else (task.retries >= 2), task.task_id
        assert timedelta(seconds=5) <= task.retry_delay <= timedelta(minutes=1), task.task_id
        if task.task_id in WAITS_FOR_A_PERSON:
            continue
        assert task.execution_timeout is not None, task.task_id
        assert task.execution_timeout < dag.dagrun_timeout, task.task_id


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
def test_parameters_refuse(dag_bag: Any, dag_id: str, name: str) -> None:
    """A value outside a parameter's schema is refused before anything runs."""
    for value in BAD_OF[dag_id][name]:
        with pytest.raises(exceptions.ParamValidationError):
            dag_bag.dags[dag_id].params.get_param(name).resolve(value)


@pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
def test_parameters_explain_themselves(dag_bag: Any, dag_id: str) -> None:
    """Every parameter has a title, a description and a type, and a default that its own schema accepts."""
    for name in dag_bag.dags[dag_id].params:
        found = dag_bag.dags[dag_id].params.get_param(name)
        assert found.description, name
        assert found.schema["title"], name
        assert found.schema["type"], name
        if found.has_value:
            found.resolve()
        assert None not in found.schema.get("enum", ()), name


REQUIRED = {
    "acktrail_reset_offsets": {"groups", "strategy"},
    "acktrail_rollback_offsets": {"plan_id"},
}


@pytest.mark.parametrize("dag_id", sorted(RESETS))
def test_an_empty_form_starts_no_run(dag_bag: Any, dag_id: str) -> None:
    """What a run cannot do without is required by its schema; the other fields have headings, but for a few."""
    params = dag_bag.dags[dag_id].params
    with pytest.raises(exceptions.ParamValidationError):
        params.validate()
    fields = {name: params.get_param(name) for name in params}
    needed = {name for name, of in fields.items() if "null" not in of.schema["type"] and not of.has_value}
    assert needed == REQUIRED[dag_id]
    assert sum("section" not in of.schema for of in fields.values()) <= 6
