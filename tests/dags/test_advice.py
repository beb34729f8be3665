"""What Airflow does about acktrail's errors."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from acktrail import errors

pytestmark = pytest.mark.airflow

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
    from acktrail_dags.task_reports import as_airflow_errors

    with caplog.at_level(logging.INFO), pytest.raises(type(error)) as caught, as_airflow_errors():
        raise error
    assert caught.value is error
    assert error.message in caplog.text
    assert "tries again" in caplog.text


@pytest.mark.parametrize("error", FAILED, ids=lambda error: type(error).__name__)
def test_what_needs_a_person_fails_at_once(error: errors.AcktrailError, caplog: pytest.LogCaptureFixture) -> None:
    """Any other AcktrailError ends the task without retries; message, hint and what to do are in the log."""
    from airflow.sdk.exceptions import AirflowFailException

    from acktrail_dags.task_reports import as_airflow_errors

    with caplog.at_level(logging.INFO), pytest.raises(AirflowFailException) as caught, as_airflow_errors():
        raise error
    assert error.message in str(caught.value)
    assert error.hint in str(caught.value)
    for text in (error.message, error.hint, "clear"):
        assert text in caplog.text


def test_a_defect_passes_unchanged() -> None:
    """What acktrail did not foresee is not dressed up as advice."""
    from acktrail_dags.task_reports import as_airflow_errors

    with pytest.raises(ZeroDivisionError), as_airflow_errors():
        raise ZeroDivisionError


def test_an_unknown_outcome_is_tried_again_where_running_again_tells_it(caplog: pytest.LogCaptureFixture) -> None:
    """An export reads its positions from the tables: Airflow's retries do what the message says. A reset does not."""
    from acktrail_dags.task_reports import as_airflow_errors

    error = errors.OutcomeUnknown("it is not known whether the commit landed", hint="run again")
    with caplog.at_level(logging.INFO), pytest.raises(errors.OutcomeUnknown), as_airflow_errors(can_run_again=True):
        raise error
    assert "tries again" in caplog.text


def test_a_task_hands_over_numbers_however_much_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gaps and the silent brokers of an export are counted in its XCom; the asset's extra lists them."""
    from airflow.sdk import Asset

    from acktrail.export.export_run import ExportGap, ExportSummary
    from acktrail_dags import pipeline_steps, run_target

    gaps = tuple(ExportGap(0, at, at) for at in range(1_000))
    summary = ExportSummary(run_id="r", cluster_id="c", status="complete", gaps=gaps, unanswered=("g",), rows={"t": 2})
    target = {"run_id": "r", "kafka_conn_id": "k", "tables_uri": "u"}
    monkeypatch.setattr(run_target, "export_target", lambda _: target)
    for name in ("cluster_at", "tables_at"):
        monkeypatch.setattr(pipeline_steps, name, lambda _: None)
    monkeypatch.setattr("acktrail.export.export_run.export", lambda *_, **__: summary)
    asset, pushed = Asset(name="exported", uri="acktrail://exported"), dict[str, Any]()
    event = SimpleNamespace(extra={})
    ti = SimpleNamespace(xcom_push=lambda key, value: pushed.update({key: value}))
    context = {"outlet_events": {asset: event}, "task": SimpleNamespace(outlets=[asset]), "ti": ti}
    pipeline_steps.export.function(**context)
    counts = pushed["result"]["counts"]
    assert (counts["gaps"], counts["unanswered"], counts["rows"]) == (1_000, 1, {"t": 2})
    assert len(event.extra["counts"]["gaps"]) == 1_000
