"""What the DAGs note of an approval, and what they make of an unknown outcome. Without a scheduler or a broker."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from change.scenes import a_plan, a_request, a_snapshot

from acktrail.change import api
from acktrail.change.audit import integrity
from acktrail.change.change_kind import load_plan
from acktrail.change.lifecycle import plan_status
from acktrail.config import TablesConfig
from acktrail.errors import OutcomeUnknown, Unreachable

pytestmark = pytest.mark.airflow


def planned(folder: Path, requested_by: str = "ann") -> Any:
    """A stored plan, as the tasks hand it on."""
    tables = TablesConfig(uri=str(folder))
    now_ms = time.time_ns() // 1_000_000
    plan = a_plan(a_request(requested_by=requested_by), a_snapshot(taken_at_ms=now_ms))
    api.store_plan(tables, plan)
    named = {"plan_id": plan.plan_id, "plan_hash": plan.plan_hash}
    rest = {"kafka_conn_id": "acktrail_kafka", "preview": "", "refusals": [], "partial": False, "watch_s": 0}
    return {**named, **rest, "tables_uri": str(folder)}


def test_a_plan_of_nothing_fails_with_its_refusal(tmp_path: Path) -> None:
    """A misspelt topic shows first, then how many share partitions the plan has; no one is asked to approve."""
    from airflow.sdk.exceptions import AirflowFailException

    from acktrail_dags.change_steps import check_plan

    tables = TablesConfig(uri=str(tmp_path))
    plan = a_plan(a_request(), a_snapshot(partitions=()))
    api.store_plan(tables, plan)
    refusals = [notice.text for notice in plan.refusals]
    about: Any = {"plan_id": plan.plan_id, "plan_hash": plan.plan_hash, "tables_uri": str(tmp_path)}
    rest: Any = {"kafka_conn_id": "acktrail_kafka", "preview": "", "refusals": refusals, "watch_s": 0}

    for partial in (False, True):
        with pytest.raises(AirflowFailException, match=r"^no share partition is in the scope;.*row_count_as_planned"):
            check_plan.function(about | rest | {"partial": partial})


class Answered:
    """What of Airflow's task instance `note_decision` reads: the answer to the approval."""

    def __init__(self, option: str, name: str | None) -> None:
        user = None if name is None else {"id": "7", "name": name}
        self.answer: dict[str, Any] | None = {"chosen_options": [option], "responded_by_user": user}

    def xcom_pull(self, *, task_ids: str) -> dict[str, Any] | None:
        assert task_ids == "approve"
        return self.answer


class NotAsked(Answered):
    """No one answered, because no one was asked."""

    def __init__(self) -> None:
        self.answer = None


def decide(stored: Any, ti: Answered) -> str | None:
    """What the task `note_decision` returns."""
    from acktrail_dags.change_steps import note_decision

    return note_decision.function(stored, ti=ti)


def standing(folder: Path) -> str:
    (line,) = plan_status.list_plans(TablesConfig(uri=str(folder)))
    return str(line["standing"])


def test_who_was_not_asked_did_not_decide(tmp_path: Path) -> None:
    """An approval that somebody marked as a success by hand approves nothing, and rejects nothing."""
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match="no one was asked"):
        decide(planned(tmp_path), NotAsked())
    assert standing(tmp_path) == "PLANNED"


@pytest.mark.parametrize(("name", "expected"), [("eve", "REJECTED"), (None, "EXPIRED")])
def test_a_rejection_and_a_time_out_close_the_plan(tmp_path: Path, name: str | None, expected: str) -> None:
    """For the command line too; a task that runs twice notes it once; an approval comes too late."""
    from airflow.sdk.exceptions import AirflowFailException

    made = planned(tmp_path)
    for _ in range(2):
        assert decide(made, Answered("Reject", name)) is None
    assert standing(tmp_path) == expected
    rows = integrity.audit_rows(TablesConfig(uri=str(tmp_path)), plan_id=made["plan_id"])
    assert [row["event"] for row in rows if row["event"] != "planned"] == [expected.lower()]
    with pytest.raises(AirflowFailException, match="make a new plan"):
        decide(made, Answered("Approve", "eve"))


def test_the_requester_does_not_approve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a second person is asked for: the form says so, the requester's answer fails and leaves the plan open for
    somebody else's; a run whose requester Airflow does not know fails at once."""
    from airflow.sdk.exceptions import AirflowFailException

    from acktrail_dags.change_steps import validate_reset
    from acktrail_dags.plan_text import plan_text

    made = planned(tmp_path)
    plan = load_plan(TablesConfig(uri=str(tmp_path)), made["plan_id"])
    assert api.approval_needed(plan) == ""
    monkeypatch.setenv("ACKTRAIL_RESET_APPROVAL", "second-person")
    assert "ann asked for it and may not" in plan_text(plan, where="k:9092", approval=api.approval_needed(plan))
    with pytest.raises(AirflowFailException, match="own_approval"):
        decide(made, Answered("Approve", "ann"))
    assert standing(tmp_path) == "PLANNED"
    assert decide(made, Answered("Approve", "eve")) == "eve"
    assert standing(tmp_path) == "APPROVED"
    unknown: Any = {"params": {"dry_run": False}, "dag_run": object()}
    with pytest.raises(AirflowFailException, match="who triggered"):
        validate_reset.function(**unknown)


@pytest.mark.parametrize("may_pass", [True, False])
def test_a_verification_that_may_pass_later_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, may_pass: bool
) -> None:
    """An unknown outcome behind a broker that is away goes to Airflow's retries; behind anything else it needs a
    person."""
    from airflow.sdk.exceptions import AirflowFailException

    from acktrail_dags import change_steps

    def unknown(*_: Any, **__: Any) -> None:
        raise OutcomeUnknown("not known") from (Unreachable("k:9092") if may_pass else ValueError("a defect"))

    monkeypatch.setattr(change_steps, "cluster_at", lambda *_: None)
    monkeypatch.setattr(plan_status, "plan_status", lambda *_: {"groups": ["g"]})
    monkeypatch.setattr(api, "verify", unknown)
    with pytest.raises(Unreachable if may_pass else AirflowFailException):
        change_steps.verify.function(planned(tmp_path))
