"""The tasks of a reset and of its undo up to the plan, and the checks of plan and result; `chain_reset_tasks`
puts them in order."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, Unpack

from airflow.sdk import Context

from acktrail.change import api
from acktrail.change.change_kind import load_plan
from acktrail.change.cluster import Cluster
from acktrail.change.plan.notices import refusals_among
from acktrail.change.plan.reset_plan import ResetPlan
from acktrail.change.request.reset_request import ResetRequest, StrategyKind, parse_request
from acktrail.change.undo import undo_offsets, undo_request, undoable
from acktrail.dataclass_json import from_json_value, to_json_value
from acktrail.errors import GroupNotEmpty, InputError, QualityGateFailed
from acktrail.times import now_ms
from acktrail_dags.allowed_places import FOLDERS, allowed_folders, allowed_path
from acktrail_dags.change_steps import SHORT, StoredPlan, before_sending, begin, change_steps, plan_step, stored
from acktrail_dags.parameters import STRATEGIES, TITLES
from acktrail_dags.plan_text import notice_text
from acktrail_dags.task_inputs import Place, cluster_at, filed_profile, place_of, tables_at
from acktrail_dags.task_reports import step
from acktrail_provider.sensors import WaitingSensor
from acktrail_provider.triggers import Ending, Until, Wait

_log: Final = logging.getLogger("acktrail.dags")


class ResetOrder(Place):
    """What to reset, where and how."""

    request: dict[str, Any]
    wait_for_empty_s: int
    partial: bool
    watch_s: int


@step(20, before_sending, task_id="validate")
def validate_reset(**context: Unpack[Context]) -> ResetOrder:
    """The request that the form describes. Fails with the field or the rule that it breaks."""
    form, asked_by = context["params"], begin(context)
    asked = {name: form[name] for name in ("groups", "topics", "all_topics", "allow_skip", "allow", "reason")}
    return _order(form, parse_request({**asked, "strategies": _strategies(form), "requested_by": asked_by}))


@step(20, before_sending, task_id="validate")
def validate_rollback(**context: Unpack[Context]) -> ResetOrder:
    """The request that undoes an earlier plan: start offsets only. Fails when that plan changed nothing, or is undone
    already."""
    form, asked_by = context["params"], begin(context)
    tables = tables_at(place_of(form, form.get("profile"), changes=True))
    earlier = undoable(load_plan(tables, form["plan_id"]))
    asked = {name: form[name] for name in ("topics", "reason", "allow_moved_on")}
    undo = undo_request(earlier, **asked, requested_by=asked_by)
    undo_offsets(tables, earlier, undo.topics, now_ms=now_ms())  # raises where there is nothing to undo
    return _order(form, undo)


@step(20, before_sending)
def preflight(order: ResetOrder) -> None:
    """Groups, releases, rights, topics: a plan is made now, and its refusals that are about no single share partition
    forbid the reset. Members may still leave."""
    notices = [n for n in _plan(order).notices if n.partition is None and n.rule != "group_not_empty"]
    for notice in notices:
        _log.info("%s", notice_text(notice))
    refusals = [notice_text(notice) for notice in refusals_among(notices)]
    if refusals and not order["partial"]:
        raise InputError("; ".join(refusals))


class GroupsEmptySensor(WaitingSensor):
    """Waits in the triggerer for the last member to leave, as long as the form allows. Holds no slot meanwhile."""

    template_fields = ("order",)
    until = Until.EMPTY

    def __init__(self, *, order: Any, **settings: Any) -> None:
        super().__init__(group_id=(), execution_timeout=SHORT, doc_md=type(self).__doc__, **settings)
        self.order = order

    def execute(self, context: Context) -> None:  # noqa: ARG002  # Airflow's form
        """Look, then wait."""
        wait_s = self.order["wait_for_empty_s"]
        with before_sending():
            there = self._look(fails=not wait_s)
        if there:
            self.kafka_conn_id = self.order["kafka_conn_id"]
            profile = filed_profile(self.kafka_conn_id, self.order.get("profile"))
            self.wait_deferred(Wait(until=self.until, groups=there), timeout_s=wait_s, profile=profile)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> str:
        """End the wait. When the time is up, those who are still members are named."""
        if event["status"] == Ending.TIMEOUT:
            with before_sending():
                self._look(fails=True)
                return "no members"
        return super().execute_complete(context, event)

    def _look(self, *, fails: bool) -> tuple[str, ...]:
        """The groups that are there, while one of them has a member; empty: none has. With `fails` raises GroupNotEmpty
        instead."""
        with Cluster(cluster_at(self.order)) as cluster:
            groups = api.requested_groups(cluster, _request(self.order))
            try:
                api.wait_until_empty(cluster, groups, timeout_s=0.0)
            except GroupNotEmpty:
                if fails:
                    raise
                return tuple(each.group_id for each in cluster.admin.describe_groups(groups) if not each.error_code)
        return ()


@step(60, before_sending, task_id="plan")
def make_plan(order: ResetOrder, **context: Unpack[Context]) -> StoredPlan:
    """Take the snapshot of state and offsets, make the plan from it, store both."""
    return stored(_plan(order), order, context, partial=order["partial"], watch_s=order["watch_s"])


def _plan(order: ResetOrder) -> ResetPlan:
    from acktrail.change import reset_planner

    request = _request(order)
    with Cluster(cluster_at(order)) as cluster:
        return reset_planner.make_plan(
            cluster, request, tables=tables_at(order), created_by=request.requested_by or None
        )


@step(20, before_sending)
def check_plan(planned: StoredPlan) -> None:
    """Great Expectations on the plan (suite ``reset_plan``), then its refusals, unless it may be executed in part.
    Refusals come first in the message: a plan that is refused as a whole has nothing to check."""
    from acktrail_expectations.reset_gate import validate_plan

    refused = "; ".join(planned["refusals"])
    try:
        validate_plan(tables_at(planned), planned["plan_id"])
    except QualityGateFailed as error:
        error.message = f"{refused}; {error.message}" if refused else error.message
        raise
    if refused and not planned["partial"]:
        raise InputError(refused)


@plan_step(execution_timeout=SHORT)
def check_result(planned: StoredPlan) -> None:
    """Great Expectations on the result (suite ``reset_result``): every share partition has its target."""
    from acktrail_expectations.reset_gate import validate_result

    validate_result(tables_at(planned), planned["plan_id"])


def _strategies(form: Mapping[str, Any]) -> dict[str, str | None]:
    """The one strategy with its value. A value, or a yes, in a field of another strategy is refused."""
    strategy = form["strategy"]
    what, (field, _) = f"{TITLES['strategy']}: {strategy}", STRATEGIES[strategy]
    values = {name: form.get(name) for name, _ in STRATEGIES.values() if name is not None}
    if stray := sorted(TITLES[name] for name, of in values.items() if name != field and (of or type(of) is int)):
        raise InputError(f"{what} does not take {stray[0]}", hint="leave that field empty")
    value = None if field is None else values[field]
    if field is not None and value is None:
        is_shown = field != "file" or allowed_folders()
        hint = "fill in that field" if is_shown else f"the workers allow no folder: set {FOLDERS}=FOLDER there"
        raise InputError(f"{what} needs {TITLES[field]}", hint=hint)
    if field == "file":
        value = allowed_path(TITLES[field], str(value))
    return {strategy: None if value is None else str(value)}


def _order(form: Mapping[str, Any], request: ResetRequest) -> ResetOrder:
    return ResetOrder(
        **place_of(form, form.get("profile"), changes=True),
        request=to_json_value(request),
        partial=form["partial"],
        wait_for_empty_s=form["wait_for_empty_s"],
        watch_s=form["watch_s"],
    )


def _request(order: ResetOrder) -> ResetRequest:
    """The request, which came by XCom: its file is checked again."""
    found = from_json_value(ResetRequest, order["request"], "request")
    if found.strategy.kind is StrategyKind.FROM_FILE:
        allowed_path(TITLES["file"], found.strategy.source or "")
    return found


def chain_reset_tasks(order: Any) -> None:
    """Put all tasks of a reset, or of its undo, in order. `order`: what the task `validate` returned."""
    plan: Any = make_plan(order)
    steps, checked = change_steps(plan), check_result(plan)
    planned = preflight(order) >> GroupsEmptySensor(task_id="group_empty", order=order) >> plan >> check_plan(plan)
    approved = planned >> steps.dry_run_ends_here >> steps.approve >> steps.note_decision >> steps.recheck
    approved >> steps.execute >> steps.verify >> checked
    steps.execute >> checked  # what `verify` finds does not make a failed execution a success
