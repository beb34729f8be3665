"""Who may write the tables, and not Airflow's database, rewrites the history of changes: the next run sees it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attacks.test_audit import rewrite
from change.scenes import attempt
from dags.test_tasks import FORM, decide, planned
from drivers.airflow_home import Late, RunningTask, airflow_home, airflow_logging

from acktrail.config import TablesConfig

__all__ = ["airflow_home", "airflow_logging"]
pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]

exceptions = Late("acktrail_provider.airflow_names")
change_steps, noted_audit, reset_steps = (
    Late(f"acktrail_dags.{name}") for name in ("change_steps", "noted_audit", "reset_steps")
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The worker's tables after one reset: six rows of audit."""
    monkeypatch.setenv("ACKTRAIL_TABLES", str(tmp_path / "tables"))
    attempt(tmp_path / "tables", 1)
    return tmp_path / "tables"


def set_back(root: Path) -> None:
    """All tables as they were before a change."""
    shutil.rmtree(root)
    attempt(root, 1)


@pytest.mark.parametrize("attack", [rewrite, set_back, shutil.rmtree])
def test_next_run_compares_with_what_the_last_one_noted(root: Path, attack: Callable[[Path], None]) -> None:
    """Who may write all of the tables forges the history of a change, sets it back or removes it; the next change fails
    at its first task, and one that waits for its approval before anything is sent. The error names the run that has
    noted the row. Deleting its XCom, which needs a right in Airflow, ends that."""
    monday, ti = (RunningTask("acktrail_reset_offsets", f"manual__{day}") for day in ("monday", "tuesday"))
    made = planned(root)
    assert decide(made, "Approve", "ann", monday) == "ann"
    (noted,) = monday.noted["audit"]
    assert (noted["sequence"], noted["tables_uri"]) == (7, str(root))
    ti.noted = monday.noted
    reset = {"params": {**FORM, "all_topics": True}, "dag_run": ti, "ti": ti}
    assert reset_steps.validate_reset.function(**reset)
    attack(root)
    with pytest.raises(
        exceptions.AirflowFailException, match="the XCom `audit` of run manual__monday has noted"
    ) as seen:
        reset_steps.validate_reset.function(**reset)
    assert "delete the XComs `audit`" in str(seen.value)
    with pytest.raises(exceptions.AirflowFailException, match="of run manual__monday has noted"):
        change_steps.recheck.function(made, ti=ti)
    ti.noted.clear()
    assert reset_steps.validate_reset.function(**reset)


def test_airflow_keeps_what_a_run_noted_for_the_next_run(root: Path, airflow_home: Path) -> None:
    """Who may write all of the tables forges the history between two runs of a DAG; the second one, in Airflow's own
    process and with Airflow's database, fails. A change in between that is honest does not disturb it."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.sdk import dag, task

    tables = TablesConfig(uri=str(root))

    @dag(schedule=None)
    def audit_probe() -> None:
        @task
        def validate(**context: Any) -> None:
            noted_audit.compare_audit(context, tables)

        @task(task_id="plan")
        def plan(**context: Any) -> None:
            noted_audit.note_audit(context, tables)

        validate() >> plan()

    probe = audit_probe()
    bag = DagBag(dag_folder=root / "none")
    bag.bag_dag(probe)
    DagBundlesManager().sync_bundles_to_db()
    sync_bag_to_db(bag, "dags-folder", None)
    assert str(probe.test().state) == "success"
    attempt(root, 2)
    assert str(probe.test().state) == "success"
    rewrite(root)
    assert str(probe.test().state) == "failed"
