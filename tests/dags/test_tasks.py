"""What every task has: the cluster and the tables that its run works on, by its parameters, an Airflow connection or
the environment; what Airflow does about acktrail's errors. Resets without a scheduler or a broker: the form, the plan
that a person reads, what is noted of an approval, and what an unknown outcome comes to."""

from __future__ import annotations

import datetime as dt
import errno
import json
import logging
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from change.scenes import a_plan, a_request, a_snapshot
from drivers.airflow_home import Late, RunningTask
from hypothesis import given
from hypothesis import strategies as st

from acktrail import errors
from acktrail.activity import doing
from acktrail.change import api, plan_status
from acktrail.change.apply.approval import approval_needed
from acktrail.change.audit.audit_chain import Event, audit_entry
from acktrail.change.change_kind import Settled, load_plan
from acktrail.change.plan.notices import Notice, Severity
from acktrail.change.plan.reset_plan import ResetPlan
from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, OutcomeUnknown, Unreachable
from acktrail.view import audit_integrity

pytestmark = pytest.mark.airflow

exceptions = Late("acktrail_provider.airflow_names")
change_steps, pipeline_steps, plan_texts, reset_steps, task_inputs, task_reports = (
    Late(f"acktrail_dags.{name}")
    for name in ("change_steps", "pipeline_steps", "plan_text", "reset_steps", "task_inputs", "task_reports")
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
    return task_inputs.reconcile_target(context(params, *events))


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A worker's, which allows runs to name other places, too."""
    monkeypatch.setenv("ACKTRAIL_TABLES", "/environment")
    monkeypatch.setenv("ACKTRAIL_REPORTS", "/reports")
    monkeypatch.setenv("ACKTRAIL_DAG_PLACES", f"eu=/eu,other=/other,mine=/mine,acktrail_kafka={tmp_path}")
    monkeypatch.setenv("ACKTRAIL_DAG_SPARK", "there,nowhere,empty,far")
    monkeypatch.setenv("ACKTRAIL_DAG_FOLDERS", "/r,/offsets")


def test_reconciles_what_was_exported(caplog: pytest.LogCaptureFixture) -> None:
    """Without parameters it is the newest export's cluster and tables; what that leaves out is said in the log: several
    exports of one thing are no news. Who triggers by hand decides."""
    same = [event(minute, kafka_conn_id="eu", tables_uri="/eu", run_id=str(minute)) for minute in range(5)]
    with caplog.at_level(logging.WARNING):
        assert target({}, *same)["tables_uri"] == "/eu"
    assert caplog.text == ""
    old = event(1, kafka_conn_id="other", tables_uri="/other", run_id="r1")
    new = event(2, kafka_conn_id="eu", tables_uri="/eu", run_id="r2")
    with caplog.at_level(logging.WARNING):
        found = target({}, new, old)
    assert (found["kafka_conn_id"], found["tables_uri"], found["report_folder"]) == ("eu", "/eu", "/reports")
    assert "/other" in caplog.text
    assert "trigger this DAG for it" in caplog.text
    asked = {"kafka_conn_id": "mine", "tables_uri": "/mine", "report_folder": "/r"}
    assert target(asked, new).items() >= asked.items()


@pytest.mark.parametrize(
    ("run_type", "try_number", "followed"),
    [("asset_triggered", 1, "r2"), ("asset_triggered", 2, None), ("manual", 1, None), ("backfill", 1, None)],
)
def test_only_automatic_runs_ask_whether_they_are_due(run_type: str, try_number: int, followed: str | None) -> None:
    """By the newest export that they follow. A run by hand, a cleared task and a later try go on in any case."""
    found = context({}, event(2, run_id="r2"), event(1, run_id="r1"), try_number=try_number)
    assert task_inputs.followed_export({**found, "dag_run": SimpleNamespace(run_type=run_type)}) == followed


@pytest.mark.parametrize("variable", ["ACKTRAIL_TABLES", "ACKTRAIL_REPORTS"])
def test_nothing_named_anywhere(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """Missing tables or a missing report folder fail before anything is read; the hint names the variable."""
    monkeypatch.delenv(variable)
    with pytest.raises(ConfigurationError) as caught:
        target({})
    assert f"set {variable} on the workers" in caught.value.hint


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
    assert task_inputs.tables_config(found["tables_uri"]).options["aws_secret_access_key"] == "hidden-w0rd"


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
    assert task_inputs.spark_master("there") == master
    assert task_inputs.spark_master(None) is None


def test_a_spark_connection_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that adds one; so is one without a host, or with a driver that is not the task's."""
    with pytest.raises(ConfigurationError, match="there is no Airflow connection 'nowhere'") as found:
        task_inputs.spark_master("nowhere")
    assert "airflow connections add nowhere" in (found.value.hint or "")
    monkeypatch.setenv("AIRFLOW_CONN_EMPTY", "spark://")
    with pytest.raises(ConfigurationError, match="has no host"):
        task_inputs.spark_master("empty")
    monkeypatch.setenv("AIRFLOW_CONN_FAR", '{"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode":"cluster"}}')
    with pytest.raises(ConfigurationError, match="'far' requires a driver on the cluster, which is not supported"):
        task_inputs.spark_master("far")


FAILED = [
    errors.NotAuthorized("READ", "topic __share_group_state"),
    errors.ForeignCluster("the tables belong to another cluster", hint="name other tables"),
    errors.ConfigurationError("no root of tables is given", hint="name them"),
    errors.UnknownName("group", "g", nearest=["h"]),
    errors.QualityGateFailed([("reconciliations", "start offset within the log", 3)]),
]


MAY_PASS = [
    errors.Unreachable("k:9092"),
    errors.ConcurrentCommit("came first", hint="again"),
    errors.OutcomeUnknown("it is not known whether the commit landed", hint="run again"),
]


@contextmanager
def running_as_try(number: int) -> Iterator[None]:
    """A task that Airflow tries three times is in this try."""
    context = {"ti": SimpleNamespace(try_number=number, max_tries=2)}
    with patch("acktrail_provider.task_errors.get_current_context", lambda: context):
        yield


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("error", MAY_PASS, ids=lambda error: type(error).__name__)
def test_what_may_pass_later_is_retried(
    error: errors.AcktrailError, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It reaches Airflow as it is, so that the task's retries apply. The log says how many tries are left, and after
    the last one what a person does. A task reads from its tables what an unknown commit became of."""
    with (
        running_as_try(number),
        caplog.at_level(logging.INFO),
        pytest.raises(type(error)) as caught,
        task_reports.as_airflow_errors(),
    ):
        raise error
    assert caught.value is error
    assert error.message in caplog.text
    assert ("tries again" in caplog.text, "clear this task" in caplog.text.lower()) == (number < 3, number == 3)
    assert f"{3 - number} more at most" in caplog.text or number == 3


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
    for text in (error.message, error.hint):
        assert text in caplog.text
    assert re.search("clear (this task|the run)|trigger a new run", caplog.text)
    with pytest.raises(ZeroDivisionError), task_reports.as_airflow_errors():
        raise ZeroDivisionError  # what acktrail did not foresee is not dressed up as advice


def test_fault_of_the_machine_is_told_as_at_the_command_line(caplog: pytest.LogCaptureFixture) -> None:
    """One line with what is wrong and what to do; what may pass is retried."""
    wrong = OSError(errno.EROFS, "Read-only file system", "tables")
    with pytest.raises(exceptions.AirflowFailException), task_reports.as_airflow_errors():
        raise wrong
    line = "tables: Read-only file system. name a place that can be written. Correct it, then clear this task."
    assert caplog.messages == [line]
    full = OSError(errno.ENOSPC, "No space left on device", "tables")
    with running_as_try(1), pytest.raises(OSError, match="No space"), task_reports.as_airflow_errors():
        raise full
    assert "make room, then run again. Airflow tries again, 2 more at most." in caplog.messages[-1]


def test_a_task_hands_over_numbers_however_much_was_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The gaps and the silent brokers of an export are counted in its XCom; the asset's extra lists them. The log has
    what it was at: tables that were made anew are seen there."""
    from airflow.sdk import Asset

    from acktrail_connect.export.export_run import ExportGap, ExportSummary

    gaps = tuple(ExportGap(0, at, at) for at in range(1_000))
    summary = ExportSummary(run_id="r", cluster_id="c", status="complete", gaps=gaps, unanswered=("g",), rows={"t": 2})
    target = {"run_id": "r", "kafka_conn_id": "k", "tables_uri": "u"}
    monkeypatch.setattr("acktrail_dags.task_inputs.export_target", lambda _: target)
    for name in ("cluster_at", "tables_at"):
        monkeypatch.setattr(f"acktrail_dags.pipeline_steps.{name}", lambda _: TablesConfig(uri="/t"))
    says = "new tables were made at u: there is no such folder"
    run = "acktrail_connect.export.export_run"
    monkeypatch.setattr(f"{run}.export", lambda *_, **__: doing(says, stays=True) or summary)
    caplog.set_level(logging.INFO, "acktrail.dags")
    asset, pushed = Asset(name="exported", uri="acktrail://exported"), dict[str, Any]()
    event = SimpleNamespace(extra={})
    ti = SimpleNamespace(xcom_push=lambda key, value: pushed.update({key: value}))
    context = {"outlet_events": {asset: event}, "task": SimpleNamespace(outlets=[asset]), "ti": ti, "params": {}}
    pipeline_steps.export.function(**context)
    counts = pushed["result"]["counts"]
    assert (counts["gaps"], counts["unanswered"], counts["rows"]) == (1_000, 1, {"t": 2})
    assert says in caplog.messages
    assert len(event.extra["counts"]["gaps"]) == 1_000


def config_of(monkeypatch: pytest.MonkeyPatch, **fields: object) -> object:
    """What `kafka_config` makes of a connection that the environment defines."""
    monkeypatch.setenv("AIRFLOW_CONN_PROBE", json.dumps({"conn_type": "generic", **fields}))
    return task_inputs.kafka_config("probe")


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
    """The extra's members are client properties as text; login and password are SASL's unless the extra says so.
    Without a broker it is refused, with how to make a right one."""
    extra = {"security.protocol": "SASL_SSL", "enable.ssl.certificate.verification": True, "retries": 3, "x": None}
    config = config_of(monkeypatch, host="k:1", login="ann", password="s3cret-word", extra=extra)
    assert config.properties == {  # type: ignore[attr-defined]
        "security.protocol": "SASL_SSL",
        "enable.ssl.certificate.verification": "true",
        "retries": "3",
        "sasl.username": "ann",
        "sasl.password": "s3cret-word",
    }
    with pytest.raises(ConfigurationError, match="names no broker") as caught:
        config_of(monkeypatch)
    assert "airflow connections add probe" in caught.value.hint
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


RUN = st.tuples(st.text(max_size=40), st.text(max_size=300), st.integers(1, 9))


@given(RUN, RUN)
def test_run_ids_are_safe_and_never_shared(one: tuple[str, str, int], other: tuple[str, str, int]) -> None:
    """Whatever Airflow calls a run, the tables' id has letters, digits and '-' only; two tries never share one. The DAG
    run's own id can be seen in it."""
    first, second = task_inputs.table_run_id(*one), task_inputs.table_run_id(*other)
    assert (first == second) == (one == other)
    assert 1 <= len(first) <= 80
    assert first.isascii()
    assert first.replace("-", "").isalnum()
    own = task_inputs.table_run_id("acktrail_export", "scheduled__2026-11-21T11:20:00+00:00", 1)
    assert own.startswith("scheduled-2026-11-21T11-20-00-00-00-")


def planned(folder: Path, made: ResetPlan | None = None) -> Any:
    """A stored plan, as the tasks hand it on; without one, a plan of `ann`."""
    new = a_snapshot(taken_at_ms=time.time_ns() // 1_000_000)
    plan = made or a_plan(a_request(requested_by="ann"), new)
    api.store_plan(TablesConfig(uri=str(folder)), plan)
    refusals = [notice.text for notice in plan.refusals]
    named = {"plan_id": plan.plan_id, "plan_hash": plan.plan_hash, "refusals": refusals}
    rest = {"kafka_conn_id": "acktrail_kafka", "subject": "", "preview": "", "partial": False, "watch_s": 0}
    return {**named, **rest, "tables_uri": str(folder)}


def test_a_plan_of_nothing_fails_with_its_refusal(tmp_path: Path) -> None:
    """A misspelt topic shows first, then how many share partitions the plan has; no one is asked to approve."""
    made = planned(tmp_path, a_plan(a_request(), a_snapshot(partitions=())))
    for partial in (False, True):
        with pytest.raises(
            exceptions.AirflowFailException,
            match=r"^the given topics and groups have no share partition;.*row_count_as_planned",
        ):
            reset_steps.check_plan.function(made | {"partial": partial})


def decide(stored: Any, option: str, name: str | None, ti: RunningTask | None = None) -> str | None:
    """What the task `note_decision` returns of an answer to the approval; of the option "": no one was asked."""
    user = None if name is None else {"id": "7", "name": name}
    ti = ti or RunningTask()
    ti.answers["approve"] = {"chosen_options": [option], "responded_by_user": user} if option else None
    return change_steps.note_decision.function(stored, ti=ti)


def standing(folder: Path) -> str:
    (line,) = plan_status.list_plans(TablesConfig(uri=str(folder)))
    return str(line["standing"])


def test_who_was_not_asked_did_not_decide(tmp_path: Path) -> None:
    """An approval that somebody marked as a success by hand approves nothing, and rejects nothing."""
    with pytest.raises(exceptions.AirflowFailException, match="the task approve has no answer"):
        decide(planned(tmp_path), "", None)
    assert standing(tmp_path) == "PLANNED"


@pytest.mark.parametrize(("name", "expected"), [("eve", "REJECTED"), (None, "EXPIRED")])
def test_a_rejection_and_a_time_out_close_the_plan(tmp_path: Path, name: str | None, expected: str) -> None:
    """For the command line too; a task that runs twice notes it once; an approval comes too late."""
    made = planned(tmp_path)
    for _ in range(2):
        assert decide(made, "Reject", name) is None
    assert standing(tmp_path) == expected
    rows = audit_integrity.audit_rows(TablesConfig(uri=str(tmp_path)), plan_id=made["plan_id"])
    assert [row["event"] for row in rows if row["event"] != "planned"] == [expected.lower()]
    with pytest.raises(exceptions.AirflowFailException, match="make a new plan"):
        decide(made, "Approve", "eve")


def test_the_requester_does_not_approve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a second person is asked for: the form says so, the requester's answer fails and leaves the plan open for
    somebody else's; a run whose requester Airflow does not know fails at once."""
    made = planned(tmp_path)
    plan = load_plan(TablesConfig(uri=str(tmp_path)), made["plan_id"])
    assert approval_needed(plan) == ""
    monkeypatch.setenv("ACKTRAIL_RESET_APPROVAL", "second-person")
    assert "ann asked for it and may not" in plan_texts.plan_text(plan, where="k:9092", approval=approval_needed(plan))
    with pytest.raises(exceptions.AirflowFailException, match="own_approval"):
        decide(made, "Approve", "ann")
    assert standing(tmp_path) == "PLANNED"
    assert decide(made, "Approve", "eve") == "eve"
    assert standing(tmp_path) == "APPROVED"
    unknown: Any = {"params": {"dry_run": False}, "dag_run": object()}
    with pytest.raises(exceptions.AirflowFailException, match="who triggered"):
        reset_steps.validate_reset.function(**unknown)


def sent(folder: Path, *steps: tuple[Event, str | None]) -> Any:
    """A plan whose group went through `steps` (event and outcome), as the tasks hand it on."""
    made, tables = planned(folder), TablesConfig(uri=str(folder))
    plan = load_plan(tables, made["plan_id"])
    journal = api.open_journal(tables, plan, actor="ann")
    journal.note(
        [audit_entry(plan, 1, event, plan.group_ids[0], outcome=outcome, detail={}) for event, outcome in steps]
    )
    return made


def verified(made: Any) -> Any:
    """What the task `verify` returns after an execution."""
    return change_steps.verify.function(made, ti=RunningTask(execute={"plan_id": made["plan_id"]}))


def logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, made: Any) -> str:
    """What the log of the task `verify` ends with, which fails. The cluster shows nothing new."""
    monkeypatch.setattr("acktrail_dags.change_steps.cluster_at", lambda *_: None)
    monkeypatch.setattr(api, "verify", lambda *_, **__: Settled(groups={}))
    with caplog.at_level(logging.ERROR), pytest.raises(exceptions.AirflowFailException):
        verified(made)
    return caplog.text


BEFORE, AFTER, VERIFIED = Event.BEFORE_CALL, Event.AFTER_CALL, Event.VERIFIED
LEASED = Event.LEASE_TAKEN, None
NOT_DONE = {
    "nothing was looked for": ([LEASED, (BEFORE, None)], "clear the task verify"),
    "no answer, and it does not show": ([(BEFORE, None), (VERIFIED, "unknown")], "To close the plan"),
    "answered, and not looked for": ([(BEFORE, None), (AFTER, "done")], "clear the task verify"),
    "refused": ([(BEFORE, None), (AFTER, "refused")], "Nothing was changed"),
    "not there": ([(BEFORE, None), (AFTER, "done"), (VERIFIED, "not_done")], "Nothing was changed"),
    "in part": ([(BEFORE, None), (AFTER, "partly"), (VERIFIED, "partly")], "names the parts that were left out"),
    "overwritten": ([(BEFORE, None), (AFTER, "done"), (VERIFIED, "overwritten")], "Keep the group stopped"),
    "given up": ([(BEFORE, None), (VERIFIED, "unknown"), (Event.REJECTED, None)], "The plan is closed"),
}


@pytest.mark.parametrize("name", NOT_DONE)
def test_plan_that_is_not_done_fails_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """Whatever became of what was sent: `verify` itself fails, for plans of every kind, also of one whose kind knows
    nothing of outcomes. The log and the message say what a person does, by the status of the plan and in the form's
    words."""
    monkeypatch.setattr("acktrail.change.apply.reset_kind.ResetChange.raise_unless_done", lambda *_: None)
    steps, advice = NOT_DONE[name]
    made = sent(tmp_path, *steps)
    text = logged(monkeypatch, caplog, made)
    told, next_step = change_steps.change_text("failed", made)
    assert told.startswith("Failed, status ")
    assert advice in text
    assert advice in next_step
    assert "change apply" not in text
    assert "change verify" not in text


def test_task_that_fails_after_a_change_is_done_is_to_be_cleared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Only a run that succeeded leaves nothing to do."""
    made = sent(tmp_path, (BEFORE, None), (AFTER, "done"), (VERIFIED, "done"))
    with pytest.raises(exceptions.AirflowFailException), change_steps.errors_of(made):
        raise ConfigurationError("the gate cannot read its suite")
    assert "The change is done. When the cause" in caplog.text
    assert change_steps.change_text("failed", made)[1].endswith("is gone, clear that task.")
    assert change_steps.change_text("succeeded", made) == ("Done", "Nothing is left to do.")


def test_lost_audit_is_not_taken_for_a_plan_that_was_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After an execution the tables know of no attempt, or of no plan: that fails. Without one, nothing was sent."""
    made = planned(tmp_path)
    assert "have no row about it" in logged(monkeypatch, caplog, made)
    with pytest.raises(exceptions.AirflowSkipException, match="nothing was sent"):
        change_steps.verify.function(made, ti=RunningTask())
    shutil.rmtree(tmp_path)
    assert "how the plan stands" in logged(monkeypatch, caplog, made)
    assert change_steps.change_text("failed", made)[0] == "Failed, status not known"
    monkeypatch.setattr("acktrail_provider.change_work.Cluster", nullcontext)
    with pytest.raises(exceptions.AirflowFailException):
        change_steps.execute.function(made, "ann")
    assert caplog.messages[-1].endswith("clear the task verify.")


def test_message_that_cannot_be_sent_does_not_stop_an_approval(caplog: pytest.LogCaptureFixture) -> None:
    """The person finds it on Airflow's page."""

    def refuse(_: object) -> None:
        raise RuntimeError("invalid_auth")

    change_steps.ChangeNotifier(refuse, "asked").notify({})
    assert "not sent (invalid_auth)" in caplog.text


def test_message_about_a_run_is_sent_when_airflow_does_not_give_its_plan() -> None:
    """It says that the plan is not known, and the urgency is that of a failed run."""
    sent: list[Any] = []

    def pull(**_: object) -> None:
        raise RuntimeError("database is locked")

    notifier = change_steps.ChangeNotifier(lambda context: sent.append(context["acktrail"]), "failed")
    notifier.notify({"ti": SimpleNamespace(xcom_pull=pull), "params": {"groups": ["billing"]}, "run_id": "r1"})
    ((title, urgency),) = [(each["title"], each["urgency"]) for each in sent]
    assert title.startswith("Failed, plan not known: ")
    assert (urgency, "billing" in title) == ("act", True)


def test_cleared_run_stays_red_while_its_plan_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes no other plan, which could be rejected and end green, before the first one is settled. Others may."""
    monkeypatch.setattr("acktrail_dags.change_steps.table_run_id", lambda dag_id, run_id, _: f"{dag_id}-{run_id}")
    tables, plan = TablesConfig(uri=str(tmp_path)), a_plan(a_request())
    api.store_plan(tables, plan, run_id="resets-r1")
    monkeypatch.setenv("ACKTRAIL_TABLES", str(tmp_path))
    form = {**FORM, "topics": ["orders"]}

    def begun(run_id: str, answer: object = None) -> Any:
        ti = RunningTask("resets", run_id, approve=answer)
        run = SimpleNamespace(triggering_user_name="ann")
        return reset_steps.validate_reset.function(params=form, dag_run=run, ti=ti)

    assert begun("r1")
    entry = audit_entry(plan, 1, BEFORE, plan.group_ids[0], detail={})
    api.open_journal(tables, plan).note([entry])
    with pytest.raises(
        exceptions.AirflowFailException, match=rf"{plan.plan_id}.* is not determined.*Clear the task verify"
    ):
        begun("r1")
    assert begun("r2")
    shutil.rmtree(tmp_path)
    with pytest.raises(exceptions.AirflowFailException, match="the tables no longer have it"):
        begun("r1", {"chosen_options": ["Approve"]})


@pytest.mark.parametrize("may_pass", [True, False])
def test_a_verification_that_may_pass_later_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, may_pass: bool
) -> None:
    """An unknown outcome behind a broker that is away goes to Airflow's retries; behind anything else it needs a
    person."""

    def unknown(*_: Any, **__: Any) -> None:
        raise OutcomeUnknown("not known") from (Unreachable("k:9092") if may_pass else ValueError("a defect"))

    monkeypatch.setattr("acktrail_dags.change_steps.cluster_at", lambda *_: None)
    monkeypatch.setattr(api, "verify", unknown)
    with running_as_try(1), pytest.raises(Unreachable if may_pass else exceptions.AirflowFailException):
        verified(sent(tmp_path, (BEFORE, None)))


HOSTILE = "g|`<img src=x>`[a](javascript:x)**\n| --- |"


def plan(group_id: str, partitions: int) -> ResetPlan:
    """A plan of `partitions` share partitions whose present state is not known."""
    made = a_plan(a_request())
    row = replace(made.partitions[0], group_id=group_id, topic="t", start_offset=None, target_offset=3, impact=None)
    notice = Notice(severity=Severity.WARNING, rule="r", text=group_id, group_id=group_id)
    rows = tuple(replace(row, partition=index) for index in range(partitions))
    return replace(made, plan_id="p-1", plan_hash="sha256:0123456789", notices=(notice,), partitions=rows)


def test_names_stay_inside_their_cells() -> None:
    """Markdown's and HTML's own characters are escaped, and no name makes a line or a column of its own."""
    shown = plan_texts.plan_text(plan(HOSTILE, 2), where=HOSTILE)
    lines = [line for line in shown.splitlines() if "img" in line]
    assert len(lines) == 4
    for line in lines:
        assert "\\<img src\\=x\\>" in line
        assert line.replace("\\|", "").count("|") in {0, 5, 10}
    assert "`" not in shown.replace("\\`", "").replace("`p-1`", "").replace("`sha256:012345678`", "")


def test_notices_of_several_share_partitions_give_no_total() -> None:
    """Numbers of one notice stay what they are; those of several are each one's."""
    made = plan("g", 3)
    texts = [
        Notice(severity=Severity.WARNING, rule="r", text="71 records come again", topic="t", partition=at)
        for at in range(3)
    ]
    one, three = (plan_texts.plan_text(replace(made, notices=tuple(texts[:count])), where="k") for count in (1, 3))
    assert "| 71 records come again |" in one
    assert "| in each of 3\\: 71 records come again |" in three


def test_what_is_not_known_says_so_and_what_is_cut_off_is_counted() -> None:
    """A number that is not known is no zero; share partitions beyond the first are in the table that is named."""
    shown = plan_texts.plan_text(plan("g", 60), where="k:9092")
    assert "| g | t | 9 | unknown | 3 | unknown | unknown | unknown | unknown |" in shown
    assert "| g | t | 10 |" not in shown
    assert "and 50 more, all of them in the plan: `acktrail change show --json`" in shown


FORM: dict[str, Any] = {
    "groups": ["g"],
    "strategy": "to-earliest",
    "allow": None,
    **dict.fromkeys(("topics", "reason", "kafka_conn_id")),
    **dict.fromkeys(("offset", "shift_by", "datetime", "duration", "file")),
    **dict.fromkeys(("all_topics", "allow_skip", "partial"), False),
    "dry_run": True,
    "wait_for_empty_s": 0,
    "watch_s": 0,
}


def validated(form: dict[str, Any]) -> Any:
    ti = RunningTask("resets")
    run = SimpleNamespace(triggering_user_name="ann")
    return reset_steps.validate_reset.function(params=form, dag_run=run, ti=ti)["request"]


def test_messages_name_the_fields_of_the_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their titles, also where the rule is one of the command line's: no option of it is in a message."""
    monkeypatch.setenv("ACKTRAIL_TABLES", str(tmp_path))
    earliest = FORM
    later = {"strategy": "to-history", "datetime": "2999-01-01T00:00:00Z"}
    for form, message in (
        (earliest, "give “Topics” TOPIC[:0,1,2] or “All topics”"),
        ({**earliest, "topics": ["orders"], "all_topics": True}, "“Topics” and “All topics” exclude each other"),
        ({**earliest, "all_topics": True, "offset": 0}, "Where to: to-earliest does not take Offset"),
        ({**earliest, "all_topics": True, "strategy": "to-offset"}, "Where to: to-offset needs Offset"),
        (
            {**earliest, "strategy": "from-file", "file": "/offsets/f", "all_topics": True},
            "“Where to: from-file” already names the partitions",
        ),
        ({**earliest, "topics": ["orders:0", "orders:0"]}, "“Topics”: orders:0 is named twice"),
        ({**earliest, "all_topics": True, **later}, "“Where to: to-history” 2999-01-01T00:00:00"),
    ):
        with pytest.raises(exceptions.AirflowFailException, match=re.escape(message)) as caught:
            validated(form)
        assert "--" not in str(caught.value)
