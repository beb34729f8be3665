"""Who may trigger acktrail's DAGs, send an asset event or edit an XCom tries to choose whose credentials are used,
where a run is audited, and which files of the worker it reads and writes."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dags.test_tasks import planned
from drivers.airflow_home import DAGS_FOLDER, Late, RunningTask, airflow_home, airflow_logging, dag_bag

from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError

__all__ = ["airflow_home", "airflow_logging", "dag_bag"]
pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]

exceptions = Late("acktrail_provider.airflow_names")
pipeline_steps, reset_steps, task_inputs = (
    Late(f"acktrail_dags.{name}") for name in ("pipeline_steps", "reset_steps", "task_inputs")
)
operators = Late("acktrail_provider.operators")
SCHEDULED = ("acktrail_export", "acktrail_maintenance", "acktrail_partitions", "acktrail_reconcile")
CHANGES = {
    "acktrail_reset_offsets": ("acktrail_dags.reset_steps", "validate_reset"),
    "acktrail_rollback_offsets": ("acktrail_dags.reset_steps", "validate_rollback"),
    "acktrail_expand_topic": ("acktrail_expansion.dags.expansion_steps", "plan_expansion"),
}
"""The first task of each DAG that changes something."""
CHOOSING = {"kafka_conn_id", "tables_uri", "spark_conn_id", "file"}
"""Fields that no form has by itself."""


@pytest.fixture(autouse=True)
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker with a cluster, tables and a report folder of its own; a second connection that is not for the DAGs."""
    for name in [name for name in os.environ if name.startswith("ACKTRAIL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ACKTRAIL_TABLES", str(tmp_path / "own"))
    monkeypatch.setenv("ACKTRAIL_REPORTS", str(tmp_path / "reports"))
    for name in ("ACKTRAIL_KAFKA", "OTHER"):
        connection = {"conn_type": "generic", "host": "127.0.0.1:1"}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(connection))


def form(**values: Any) -> dict[str, Any]:
    """The form of a change, filled in; `values` may be fields that it does not have."""
    flags = dict.fromkeys(("all_topics", "allow_skip", "partial"), False)
    empty = dict.fromkeys(("topics", "reason", "allow", "offset", "shift_by", "datetime", "duration"))
    numbers = dict.fromkeys(("wait_for_empty_s", "watch_s"), 0)
    return {**flags, **empty, **numbers, "dry_run": True, "groups": ["g"], "strategy": "to-earliest", **values}


def order(dag_id: str = "acktrail_reset_offsets", **values: Any) -> Any:
    """What the first task of a change makes of the form."""
    module, task = CHANGES[dag_id]
    ti = RunningTask(dag_id)
    run = SimpleNamespace(triggering_user_name="eve")
    return getattr(Late(module), task).function(params=form(**values), dag_run=run, ti=ti)


def reconciled(extra: dict[str, Any] | None = None, **params: Any) -> Any:
    """What a reconciliation works with: `extra` of the asset event that it follows, `params` of its form."""
    event = SimpleNamespace(extra=extra, timestamp=dt.datetime.now(dt.UTC))
    ti = SimpleNamespace(dag_id="acktrail_reconcile", run_id="r", try_number=1)
    return task_inputs.reconcile_target(
        {"params": params, "ti": ti, "triggering_asset_events": {"a": [event] if extra else []}}
    )


def test_every_dag_is_attacked(dag_bag: Any) -> None:
    """Who adds a DAG with a form finds it here: none of them lets a triggerer choose connection, tables, Spark or file
    by a field of its form."""
    assert dag_bag.dags.keys() == {*SCHEDULED, *CHANGES}
    for dag in dag_bag.dags.values():
        assert CHOOSING.isdisjoint(dag.params), dag.dag_id


@pytest.mark.parametrize("dag_id", SCHEDULED)
def test_trigger_does_not_choose_tables(
    dag_bag: Any, airflow_home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, dag_id: str
) -> None:
    """Who may trigger a DAG names tables of their own in the configuration of the run, for the worker to write there;
    the run fails before anything is made there, and the log has the line that allows it."""
    mine = tmp_path / "mine"
    run = dag_bag.dags[dag_id].test(run_conf={"tables_uri": str(mine)})
    assert str(run.state) == "failed"
    assert f"set this variable on the workers: ACKTRAIL_DAG_PLACES=acktrail_kafka={mine}" in caplog.text
    assert not mine.exists()


@pytest.mark.parametrize("dag_id", CHANGES)
def test_trigger_does_not_choose_the_audit(tmp_path: Path, dag_id: str) -> None:
    """Who may trigger a change names tables of their own, for plan, audit, leases and rejections to be there while the
    production's credentials are used: refused before anything is made there, with the line that says where they are."""
    mine = tmp_path / "mine"
    with pytest.raises(exceptions.AirflowFailException, match=f"ACKTRAIL_TABLES={mine} on the workers"):
        order(dag_id, tables_uri=str(mine), plan_id="p1", topic="orders", partitions=3, allow_moved_on=False)
    assert not mine.exists()


@pytest.mark.parametrize("form", ["{} ", " {}", "{}\t", "{}\N{NO-BREAK SPACE}", "{}//", "{}/.", "{}\n"])
def test_another_name_is_not_the_workers_own_root(form: str, tmp_path: Path) -> None:
    """Who may trigger a DAG writes the worker's own tables with a blank more: another root, which would be made and
    have the audit. Refused, for a change as for a reconciliation."""
    named = form.format(tmp_path / "own")
    with pytest.raises(exceptions.AirflowFailException, match="audited in its own tables only"):
        order(all_topics=True, tables_uri=named)
    with pytest.raises(ConfigurationError, match="may not use the Airflow connection"):
        reconciled(tables_uri=named)


def test_trigger_does_not_choose_a_connection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who may trigger a DAG names another Airflow connection, to use its credentials: refused, with the line that
    allows it; whether there is such a connection is not said. One line lets a run use it with the tables named
    there, and with no others."""
    own, mine = str(tmp_path / "own"), str(tmp_path / "mine")
    refusals = []
    for name in ("other", "nowhere"):
        with pytest.raises(exceptions.AirflowFailException) as refused:
            order(all_topics=True, kafka_conn_id=name)
        assert f"ACKTRAIL_DAG_PLACES={name}={own}" in str(refused.value)
        refusals.append(str(refused.value).replace(name, "NAME"))
        with pytest.raises(ConfigurationError, match="may not use the Airflow connection"):
            reconciled(kafka_conn_id=name)
    assert len(set(refusals)) == 1
    monkeypatch.setenv("ACKTRAIL_DAG_PLACES", f"staging=s3://b/x, other={mine}/")
    assert order(all_topics=True, kafka_conn_id="other", tables_uri=mine)["kafka_conn_id"] == "other"
    assert reconciled(kafka_conn_id="other", tables_uri=mine)["tables_uri"] == mine
    line = f"ACKTRAIL_DAG_PLACES=staging=s3://b/x,other={mine}/,other={own}"
    with pytest.raises(exceptions.AirflowFailException, match=re.escape(line)):
        order(all_topics=True, kafka_conn_id="other", tables_uri=own)


def test_changes_of_a_cluster_have_one_audit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who may trigger a reset names tables that the deployment allows for exports of the same cluster, to keep the
    reset out of its audit: an export may, the reset may not."""
    scratch = str(tmp_path / "scratch")
    monkeypatch.setenv("ACKTRAIL_DAG_PLACES", f"acktrail_kafka={scratch}")
    assert reconciled(tables_uri=scratch)["tables_uri"] == scratch
    with pytest.raises(exceptions.AirflowFailException, match="audited in its own tables only"):
        order(all_topics=True, tables_uri=scratch)


def test_trigger_does_not_choose_a_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who may trigger a DAG that is made for no profile names one of the worker's file, for its cluster and tables:
    refused."""
    file = tmp_path / "profiles.toml"
    file.write_text(f'[profiles.prod]\nbootstrap.servers = "prod:9092"\ntables = "{tmp_path}/prod"\n')
    monkeypatch.setenv("ACKTRAIL_PROFILES", str(file))
    with pytest.raises(exceptions.AirflowFailException, match="may not use the profile 'prod'"):
        order(all_topics=True, profile="prod")
    with pytest.raises(ConfigurationError, match="may not use the profile 'prod'"):
        reconciled(profile="prod")


def test_asset_event_does_not_choose(tmp_path: Path) -> None:
    """Who may send an event of the asset `acktrail_exported` puts another connection and tables of theirs into it, for
    the reconciliation that follows: it refuses them, and takes those of its worker."""
    own = {"kafka_conn_id": "acktrail_kafka", "tables_uri": str(tmp_path / "own")}
    assert reconciled(own)["tables_uri"] == own["tables_uri"]
    for forged in ({**own, "kafka_conn_id": "other"}, {**own, "tables_uri": str(tmp_path / "mine")}):
        with pytest.raises(ConfigurationError, match="may not use the Airflow connection"):
            reconciled(forged)


def test_xcom_does_not_choose(tmp_path: Path) -> None:
    """Who may edit XComs gives the later tasks of a run another cluster, other tables, another file or another folder:
    each task looks again and refuses."""
    place = {"profile": None, "kafka_conn_id": "acktrail_kafka", "tables_uri": str(tmp_path / "own")}
    assert task_inputs.tables_at(place).uri == str(tmp_path / "own")
    for edited in ({"kafka_conn_id": "other"}, {"tables_uri": str(tmp_path / "mine")}, {"profile": "prod"}):
        for look in (task_inputs.tables_at, task_inputs.cluster_at):
            with pytest.raises(ConfigurationError, match="this run may not use"):
                look({**place, **edited})
    made = order(all_topics=True)
    made["request"]["strategy"] |= {"kind": "from-file", "source": "/etc/passwd"}
    with pytest.raises(exceptions.AirflowFailException, match="may not name /etc/passwd"):
        reset_steps.preflight.function(made)
    waits = [made, *({**made, **edited} for edited in ({"kafka_conn_id": "other"}, {"profile": "prod"}))]
    for edited in waits:
        with pytest.raises(exceptions.AirflowFailException, match="may not"):
            reset_steps.GroupsEmptySensor(task_id="w", order={**edited, "wait_for_empty_s": 9}).execute({})
    with pytest.raises(exceptions.AirflowFailException, match="may not name /etc"):
        pipeline_steps.publish.function({**place, "run_id": "r", "report_folder": "/etc"})


def test_xcom_does_not_choose_for_operators(tmp_path: Path) -> None:
    """Who may edit XComs gives a provider's operator another cluster, other tables or another plan under the id that
    people saw: connection and tables are the operator's own, and the hash must be that of the stored plan."""
    made = planned(tmp_path / "own")
    mine = {**made, "kafka_conn_id": "other", "tables_uri": str(tmp_path / "mine")}
    for kind in (operators.ShareGroupApplyOperator, operators.ShareGroupVerifyOperator):
        with pytest.raises(exceptions.AirflowFailException, match="plan with the hash that was shown"):
            kind(task_id="t", plan={**mine, "plan_hash": "sha256:0"}).execute({})
    with pytest.raises(exceptions.AirflowFailException, match="was not sent"):
        operators.ShareGroupVerifyOperator(task_id="t", plan=mine).execute({})
    assert not (tmp_path / "mine").exists()


def test_trigger_does_not_write_reports_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may trigger a reconciliation names any folder of the worker for its report: only folders below the worker's
    own one are taken, with one line also others; a symbolic link and `..` lead nowhere else."""
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "link").symlink_to(tmp_path)
    inside, outside = str(tmp_path / "reports" / "team"), str(tmp_path / "elsewhere")
    assert reconciled(report_folder=inside)["report_folder"] == inside
    ways_out = (outside, "/", f"{inside}/../../elsewhere", str(tmp_path / "reports" / "link" / "elsewhere"))
    for way in ways_out:
        with pytest.raises(ConfigurationError, match="may not name") as refused:
            reconciled(report_folder=way)
    assert f"ACKTRAIL_DAG_FOLDERS={tmp_path}/reports/link" in refused.value.hint
    monkeypatch.setenv("ACKTRAIL_DAG_FOLDERS", f"/srv/offsets, {outside}")
    assert reconciled(report_folder=f"{outside}/team")["report_folder"] == f"{outside}/team"


def test_file_of_offsets_tells_nothing_of_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may trigger a reset names any path of the worker as its file of offsets, to learn what is there: absent,
    unreadable, a folder, malformed and well-formed give one answer. In a folder that one line allows they differ."""
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    for name, text in (("good", "orders,0,7\n"), ("malformed", "root:x:0:0\n"), ("unreadable", "orders,0,7\n")):
        (offsets / name).write_text(text)
    (offsets / "unreadable").chmod(0)
    (offsets / "link").symlink_to("/etc/passwd")
    (offsets / "loop").symlink_to(offsets / "loop")
    paths = [str(offsets / name) for name in ("good", "malformed", "unreadable", "absent", "loop", ".")]

    def said(path: str) -> str:
        with pytest.raises(exceptions.AirflowFailException) as refused:
            order(strategy="from-file", file=path)
        return str(refused.value).replace(str(Path(path).parent), "FOLDER").replace(path, "PATH")

    answers = {re.sub(r"FOLDER/[a-z]+|PATH", "FILE", said(path)) for path in paths}
    assert len(answers) == 1, answers
    assert "set this variable on the workers: ACKTRAIL_DAG_FOLDERS=" in answers.pop()
    with pytest.raises(exceptions.AirflowFailException, match="allow no folder: set ACKTRAIL_DAG_FOLDERS=FOLDER"):
        order(strategy="from-file")
    monkeypatch.setenv("ACKTRAIL_DAG_FOLDERS", str(offsets))
    assert order(strategy="from-file", file=paths[0])["request"]["strategy"]["source"] == paths[0]
    assert "may not name" in said(str(offsets / "link"))
    assert "may not name" in said(f"{offsets}/../own")


def test_trigger_does_not_choose_a_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may trigger a reconciliation sends its work, and the records with it, to any host that an Airflow connection
    names: only connections that one line allows are taken."""
    with pytest.raises(ConfigurationError, match="as its Spark") as refused:
        task_inputs.spark_master("other")
    assert "set this variable on the workers: ACKTRAIL_DAG_SPARK=other" in refused.value.hint
    monkeypatch.setenv("ACKTRAIL_DAG_SPARK", "spark_here, other")
    assert task_inputs.spark_master("other") == "127.0.0.1:1"
    assert task_inputs.spark_master(None) is None


def test_forms_offer_what_the_deployment_allows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who may trigger a DAG sees in its form what the deployment allows by name, and may use it: an honest run with
    other tables costs one line."""
    from airflow.dag_processing.dagbag import DagBag

    other = str(tmp_path / "other")
    monkeypatch.setenv("ACKTRAIL_DAG_PLACES", f"staging={other}")
    monkeypatch.setenv("ACKTRAIL_DAG_SPARK", "spark_here")
    monkeypatch.setenv("ACKTRAIL_DAG_FOLDERS", "/srv/offsets")
    dags = DagBag(dag_folder=DAGS_FOLDER).dags
    for dag_id, dag in dags.items():
        offered = {name: dag.params.get_param(name).schema.get("examples") for name in dag.params}
        assert offered["tables_uri"] == [other], dag_id
        assert offered.get("kafka_conn_id", ["staging"]) == ["staging"]
        assert offered.get("spark_conn_id", ["spark_here"]) == ["spark_here"]
    assert CHOOSING - {"spark_conn_id"} <= dags["acktrail_reset_offsets"].params.keys()
    assert task_inputs.maintained_tables({"tables_uri": other}) == TablesConfig(uri=other)
    assert task_inputs.maintained_tables({}) == TablesConfig(uri=str(tmp_path / "own"))


def test_nothing_of_an_address_with_credentials_is_shown() -> None:
    """Who triggers a run with an address that holds a password, in a field that the form does not have, does not put it
    into the log of the refusal."""
    with pytest.raises(exceptions.AirflowFailException) as refused:
        order(all_topics=True, kafka_conn_id="other", tables_uri="s3://key:hidden-w0rd@bucket/x")
    assert "hidden-w0rd" not in str(refused.value)
