"""Deletions and configurations as steps: plain data in, plain data out. See `steps`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from acktrail.config import KafkaConfig, TablesConfig, approval_rule
from acktrail.errors import MalformedFile, OutcomeUnknown, PlanStale
from acktrail.group_changes.json_values import from_plain, to_plain
from acktrail.group_changes.lifecycle.approvers import account
from acktrail.group_changes.other_plan import OTHER_FORMAT, OtherKind, OtherPlan, other_hash
from acktrail.times import new_run_id, now_ms

if TYPE_CHECKING:
    from acktrail.broker.changes import ChangeResult
    from acktrail.group_changes.audit.journal import Journal
    from acktrail.group_changes.lifecycle.admission import Admission

__all__ = [
    "apply_other",
    "load_other",
    "note_other_decision",
    "other_value",
    "plan_configs",
    "plan_deletion",
    "raise_unless_other_done",
    "recheck_other",
    "settle",
]

Json = dict[str, Any]


def plan_deletion(
    kafka: KafkaConfig, groups: Sequence[str], topics: Sequence[str] = (), *, reason: str = "", requested_by: str = ""
) -> Json:
    """What the deletion of groups, or (`topics`) of what they have of topics, would take away.

    Raises:
        Unreachable, RetryableError, ConfigurationError: the cluster cannot be asked.
    """
    from acktrail.group_changes.other_changes import gather_deletion

    return _json(gather_deletion(kafka, groups, topics, **_about(reason, requested_by)))


def plan_configs(
    kafka: KafkaConfig,
    groups: Sequence[str],
    wanted: Mapping[str, str | None],
    *,
    reason: str = "",
    requested_by: str = "",
) -> Json:
    """What setting configurations of groups would change; None: back to the default. Raises as `plan_deletion`."""
    from acktrail.group_changes.other_changes import gather_configs

    return _json(gather_configs(kafka, groups, wanted, **_about(reason, requested_by)))


def apply_other(
    kafka: KafkaConfig, tables: TablesConfig, plan: Json, *, expect: str | None = None, actor: str | None = None
) -> Json:
    """Carry out a deletion or a change of configurations, verified and audited: `results` and `outcomes` by group. The
    plan is stored first. A plan that was done is not sent again.

    `expect` is the preview's hash that a person saw: with another one nothing is sent.

    Raises:
        ChangeRefused (PlanStale when the preview is another), ChangeInProgress: nothing was sent.
        RetryableError, ConfigurationError: the cluster or the tables cannot be reached; nothing was sent.
        OutcomeUnknown: a request left, and its outcome is not known.
    """
    from acktrail.group_changes.lifecycle.change_status import Standing
    from acktrail.group_changes.other_changes import carry_out, other_plan_row

    value = other_value(plan)
    if expect is not None and expect != value.preview_hash:
        raise PlanStale("preview_changed", "what would be changed is not what was shown", hint="look at it again")
    journal = _journal(tables, value, actor)
    admission = _admission(journal, value)
    journal.write_plan(other_plan_row(value), [])
    results: list[ChangeResult] = []
    if admission.check_apply().standing is not Standing.DONE:
        results = carry_out(kafka, journal, value, lambda: _again(kafka, value), check=admission.check_apply)
    standings = journal.standings({"plan_id": value.plan_id})
    return {
        "plan_id": value.plan_id,
        "results": [to_plain(result) for result in results],
        "outcomes": {found.group_id: found.standing.value for found in standings},
    }


def recheck_other(kafka: KafkaConfig, tables: TablesConfig, plan: Json) -> None:
    """Pass when `apply_other` would send the plan now, or has nothing to send any more. Raises as it would."""
    from acktrail.group_changes.lifecycle.change_status import Standing
    from acktrail.group_changes.other_changes import check_preview

    value = other_value(plan)
    if _admission(_journal(tables, value, None), value).check_apply().standing is not Standing.DONE:
        check_preview(value, lambda: _again(kafka, value))


def note_other_decision(tables: TablesConfig, plan: Json, *, approved: bool, actor: str, note: str = "") -> str:
    """Note who approved or rejected a change, as `steps.note_decision`; how the plan stands then."""
    from acktrail.group_changes.lifecycle.plan_life import Step
    from acktrail.group_changes.other_changes import other_plan_row

    value = other_value(plan)
    journal = _journal(tables, value, actor)
    journal.write_plan(other_plan_row(value), [])
    step = Step.APPROVE if approved else Step.REJECT
    return _admission(journal, value).decide(step, actor=actor, why=note).standing.value


def settle(kafka: KafkaConfig, tables: TablesConfig, plan: Json, *, actor: str | None = None) -> Json:
    """Settle a change whose outcome nobody noted: outcome by group.

    Raises:
        ChangeInProgress: another living process is at it.
        OutcomeUnknown: a request was sent, and the cluster or the tables cannot be asked: it is not settled.
    """
    from acktrail.group_changes.execution.departure import Departure
    from acktrail.group_changes.lifecycle.change_status import Standing
    from acktrail.group_changes.other_changes import settle_other

    value = other_value(plan)
    journal = _journal(tables, value, actor)
    with Departure(value.plan_id) as sent:
        standings = journal.standings({"plan_id": value.plan_id})
        if any(one.standing in (Standing.UNKNOWN, Standing.UNVERIFIED) for one in standings):
            sent.left()
        found = settle_other(kafka, journal, value)
        sent.settled()
    return dict(found)


def raise_unless_other_done(done: Json) -> None:
    """Pass when everything was done and shows.

    Raises:
        OutcomeUnknown: nobody knows, or the broker said done and it does not show.
        PartlyDone, NotAuthorized, GroupNotEmpty, UnknownName ...: what became of it.
    """
    from acktrail.broker.changes import ChangeResult, Outcome, raise_unless_done
    from acktrail.group_changes.lifecycle.change_status import Standing

    plan_id = done["plan_id"]
    results = [from_plain(ChangeResult, result) for result in done["results"]]
    answered = {result.group_id for result in results if result.outcome is Outcome.DONE}
    hidden = [group for group in answered if done["outcomes"].get(group) == Standing.FAILED]
    if hidden:
        text = f"the broker said that group {min(hidden)!r} was changed, and it does not show"
        raise OutcomeUnknown(text, hint=f"acktrail reset verify {plan_id} looks again", data={"plan": plan_id})
    try:
        raise_unless_done(results, operation="DELETE")
    except OutcomeUnknown as error:
        hint = f"acktrail reset show {plan_id} says what was found; {error.hint}".removesuffix("; ")
        raise OutcomeUnknown(error.message, hint=hint, data={**error.data, "plan": plan_id}) from error


def load_other(tables: TablesConfig, plan_id: str) -> Json | None:
    """A stored plan of this kind; None: it is a reset.

    Raises:
        UnknownName: there is no such plan. PlanStale: it was altered.
    """
    from acktrail.group_changes.audit.journal import read_plan_row

    row = read_plan_row(tables, plan_id)
    if row["kind"] not in set(OtherKind):
        return None
    data: Json = json.loads(row["plan"])
    if data.get("format") != OTHER_FORMAT:
        raise MalformedFile("is no such plan", file=f"plan {plan_id} in reset_plans")
    return _json(other_value(data))


def other_value(plan: Json) -> OtherPlan:
    """A plan as a value. Raises PlanStale, InputError: it was altered."""
    value = from_plain(OtherPlan, plan, "plan")
    if other_hash(value) != value.plan_hash:
        raise PlanStale("edited_plan", "the plan was changed after it was made", hint="make a new plan")
    return value


def _again(kafka: KafkaConfig, value: OtherPlan) -> OtherPlan:
    """The same plan, made now."""
    from acktrail.group_changes.other_changes import gather_configs, gather_deletion

    groups, about = [part.group_id for part in value.parts], _about("", "")
    if value.kind is OtherKind.ALTER_CONFIGS:
        wanted = {step.name: step.after for part in value.parts for step in part.configs}
        return gather_configs(kafka, groups, wanted, **about)
    return gather_deletion(kafka, groups, value.parts[0].topics if value.parts else (), **about)


def _admission(journal: Journal, value: OtherPlan) -> Admission:
    from acktrail.group_changes.lifecycle.admission import Admission

    return Admission(journal, value, rule=approval_rule())


def _about(reason: str, requested_by: str) -> dict[str, Any]:
    at_ms = now_ms()
    return {
        "plan_id": new_run_id(at_ms),
        "created_at_ms": at_ms,
        "created_by": account(),
        "reason": reason,
        "requested_by": requested_by,
    }


def _journal(tables: TablesConfig, value: OtherPlan, actor: str | None) -> Journal:
    from acktrail.group_changes.audit.journal import Journal

    return Journal(tables, cluster_id=value.cluster_id, run_id=new_run_id(now_ms()), actor=actor or account())


def _json(value: Any) -> Json:
    found: Json = to_plain(value)
    return found
