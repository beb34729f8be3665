"""The tasks of a reset and of its undo: each calls one use case of ``acktrail.change``.

From task to task go names, places and numbers; the plan itself is in the tables.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Unpack

from airflow.sdk import TaskGroup, TriggerRule, chain, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from acktrail.change import api
from acktrail.change.change_kind import load_plan
from acktrail.change.cluster import Cluster
from acktrail.change.lifecycle import plan_status
from acktrail.change.lifecycle.undo import undo_offsets, undo_request, undoable
from acktrail.change.plan_hash import from_json_value, to_json_value
from acktrail.change.planning.change_plan import ChangePlan
from acktrail.change.planning.notices import refusals_among
from acktrail.change.request.reset_request import ResetRequest, parse_request
from acktrail.errors import InputError, OutcomeUnknown, RetryableError, UnknownName
from acktrail.times import now_ms
from acktrail_dags import notifiers
from acktrail_dags.airflow_errors import as_airflow_errors
from acktrail_dags.approval_steps import approval, dry_run_ends_here, noted_answer, requester
from acktrail_dags.dag_profiles import DagProfile
from acktrail_dags.parameters import STRATEGIES, TITLES
from acktrail_dags.plan_text import notice_text, plan_text
from acktrail_dags.run_target import Place, cluster_at, place_of, tables_at, tables_config

if TYPE_CHECKING:
    from airflow.sdk import Context


_log: Final = logging.getLogger("acktrail.dags")
_SHORT: Final = timedelta(minutes=20)
_FILL_IN: Final = "fill in that field"


class ResetTarget(Place):
    """Where and how a reset is executed."""

    partial: bool
    watch_s: int


class ResetOrder(ResetTarget):
    """What to reset."""

    request: dict[str, Any]
    wait_for_empty_s: int


class StoredPlan(ResetTarget):
    """A plan in the tables, with the preview that a person reads."""

    plan_id: str
    plan_hash: str
    preview: str
    refusals: list[str]


@task(task_id="validate", multiple_outputs=False, execution_timeout=_SHORT)
@as_airflow_errors()
def validate_reset(**context: Unpack[Context]) -> ResetOrder:
    """The request that the form describes. Fails with the field or the rule that it breaks."""
    form, asked_by = context["params"], requester(context)
    strategies = _strategies(form)
    _check_scope(form)
    asked = {
        **{name: form[name] for name in ("groups", "all_topics", "allow_skip")},
        "topics": form["topics"] or [],
        "strategies": strategies,
        "allow": form["allow"] or [],
        "reason": form["reason"] or "",
        "requested_by": asked_by,
    }
    return _order(form, parse_request(asked))


@task(task_id="validate", multiple_outputs=False, execution_timeout=_SHORT)
@as_airflow_errors()
def validate_rollback(**context: Unpack[Context]) -> ResetOrder:
    """The request that undoes an earlier plan: start offsets only. Fails when that plan changed nothing, or is undone
    already."""
    form, asked_by = context["params"], requester(context)
    tables = tables_config(form["tables_uri"], form.get("profile"))
    earlier = undoable(load_plan(tables, form["plan_id"]))
    undo = undo_request(
        earlier,
        topics=tuple(form["topics"] or ()),
        reason=form["reason"] or "",
        requested_by=asked_by,
        allow_moved_on=form["allow_moved_on"],
    )
    undo_offsets(tables, earlier, undo.topics, now_ms=now_ms())  # raises where there is nothing to undo
    return _order(form, undo)


@task(execution_timeout=_SHORT)
@as_airflow_errors()
def preflight(order: ResetOrder) -> None:
    """Groups, releases, rights, topics: what forbids a reset with any plan. Members may still leave."""
    with _cluster(order) as cluster:
        notices = [n for n in api.preflight(cluster, _request(order)) if n.rule != "group_not_empty"]
    for notice in notices:
        _log.info("%s", notice_text(notice))
    refusals = [notice_text(notice) for notice in refusals_among(notices)]
    if refusals and not order["partial"]:
        raise AirflowFailException("; ".join(refusals))


@task(task_id="group_empty", execution_timeout=timedelta(minutes=80))
@as_airflow_errors()
def wait_until_empty(order: ResetOrder) -> None:
    """Wait for the last member to leave, as long as the form allows."""
    with _cluster(order) as cluster:
        groups = api.requested_groups(cluster, _request(order))
        api.wait_until_empty(cluster, groups, timeout_s=float(order["wait_for_empty_s"]))


@task(task_id="plan", multiple_outputs=False, execution_timeout=timedelta(hours=1))
@as_airflow_errors()
def make_plan(order: ResetOrder) -> StoredPlan:
    """Take the snapshot of state and offsets, make the plan from it, store both."""
    tables, request = tables_at(order), _request(order)
    with _cluster(order) as cluster:
        plan = api.make_plan(cluster, request, tables=tables, created_by=request.requested_by or None)
    api.store_plan(tables, plan)
    preview = plan_text(plan, where=_where(order), approval=api.approval_needed(plan))
    _log.info("%s", preview)
    return StoredPlan(
        **place_of(order, order["profile"]),
        plan_id=plan.plan_id,
        plan_hash=plan.plan_hash,
        preview=preview,
        refusals=[notice_text(notice) for notice in plan.refusals],
        partial=order["partial"],
        watch_s=order["watch_s"],
    )


@task(execution_timeout=_SHORT)
def check_plan(stored: StoredPlan) -> None:
    """Great Expectations on the plan (suite ``reset_plan``), then its refusals, unless it may be executed in part.
    Refusals come first in the message: a plan that is refused as a whole has nothing to check."""
    from acktrail_expectations.reset_gate import validate_plan

    refused = "; ".join(stored["refusals"])
    try:
        with as_airflow_errors():
            validate_plan(tables_at(stored), stored["plan_id"])
    except AirflowFailException as error:
        raise AirflowFailException(f"{refused}; {error}" if refused else str(error)) from error
    if refused and not stored["partial"]:
        raise AirflowFailException(refused)


@task(execution_timeout=_SHORT)
@as_airflow_errors()
def recheck(stored: StoredPlan) -> int:
    """Fail if anything changed since the plan was made (topics, partition counts, members, state), or if the plan is
    closed. Returns how many share partitions would be sent now."""
    tables = tables_at(stored)
    with _cluster(stored) as cluster:
        return len(api.recheck(cluster, tables, _load(stored), partial=stored["partial"]))


@task.short_circuit(multiple_outputs=False, execution_timeout=_SHORT)
@as_airflow_errors()
def note_decision(stored: StoredPlan, **context: Unpack[Context]) -> str | None:
    """Note in the audit who approved or rejected the plan, or that no answer came in time. Returns who approved, or
    None, and the run ends here. Fails when the plan is closed, or this person may not approve."""
    return noted_answer(context, tables_at(stored), _load(stored))


@task(task_id="execute", retries=0, multiple_outputs=False, execution_timeout=timedelta(hours=1))
@as_airflow_errors()
def send_requests(stored: StoredPlan, approver: str) -> dict[str, Any]:
    """Send one request per group; returns what the brokers answered for each share partition. No retries: an unknown
    outcome is verified first."""
    plan = _load(stored)
    with _cluster(stored) as cluster:
        journal = api.open_journal(tables_at(stored), plan, actor=approver)
        done: dict[str, Any] = to_json_value(api.execute(cluster, journal, plan, partial=stored["partial"]))
    return done


@task(trigger_rule=TriggerRule.NONE_SKIPPED, execution_timeout=timedelta(minutes=80))
@as_airflow_errors()
def verify(stored: StoredPlan | None) -> list[dict[str, Any]]:
    """Settle the attempt by the state topic and the brokers' answers, also when the execution failed."""
    if stored is None:
        raise AirflowSkipException("there is no plan")
    tables = tables_at(stored)
    if not plan_status.plan_status(tables, stored["plan_id"])["groups"]:
        raise AirflowSkipException("nothing was sent")
    plan = _load(stored)
    try:
        with _cluster(stored) as cluster:
            journal = api.open_journal(tables, plan)
            found = api.verify(cluster, journal, plan, watch_s=float(stored["watch_s"]))
            return [to_json_value(one) for one in found.partitions]
    except OutcomeUnknown as error:
        if isinstance(error.__cause__, RetryableError):
            raise error.__cause__ from error  # nothing is settled: Airflow looks again
        raise


@task(execution_timeout=_SHORT)
@as_airflow_errors()
def check_result(stored: StoredPlan) -> None:
    """Great Expectations on the result (suite ``reset_result``): every share partition has its target."""
    from acktrail_expectations.reset_gate import validate_result

    validate_result(tables_at(stored), stored["plan_id"])


def dag_settings(profile: DagProfile) -> dict[str, Any]:
    """What the DAGs of a reset and of its undo have in common."""
    return {
        "schedule": None,
        "catchup": False,
        "max_active_runs": 4,
        "dagrun_timeout": timedelta(hours=30),
        "tags": ["acktrail", "kafka", "share-groups", "data-quality", *profile.tags],
        "default_args": {"owner": "acktrail", "retries": 2, "retry_delay": timedelta(seconds=15)},
        "on_failure_callback": notifiers.failed(),
        "on_success_callback": notifiers.succeeded(),
    }


def plan_and_execute(order: Any, question: str) -> None:
    """The tasks from a request to a verified result, with a person in between who is asked `question`."""
    with _stage("prepare", "What forbids it, and what it would do. A dry run ends here."):
        plan: Any = make_plan(order)
        chain(preflight(order), wait_until_empty(order), plan, check_plan(plan), ended := dry_run_ends_here())
    with _stage("decide", "A person decides, and nothing changed meanwhile."):
        approver: Any = note_decision(plan)
        chain(asked := approval(question), approver, unchanged := recheck(plan))
    with _stage("carry_out", "Requests, and what became of them."):
        executed, checked = send_requests(plan, approver), check_result(plan)
        chain(executed, verify(plan), checked)
        chain(executed, checked)  # what `verify` finds does not make a failed execution a success
    chain(ended, asked)
    chain(unchanged, executed)


def _stage(group_id: str, tooltip: str) -> TaskGroup:
    """Tasks that are drawn together; their ids stay as they are."""
    return TaskGroup(group_id, tooltip=tooltip, prefix_group_id=False)


def _strategies(form: Mapping[str, Any]) -> dict[str, str | None]:
    """The one strategy with its value. A value in a field of another strategy is refused."""
    strategy = form["strategy"]
    field, _ = STRATEGIES[strategy]
    _leave_empty(form, f"{TITLES['strategy']}: {strategy}", {name for name, _ in STRATEGIES.values() if name != field})
    value = None if field is None else form[field]
    if field is not None and value is None:
        raise InputError(f"{TITLES['strategy']}: {strategy} needs {TITLES[field]}", hint=_FILL_IN)
    return {strategy: None if value is None else str(value)}


def _check_scope(form: Mapping[str, Any]) -> None:
    """Which topics, said once."""
    scope = ("topics", "all_topics")
    if form["strategy"] == "from-file":
        _leave_empty(form, f"{TITLES['strategy']}: from-file", scope)
    elif all(form[name] for name in scope):
        _leave_empty(form, TITLES["topics"], ["all_topics"])
    elif not any(form[name] for name in scope):
        raise InputError(f"{TITLES['topics']} is empty", hint=f"{_FILL_IN}, or choose {TITLES['all_topics']}")


def _leave_empty(form: Mapping[str, Any], what: str, names: Iterable[str | None]) -> None:
    """Refuse a value, or a yes, in one of the fields `names`, which `what` does not take."""
    filled = {name for name, value in form.items() if value or type(value) is int}
    if stray := sorted(TITLES[name] for name in filled.intersection(names)):
        raise InputError(f"{what} does not take {stray[0]}", hint="leave that field empty")


def _order(form: Mapping[str, Any], request: ResetRequest) -> ResetOrder:
    return ResetOrder(
        **place_of(form, form.get("profile")),
        request=to_json_value(request),
        partial=form["partial"],
        wait_for_empty_s=form["wait_for_empty_s"],
        watch_s=form["watch_s"],
    )


def _cluster(target: ResetTarget) -> Cluster:
    return Cluster(cluster_at(target))


def _where(target: ResetTarget) -> str:
    """The cluster as people know it."""
    return " ".join(filter(None, (target.get("profile"), cluster_at(target).bootstrap_servers)))


def _request(order: ResetOrder) -> ResetRequest:
    return from_json_value(ResetRequest, order["request"], "request")


def _load(stored: StoredPlan) -> ChangePlan:
    """The plan from the tables. Refused when its hash is not that of the plan that was shown to people."""
    plan = load_plan(tables_at(stored), stored["plan_id"])
    if plan.plan_hash != stored["plan_hash"]:
        raise UnknownName("plan with the hash that was shown", stored["plan_id"])
    return plan
