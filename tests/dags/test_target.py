"""Which cluster and which tables a run works on."""

from __future__ import annotations

import datetime as dt
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from acktrail.errors import ConfigurationError

pytestmark = pytest.mark.airflow

NO_PARAMS = {"kafka_conn_id": None, "tables_uri": None, "report_folder": None}


def event(minute: int, **extra: object) -> SimpleNamespace:
    """An asset event as a task sees it."""
    return SimpleNamespace(extra=extra, timestamp=dt.datetime(2026, 1, 1, 0, minute, tzinfo=dt.UTC))


def context(params: dict[str, Any], *events: SimpleNamespace, try_number: int = 1) -> Any:
    """What of Airflow's context the tasks read."""
    task = SimpleNamespace(dag_id="acktrail_reconcile", run_id="asset_triggered__x", try_number=try_number)
    return {"params": {**NO_PARAMS, **params}, "ti": task, "triggering_asset_events": {"asset": list(events)}}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACKTRAIL_TABLES", "/environment")
    monkeypatch.setenv("ACKTRAIL_REPORTS", "/reports")


def test_reconciles_what_was_exported(caplog: pytest.LogCaptureFixture) -> None:
    """Without parameters it is the newest export's cluster and tables; what that leaves out is said in the log."""
    from acktrail_dags.run_target import reconcile_target

    old = event(1, kafka_conn_id="other", tables_uri="/other", run_id="r1")
    new = event(2, kafka_conn_id="eu", tables_uri="/eu", run_id="r2")
    with caplog.at_level(logging.WARNING):
        found = reconcile_target(context({}, new, old))
    assert (found["kafka_conn_id"], found["tables_uri"], found["report_folder"]) == ("eu", "/eu", "/reports")
    assert "/other" in caplog.text
    assert "trigger this DAG for it" in caplog.text


def test_several_exports_of_one_thing_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """Exports that came while a reconciliation ran are one reconciliation, without a warning."""
    from acktrail_dags.run_target import reconcile_target

    events = [event(minute, kafka_conn_id="eu", tables_uri="/eu", run_id=str(minute)) for minute in range(5)]
    with caplog.at_level(logging.WARNING):
        assert reconcile_target(context({}, *events))["tables_uri"] == "/eu"
    assert caplog.text == ""


def test_parameters_win_over_the_export_and_the_environment() -> None:
    """Who triggers by hand decides."""
    from acktrail_dags.run_target import reconcile_target

    asked = {"kafka_conn_id": "mine", "tables_uri": "/mine", "report_folder": "/r"}
    found = reconcile_target(context(asked, event(1, kafka_conn_id="eu", tables_uri="/eu")))
    assert {name: found[name] for name in asked} == asked  # type: ignore[literal-required]


@pytest.mark.parametrize(
    ("run_type", "try_number", "followed"),
    [("asset_triggered", 1, "r2"), ("asset_triggered", 2, None), ("manual", 1, None), ("backfill", 1, None)],
)
def test_only_automatic_runs_ask_whether_they_are_due(run_type: str, try_number: int, followed: str | None) -> None:
    """By the newest export that they follow. A run by hand, a cleared task and a later try go on in any case."""
    from acktrail_dags.run_target import followed_export

    found = context({}, event(2, run_id="r2"), event(1, run_id="r1"), try_number=try_number)
    assert followed_export({**found, "dag_run": SimpleNamespace(run_type=run_type)}) == followed


def test_the_environment_is_the_last_resort() -> None:
    """A manual run without parameters works on the worker's own tables over the default connection."""
    from acktrail_dags.run_target import reconcile_target

    found = reconcile_target(context({}))
    assert (found["kafka_conn_id"], found["tables_uri"]) == ("acktrail_kafka", "/environment")


@pytest.mark.parametrize("variable", ["ACKTRAIL_TABLES", "ACKTRAIL_REPORTS"])
def test_nothing_named_anywhere(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """Missing tables or a missing report folder fail before anything is read; the hint names both ways to mend it."""
    from acktrail_dags.run_target import reconcile_target

    monkeypatch.delenv(variable)
    with pytest.raises(ConfigurationError) as caught:
        reconcile_target(context({}))
    assert variable in caught.value.hint
    assert "parameter" in caught.value.hint


def test_a_target_holds_no_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What goes through Airflow's metadata is names and places; storage options stay on the worker."""
    from airflow.sdk._shared.secrets_masker import redact

    from acktrail_dags.run_target import reconcile_target, tables_config

    options = tmp_path / "options"
    options.write_text("aws_secret_access_key=hidden-w0rd\n")
    monkeypatch.setenv("ACKTRAIL_TABLES_OPTIONS", str(options))
    found = reconcile_target(context({}))
    assert "hidden-w0rd" not in str(found)
    assert "hidden-w0rd" not in str(redact("tried with hidden-w0rd twice"))
    assert tables_config(found["tables_uri"]).options["aws_secret_access_key"] == "hidden-w0rd"


@pytest.mark.parametrize(
    ("uri", "master"),
    [
        ("spark://local%5B4%5D", "local[4]"),
        ("spark://yarn", "yarn"),
        ('{"conn_type": "spark", "host": "spark://host", "port": 7077}', "spark://host:7077"),
        ('{"conn_type": "spark_connect", "host": "spark.example", "port": 443}', "sc://spark.example:443"),
        ('{"conn_type": "spark_connect", "host": "sc://here"}', "sc://here:15002"),
        (
            '{"conn_type": "spark_connect", "host": "h", "login": "a b", "password": "t;k", "extra": {"use_ssl":true}}',
            "sc://h:15002/;use_ssl=true;user_id=a%20b;token=t%3Bk",
        ),
    ],
)
def test_a_spark_connection_names_the_master(uri: str, master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of both types that the Spark provider has; a value cannot become another parameter of the address."""
    from acktrail_dags.run_target import spark_master

    monkeypatch.setenv("AIRFLOW_CONN_THERE", uri)
    assert spark_master("there") == master
    assert spark_master(None) is None


def test_a_spark_connection_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that adds one; so is one without a host, or with a driver that is not the task's."""
    from acktrail_dags.run_target import spark_master

    with pytest.raises(ConfigurationError, match="there is no Airflow connection 'nowhere'") as found:
        spark_master("nowhere")
    assert "airflow connections add nowhere" in (found.value.hint or "")
    monkeypatch.setenv("AIRFLOW_CONN_EMPTY", "spark://")
    with pytest.raises(ConfigurationError, match="names no Spark"):
        spark_master("empty")
    monkeypatch.setenv("AIRFLOW_CONN_FAR", '{"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode":"cluster"}}')
    with pytest.raises(ConfigurationError, match="'far' asks for a driver on the cluster"):
        spark_master("far")
