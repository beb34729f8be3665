"""Resets without a scheduler or a broker: the form, the plan that a person reads, what the DAGs note of an approval,
and what they make of an unknown outcome."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from change.scenes import a_plan, a_request, a_snapshot
from drivers.airflow_home import Late

from acktrail.change import api
from acktrail.change.audit import integrity
from acktrail.change.change_kind import load_plan
from acktrail.change.lifecycle import plan_status
from acktrail.change.planning.notices import Notice, Severity
from acktrail.change.planning.reset_plan import ResetPlan
from acktrail.config import TablesConfig
from acktrail.errors import OutcomeUnknown, Unreachable

pytestmark = pytest.mark.airflow

exceptions = Late("airflow.sdk.exceptions")
change_steps, plan_texts = Late("acktrail_dags.change_steps"), Late("acktrail_dags.plan_text")


def planned(folder: Path, made: ResetPlan | None = None) -> Any:
    """A stored plan, as the tasks hand it on; without one, a plan of `ann`."""
    new = a_snapshot(taken_at_ms=time.time_ns() // 1_000_000)
    plan = made or a_plan(a_request(requested_by="ann"), new)
    api.store_plan(TablesConfig(uri=str(folder)), plan)
    refusals = [notice.text for notice in plan.refusals]
    named = {"plan_id": plan.plan_id, "plan_hash": plan.plan_hash, "refusals": refusals}
    rest = {"kafka_conn_id": "acktrail_kafka", "preview": "", "partial": False, "watch_s": 0}
    return {**named, **rest, "tables_uri": str(folder)}


def test_a_plan_of_nothing_fails_with_its_refusal(tmp_path: Path) -> None:
    """A misspelt topic shows first, then how many share partitions the plan has; no one is asked to approve."""
    made = planned(tmp_path, a_plan(a_request(), a_snapshot(partitions=())))
    for partial in (False, True):
        with pytest.raises(
            exceptions.AirflowFailException, match=r"^no share partition is in the scope;.*row_count_as_planned"
        ):
            change_steps.check_plan.function(made | {"partial": partial})


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
    return change_steps.note_decision.function(stored, ti=ti)


def standing(folder: Path) -> str:
    (line,) = plan_status.list_plans(TablesConfig(uri=str(folder)))
    return str(line["standing"])


def test_who_was_not_asked_did_not_decide(tmp_path: Path) -> None:
    """An approval that somebody marked as a success by hand approves nothing, and rejects nothing."""
    with pytest.raises(exceptions.AirflowFailException, match="no one was asked"):
        decide(planned(tmp_path), NotAsked())
    assert standing(tmp_path) == "PLANNED"


@pytest.mark.parametrize(("name", "expected"), [("eve", "REJECTED"), (None, "EXPIRED")])
def test_a_rejection_and_a_time_out_close_the_plan(tmp_path: Path, name: str | None, expected: str) -> None:
    """For the command line too; a task that runs twice notes it once; an approval comes too late."""
    made = planned(tmp_path)
    for _ in range(2):
        assert decide(made, Answered("Reject", name)) is None
    assert standing(tmp_path) == expected
    rows = integrity.audit_rows(TablesConfig(uri=str(tmp_path)), plan_id=made["plan_id"])
    assert [row["event"] for row in rows if row["event"] != "planned"] == [expected.lower()]
    with pytest.raises(exceptions.AirflowFailException, match="make a new plan"):
        decide(made, Answered("Approve", "eve"))


def test_the_requester_does_not_approve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a second person is asked for: the form says so, the requester's answer fails and leaves the plan open for
    somebody else's; a run whose requester Airflow does not know fails at once."""
    made = planned(tmp_path)
    plan = load_plan(TablesConfig(uri=str(tmp_path)), made["plan_id"])
    assert api.approval_needed(plan) == ""
    monkeypatch.setenv("ACKTRAIL_RESET_APPROVAL", "second-person")
    assert "ann asked for it and may not" in plan_texts.plan_text(
        plan, where="k:9092", approval=api.approval_needed(plan)
    )
    with pytest.raises(exceptions.AirflowFailException, match="own_approval"):
        decide(made, Answered("Approve", "ann"))
    assert standing(tmp_path) == "PLANNED"
    assert decide(made, Answered("Approve", "eve")) == "eve"
    assert standing(tmp_path) == "APPROVED"
    unknown: Any = {"params": {"dry_run": False}, "dag_run": object()}
    with pytest.raises(exceptions.AirflowFailException, match="who triggered"):
        change_steps.validate_reset.function(**unknown)


@pytest.mark.parametrize("may_pass", [True, False])
def test_a_verification_that_may_pass_later_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, may_pass: bool
) -> None:
    """An unknown outcome behind a broker that is away goes to Airflow's retries; behind anything else it needs a
    person."""

    def unknown(*_: Any, **__: Any) -> None:
        raise OutcomeUnknown("not known") from (Unreachable("k:9092") if may_pass else ValueError("a defect"))

    monkeypatch.setattr("acktrail_dags.change_steps.cluster_at", lambda *_: None)
    monkeypatch.setattr(plan_status, "plan_status", lambda *_: {"groups": ["g"]})
    monkeypatch.setattr(api, "verify", unknown)
    with pytest.raises(Unreachable if may_pass else exceptions.AirflowFailException):
        change_steps.verify.function(planned(tmp_path))


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
    run = SimpleNamespace(triggering_user_name="ann")
    return change_steps.validate_reset.function(params=form, dag_run=run)["request"]


def test_messages_name_the_fields_of_the_form(tmp_path: Path) -> None:
    """By their titles, also where the rule is one of the command line's: no option of it is in a message."""
    earliest = {**FORM, "tables_uri": str(tmp_path)}
    later = {"strategy": "to-history", "datetime": "2999-01-01T00:00:00Z"}
    for form, message in (
        (earliest, "Topics is empty"),
        ({**earliest, "topics": ["orders"], "all_topics": True}, "Topics does not take All topics"),
        ({**earliest, "all_topics": True, "offset": 0}, "Where to: to-earliest does not take Offset"),
        ({**earliest, "all_topics": True, "strategy": "to-offset"}, "Where to: to-offset needs Offset"),
        ({**earliest, "strategy": "from-file", "file": "f", "all_topics": True}, "from-file does not take All topics"),
        ({**earliest, "topics": ["orders:0", "orders:0"]}, "“Topics”: orders:0 is named twice"),
        ({**earliest, "all_topics": True, **later}, "“Where to: to-history” 2999-01-01T00:00:00"),
    ):
        with pytest.raises(exceptions.AirflowFailException, match=re.escape(message)) as caught:
            validated(form)
        assert "--" not in str(caught.value)
