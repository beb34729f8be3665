"""What every task has: the cluster and the tables that its run works on, by its parameters, an Airflow connection or
the environment; and what Airflow does about acktrail's errors."""

from __future__ import annotations

import datetime as dt
import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from drivers.airflow_home import Late
from hypothesis import given
from hypothesis import strategies as st

from acktrail import errors
from acktrail.errors import ConfigurationError

pytestmark = pytest.mark.airflow

exceptions = Late("airflow.sdk.exceptions")
pipeline_steps, run_target, task_reports = (
    Late(f"acktrail_dags.{name}") for name in ("pipeline_steps", "run_target", "task_reports")
)

NO_PARAMS = {"kafka_conn_id": None, "tables_uri": None, "report_folder": None}


def event(minute: int, **extra: object) -> SimpleNamespace:
    """An asset event as a task sees it."""
    return SimpleNamespace(extra=extra, timestamp=dt.datetime(2026, 1, 1, 0, minute, tzinfo=dt.UTC))


def context(params: dict[str, Any], *events: SimpleNamespace, try_number: int = 1) -> Any:
    """What of Airflow's context the tasks read."""
    task = SimpleNamespace(dag_id="acktrail_reconcile", run_id="asset_triggered__x", try_number=try_number)
    return {"params": {**NO_PARAMS, **params}, "ti": task, "triggering_asset_events": {"asset": list(events)}}


def target(params: dict[str, Any], *events: SimpleNamespace) -> Any:
    """What a reconciliation works with."""
    return run_target.reconcile_target(context(params, *events))


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACKTRAIL_TABLES", "/environment")
    monkeypatch.setenv("ACKTRAIL_REPORTS", "/reports")


def test_reconciles_what_was_exported(caplog: pytest.LogCaptureFixture) -> None:
    """Without parameters it is the newest export's cluster and tables; what that leaves out is said in the log."""
    old = event(1, kafka_conn_id="other", tables_uri="/other", run_id="r1")
    new = event(2, kafka_conn_id="eu", tables_uri="/eu", run_id="r2")
    with caplog.at_level(logging.WARNING):
        found = target({}, new, old)
    assert (found["kafka_conn_id"], found["tables_uri"], found["report_folder"]) == ("eu", "/eu", "/reports")
    assert "/other" in caplog.text
    assert "trigger this DAG for it" in caplog.text


def test_several_exports_of_one_thing_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """Exports that came while a reconciliation ran are one reconciliation, without a warning."""
    events = [event(minute, kafka_conn_id="eu", tables_uri="/eu", run_id=str(minute)) for minute in range(5)]
    with caplog.at_level(logging.WARNING):
        assert target({}, *events)["tables_uri"] == "/eu"
    assert caplog.text == ""


def test_parameters_win_over_the_export_and_the_environment() -> None:
    """Who triggers by hand decides."""
    asked = {"kafka_conn_id": "mine", "tables_uri": "/mine", "report_folder": "/r"}
    found = target(asked, event(1, kafka_conn_id="eu", tables_uri="/eu"))
    assert {name: found[name] for name in asked} == asked  # type: ignore[literal-required]


@pytest.mark.parametrize(
    ("run_type", "try_number", "followed"),
    [("asset_triggered", 1, "r2"), ("asset_triggered", 2, None), ("manual", 1, None), ("backfill", 1, None)],
)
def test_only_automatic_runs_ask_whether_they_are_due(run_type: str, try_number: int, followed: str | None) -> None:
    """By the newest export that they follow. A run by hand, a cleared task and a later try go on in any case."""
    found = context({}, event(2, run_id="r2"), event(1, run_id="r1"), try_number=try_number)
    assert run_target.followed_export({**found, "dag_run": SimpleNamespace(run_type=run_type)}) == followed


@pytest.mark.parametrize("variable", ["ACKTRAIL_TABLES", "ACKTRAIL_REPORTS"])
def test_nothing_named_anywhere(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """Missing tables or a missing report folder fail before anything is read; the hint names both ways to mend it."""
    monkeypatch.delenv(variable)
    with pytest.raises(ConfigurationError) as caught:
        target({})
    assert variable in caught.value.hint
    assert "parameter" in caught.value.hint


def test_a_target_holds_no_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What goes through Airflow's metadata is names and places; storage options stay on the worker. By hand,
    without parameters, it is the worker's own tables over the default connection."""
    from airflow.sdk._shared.secrets_masker import redact

    options = tmp_path / "options"
    options.write_text("aws_secret_access_key=hidden-w0rd\n")
    monkeypatch.setenv("ACKTRAIL_TABLES_OPTIONS", str(options))
    found = target({})
    assert (found["kafka_conn_id"], found["tables_uri"]) == ("acktrail_kafka", "/environment")
    assert "hidden-w0rd" not in str(found)
    assert "hidden-w0rd" not in str(redact("tried with hidden-w0rd twice"))
    assert run_target.tables_config(found["tables_uri"]).options["aws_secret_access_key"] == "hidden-w0rd"


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
    monkeypatch.setenv("AIRFLOW_CONN_THERE", uri)
    assert run_target.spark_master("there") == master
    assert run_target.spark_master(None) is None


def test_a_spark_connection_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that adds one; so is one without a host, or with a driver that is not the task's."""
    with pytest.raises(ConfigurationError, match="there is no Airflow connection 'nowhere'") as found:
        run_target.spark_master("nowhere")
    assert "airflow connections add nowhere" in (found.value.hint or "")
    monkeypatch.setenv("AIRFLOW_CONN_EMPTY", "spark://")
    with pytest.raises(ConfigurationError, match="names no Spark"):
        run_target.spark_master("empty")
    monkeypatch.setenv("AIRFLOW_CONN_FAR", '{"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode":"cluster"}}')
    with pytest.raises(ConfigurationError, match="'far' asks for a driver on the cluster"):
        run_target.spark_master("far")


RETRIED = [errors.Unreachable("k:9092"), errors.ConcurrentCommit("another writer came first", hint="again")]
FAILED = [
    errors.NotAuthorized("READ", "topic __share_group_state"),
    errors.ForeignCluster("the tables belong to another cluster", hint="name other tables"),
    errors.ConfigurationError("no tables named", hint="name them"),
    errors.OutcomeUnknown("not known"),
    errors.UnknownName("group", "g", nearest=["h"]),
    errors.QualityGateFailed([("reconciliations", "start offset within the log", 3)]),
]


@pytest.mark.parametrize("error", RETRIED, ids=lambda error: type(error).__name__)
def test_what_may_pass_later_is_retried(error: errors.AcktrailError, caplog: pytest.LogCaptureFixture) -> None:
    """A RetryableError reaches Airflow as it is, so that the task's retries apply; the log says what happens."""
    with caplog.at_level(logging.INFO), pytest.raises(type(error)) as caught, task_reports.as_airflow_errors():
        raise error
    assert caught.value is error
    assert error.message in caplog.text
    assert "tries again" in caplog.text


@pytest.mark.parametrize("error", FAILED, ids=lambda error: type(error).__name__)
def test_what_needs_a_person_fails_at_once(error: errors.AcktrailError, caplog: pytest.LogCaptureFixture) -> None:
    """Any other AcktrailError ends the task without retries; message, hint and what to do are in the log."""
    with (
        caplog.at_level(logging.INFO),
        pytest.raises(exceptions.AirflowFailException) as caught,
        task_reports.as_airflow_errors(),
    ):
        raise error
    assert error.message in str(caught.value)
    assert error.hint in str(caught.value)
    for text in (error.message, error.hint, "clear"):
        assert text in caplog.text


def test_a_defect_passes_unchanged() -> None:
    """What acktrail did not foresee is not dressed up as advice."""
    with pytest.raises(ZeroDivisionError), task_reports.as_airflow_errors():
        raise ZeroDivisionError


def test_an_unknown_outcome_is_tried_again_where_running_again_tells_it(caplog: pytest.LogCaptureFixture) -> None:
    """An export reads its positions from the tables: Airflow's retries do what the message says. A reset does not."""
    error = errors.OutcomeUnknown("it is not known whether the commit landed", hint="run again")
    with (
        caplog.at_level(logging.INFO),
        pytest.raises(errors.OutcomeUnknown),
        task_reports.as_airflow_errors(can_run_again=True),
    ):
        raise error
    assert "tries again" in caplog.text


def test_a_task_hands_over_numbers_however_much_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gaps and the silent brokers of an export are counted in its XCom; the asset's extra lists them."""
    from airflow.sdk import Asset

    from acktrail.export.export_run import ExportGap, ExportSummary

    gaps = tuple(ExportGap(0, at, at) for at in range(1_000))
    summary = ExportSummary(run_id="r", cluster_id="c", status="complete", gaps=gaps, unanswered=("g",), rows={"t": 2})
    target = {"run_id": "r", "kafka_conn_id": "k", "tables_uri": "u"}
    monkeypatch.setattr("acktrail_dags.run_target.export_target", lambda _: target)
    for name in ("cluster_at", "tables_at"):
        monkeypatch.setattr(f"acktrail_dags.pipeline_steps.{name}", lambda _: None)
    monkeypatch.setattr("acktrail.export.export_run.export", lambda *_, **__: summary)
    asset, pushed = Asset(name="exported", uri="acktrail://exported"), dict[str, Any]()
    event = SimpleNamespace(extra={})
    ti = SimpleNamespace(xcom_push=lambda key, value: pushed.update({key: value}))
    context = {"outlet_events": {asset: event}, "task": SimpleNamespace(outlets=[asset]), "ti": ti}
    pipeline_steps.export.function(**context)
    counts = pushed["result"]["counts"]
    assert (counts["gaps"], counts["unanswered"], counts["rows"]) == (1_000, 1, {"t": 2})
    assert len(event.extra["counts"]["gaps"]) == 1_000


def config_of(monkeypatch: pytest.MonkeyPatch, **fields: object) -> object:
    """What `kafka_config` makes of a connection that the environment defines."""
    monkeypatch.setenv("AIRFLOW_CONN_PROBE", json.dumps({"conn_type": "generic", **fields}))
    return run_target.kafka_config("probe")


@pytest.mark.parametrize(
    ("fields", "address"),
    [
        ({"host": "k1", "port": 9092}, "k1:9092"),
        ({"host": "k1:9092,k2:9093"}, "k1:9092,k2:9093"),
        ({"host": "k1, k2:1", "port": 9092}, "k1:9092,k2:1"),
        ({"host": "[::1]:9092", "port": 1}, "[::1]:9092"),
        ({"host": "[::1]", "port": 9092}, "[::1]:9092"),
        ({"extra": {"bootstrap.servers": "k3:9094"}}, "k3:9094"),
        ({"host": "k1", "port": 1, "extra": {"bootstrap.servers": "k3:9094"}}, "k3:9094"),
    ],
)
def test_address(monkeypatch: pytest.MonkeyPatch, fields: dict[str, object], address: str) -> None:
    """Every way people write brokers into a connection gives the list a client takes."""
    assert config_of(monkeypatch, **fields).bootstrap_servers == address  # type: ignore[attr-defined]


def test_properties_and_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra's members are client properties as text; login and password are SASL's unless the extra says so."""
    extra = {"security.protocol": "SASL_SSL", "enable.ssl.certificate.verification": True, "retries": 3, "x": None}
    config = config_of(monkeypatch, host="k:1", login="ann", password="s3cret-word", extra=extra)
    assert config.properties == {  # type: ignore[attr-defined]
        "security.protocol": "SASL_SSL",
        "enable.ssl.certificate.verification": "true",
        "retries": "3",
        "sasl.username": "ann",
        "sasl.password": "s3cret-word",
    }
    own = config_of(monkeypatch, host="k:1", login="ann", extra={"sasl.username": "bob"})
    assert own.properties["sasl.username"] == "bob"  # type: ignore[attr-defined]


def test_secrets_are_masked_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """No secret of the connection is in the value's repr, and Airflow's logs redact every one of them."""
    from airflow.sdk._shared.secrets_masker import redact

    secrets = {
        "sasl.password": "pass-w0rd",
        "ssl.key.pem": "-----BEGIN-----",
        "sasl.jaas.config": "module required x",
        "sasl.oauthbearer.config": "principal=zed",
        "ssl.keystore.key": "keystore-k3y",
    }
    config = config_of(monkeypatch, host="k:1", password="connection-s3cret", extra=secrets)
    for secret in (*secrets.values(), "connection-s3cret"):
        assert secret not in repr(config)
        assert secret not in str(redact(f"tried with {secret} twice"))


@pytest.mark.parametrize(
    "extra", ['{"a": ', '["a"]', '{"a": {"b": "hidden-w0rd"}}', '{"a": ["hidden-w0rd"]}', "hidden-w0rd"]
)
def test_refused_extra_is_not_shown(monkeypatch: pytest.MonkeyPatch, extra: str) -> None:
    """An extra that is no flat JSON object is refused with a hint, and nothing of it is in the error."""
    with pytest.raises(ConfigurationError, match="probe") as caught:
        config_of(monkeypatch, host="k:1", extra=extra)
    assert "hidden" not in caught.value.message + caught.value.hint
    assert "security.protocol" in caught.value.hint


def test_no_broker_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection without a broker is refused with how to make a right one."""
    with pytest.raises(ConfigurationError, match="names no broker") as caught:
        config_of(monkeypatch)
    assert "airflow connections add probe" in caught.value.hint


RUN = st.tuples(st.text(max_size=40), st.text(max_size=300), st.integers(1, 9))


@given(RUN, RUN)
def test_run_ids_are_safe_and_never_shared(one: tuple[str, str, int], other: tuple[str, str, int]) -> None:
    """Whatever Airflow calls a run, the tables' id has letters, digits and '-' only; two tries never share one."""
    first, second = run_target.table_run_id(*one), run_target.table_run_id(*other)
    assert (first == second) == (one == other)
    assert 1 <= len(first) <= 80
    assert first.isascii()
    assert first.replace("-", "").isalnum()


def test_run_ids_stay_readable() -> None:
    """The DAG run's own id can be seen in it."""
    found = run_target.table_run_id("acktrail_export", "scheduled__2026-11-21T11:20:00+00:00", 1)
    assert found.startswith("scheduled-2026-11-21T11-20-00-00-00-")
