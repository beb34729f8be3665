"""Changes of share groups, one function a step, for the command line, the DAGs and scripts.

::

    parse_request -> make_plan -> store_plan                                   a dry run ends here
    -> execute (takes the lease, compares again, sends) -> verify              undo: undo_request -> make_plan -> ...
    plan_deletion, plan_configs -> execute_change (-> settle_change, after an unknown outcome)

`to_json_value` gives the JSON of values, `plan_file` the text of plans. One `Cluster` is the connection of all steps of
a command, one `Journal` (`open_journal`) its tables. Errors are those of `acktrail.errors`: besides those named here
ConfigurationError and RetryableError where cluster or tables do not answer, ForeignCluster and OutcomeUnknown where
tables are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acktrail.config import ApprovalRule, TablesConfig, approval_rule
from acktrail.errors import ChangeRefused, GroupNotEmpty, MalformedFile, PlanStale
from acktrail.group_changes.cluster import Cluster
from acktrail.group_changes.collection.facts import GroupFacts, TargetOffsets
from acktrail.group_changes.lifecycle.plan_life import OPEN, ChangeStatus, Step
from acktrail.group_changes.lifecycle.plan_status import Admission, account
from acktrail.group_changes.lifecycle.undo import check_not_undone, undo_offsets
from acktrail.group_changes.planning.group_change_plan import GroupChangeKind, GroupChangePlan
from acktrail.group_changes.planning.notices import Notice
from acktrail.group_changes.planning.plan import PartitionPlan, ResetPlan
from acktrail.group_changes.planning.plan_file import DAY_MS, Plan, parse_plan
from acktrail.group_changes.planning.reset_rules import notices_before
from acktrail.group_changes.request.offsets_csv import with_named_groups
from acktrail.group_changes.request.reset_request import ResetRequest, parse_topic
from acktrail.times import new_run_id, now_ms

if TYPE_CHECKING:
    from acktrail.broker.changes import ChangeResult
    from acktrail.group_changes.audit.audit_chain import AuditedPlan
    from acktrail.group_changes.audit.journal import Journal
    from acktrail.group_changes.execution.attempt import OpenRequests
    from acktrail.group_changes.execution.execute_reset import Execution
    from acktrail.group_changes.verification.partition_outcome import VerifiedPartition

_Key = tuple[str, str, int]


def check_undo(tables: TablesConfig, plan: Plan, *, topics: Sequence[str] = ()) -> None:
    """Pass when there is something of a plan to undo. Raises as `undo_offsets`."""
    undo_offsets(tables, plan, tuple(parse_topic(text) for text in topics), now_ms=now_ms())


def preflight(cluster: Cluster, request: ResetRequest) -> tuple[Notice, ...]:
    """What is known before share partitions are read, refusals first: release, group types, members, rights, the state
    topic."""
    from acktrail.group_changes.collection.collect import take_preflight

    request = with_named_groups(request)
    return notices_before(request, take_preflight(cluster, request, now_ms=now_ms()))


def requested_groups(cluster: Cluster, request: ResetRequest) -> tuple[str, ...]:
    """The ids of the groups that a request names."""
    from acktrail.group_changes.collection.collect import select_groups

    return select_groups(cluster.admin, with_named_groups(request))[0]


def wait_until_empty(cluster: Cluster, groups: Sequence[str], *, timeout_s: float) -> Sequence[GroupFacts]:
    """The groups when none has a member, after at most `timeout_s` seconds (a killed member counts until its session
    ends). Raises GroupNotEmpty: one still has members; it names them."""
    from acktrail.broker.client.broker_client import Backoff
    from acktrail.group_changes.collection.collect import describe_groups

    backoff = Backoff(timeout_s)
    while True:
        found, _ = describe_groups(cluster.admin, groups)
        busy = next((group for group in found if group.members), None)
        if busy is None:
            return found
        if not backoff.wait():
            raise GroupNotEmpty(busy.group_id, members=busy.members)


def make_plan(
    cluster: Cluster,
    request: ResetRequest,
    *,
    tables: TablesConfig | None = None,
    created_by: str | None = None,
    given: TargetOffsets | None = None,
    notices: Sequence[Notice] = (),
) -> ResetPlan:
    """The plan for a request and the cluster as it is now. `tables` are needed where offsets come from them (history,
    earlier plans), and for what branches know. A migration's offsets are `given`; `notices` are about what they
    come from. Raises ChangeRefused, MalformedFile: a file of offsets cannot be used. UnknownName: there is no such
    earlier plan."""
    from acktrail.group_changes.new_plans import plan_with_facts

    return plan_with_facts(cluster, request, tables=tables, created_by=created_by, given=given, notices=notices)[0]


def open_journal(tables: TablesConfig, plan: AuditedPlan, *, actor: str | None = None) -> Journal:
    """The tables of a plan's cluster, for one run; `actor` (the account, if None) is who acts."""
    from acktrail.group_changes.audit.journal import Journal

    return Journal(tables, cluster_id=plan.cluster_id, run_id=new_run_id(), actor=actor or account())


def store_plan(tables: TablesConfig, plan: Plan) -> None:
    """Store a plan. Storing it again changes nothing. Raises PlanStale: another plan with this id is stored."""
    open_journal(tables, plan).write_plan(plan)


def load_plan(tables: TablesConfig, plan_id: str) -> Plan:
    """A stored plan of any kind. Raises UnknownName: there is none. PlanStale, MalformedFile: what is stored was
    altered."""
    from acktrail.group_changes.audit.journal import read_plan_row

    return parse_plan(read_plan_row(tables, plan_id)["plan"], f"plan {plan_id} in reset_plans")


def load_reset(tables: TablesConfig, plan_id: str) -> ResetPlan:
    """A stored reset plan. Raises as `load_plan` and `as_reset`."""
    return as_reset(load_plan(tables, plan_id))


def load_undoable(tables: TablesConfig, plan_id: str) -> Plan:
    """A stored plan of a reset or a deletion. Raises as `load_plan` and `with_offsets`."""
    return with_offsets(load_plan(tables, plan_id))


def with_offsets(plan: Plan) -> Plan:
    """`plan`, which must have start offsets. Raises MalformedFile: it changes configurations."""
    if isinstance(plan, GroupChangePlan) and plan.kind is GroupChangeKind.ALTER_CONFIGS:
        hint = f"it is of kind {plan.kind.value}: acktrail reset show has the values of before"
        raise MalformedFile("has no start offsets", file=f"plan {plan.plan_id}", hint=hint)
    return plan


def as_reset(plan: Plan) -> ResetPlan:
    """`plan`, which must be a reset. Raises MalformedFile: it is a plan of another kind."""
    if not isinstance(plan, ResetPlan):
        raise MalformedFile("is no reset plan", file=f"plan {plan.plan_id}", hint=f"it is of kind {plan.kind.value}")
    return plan


def approval_needed(plan: Plan) -> str:
    """Who may approve a plan, in a sentence for them; empty where no approval is needed."""
    if approval_rule() is not ApprovalRule.SECOND_PERSON:
        return ""
    names = dict.fromkeys(name for name in (plan.created_by, plan.requested_by) if name.strip())
    return f"A second person must approve this: {', '.join(names)} asked for it and may not."


def note_decision(
    tables: TablesConfig,
    plan: AuditedPlan,
    *,
    approved: bool,
    actor: str,
    note: str = "",
    expired: bool = False,
    cluster: Cluster | None = None,
) -> ChangeStatus:
    """Note in the audit who approved or rejected a plan (or, `expired`, that the time to answer is over); `actor` names
    the person, `note` the reason. The plan's status then. A rejected or expired plan is closed: see `plan_life`. A plan
    about groups is stored; with `cluster` it is only approved where it could be executed now, and says what its request
    gives.

    Raises:
        ChangeRefused: the plan is closed already, was executed, is too old to be approved; `own_approval`: its
            requester may not approve it. PlanStale and others as `would_send`.
        ChangeInProgress: it is being executed, or was not verified.
    """
    step = Step.APPROVE if approved else Step.EXPIRE if expired else Step.REJECT
    journal = open_journal(tables, plan, actor=actor)
    if isinstance(plan, Plan):
        if cluster is not None and approved:
            _check_as_read(cluster, tables, plan)
        journal.write_plan(plan)
    return Admission(journal=journal, plan=plan).decide(step, actor=actor, why=note).standing


def _check_as_read(cluster: Cluster, tables: TablesConfig, plan: Plan) -> None:
    """Pass when `plan` could be executed as it stands, without what its own refusals leave out. Raises as `would_send`
    and `recheck_change`."""
    if not isinstance(plan, ResetPlan):
        recheck_change(cluster, tables, plan, is_approved=True)
    elif not plan.refusals or plan.executable(partial=True):
        would_send(cluster, tables, plan, partial=bool(plan.refusals), is_approved=True)


def would_send(
    cluster: Cluster,
    tables: TablesConfig,
    plan: ResetPlan,
    *,
    partial: bool = False,
    max_age_ms: int = DAY_MS,
    is_approved: bool = False,
) -> tuple[PartitionPlan, ...]:
    """The share partitions that would be sent now, without what is done already; `execute` compares again itself.
    `is_approved`: an approval is about to be noted. Raises as `execute`."""
    from acktrail.group_changes.execution.execute_reset import rows_to_send
    from acktrail.group_changes.new_plans import judge

    journal = open_journal(tables, plan)
    rule = ApprovalRule.OPTIONAL if is_approved else approval_rule()
    admission = Admission(journal=journal, plan=plan, rule=rule, longest_ms=max_age_ms)
    done = _done_before(cluster, journal, plan, admission)
    return rows_to_send(cluster, plan, judge(cluster, tables, plan), partial=partial, now_ms=now_ms(), done=done)


def execute(
    cluster: Cluster,
    journal: Journal,
    plan: ResetPlan,
    *,
    partial: bool = False,
    max_age_ms: int = DAY_MS,
    requests: OpenRequests | None = None,
) -> Execution:
    """Send a reset plan. Verify afterwards.

    Share partitions that an earlier attempt at this plan brought to their targets, where they still are, are left out.
    A plan that was done is not sent again. `requests` counts those whose outcome is open.

    Raises:
        ChangeRefused (PlanStale when something changed), GroupNotEmpty, ChangeInProgress, RetryableError,
            ConfigurationError: nothing was sent.
        OutcomeUnknown: a request left and its outcome is not known; or the tables may or may not have noted a step.
    """
    from acktrail.group_changes.execution.execute_reset import execute_reset
    from acktrail.group_changes.new_plans import judge

    admission = Admission(journal=journal, plan=plan, longest_ms=max_age_ms)
    done = _done_before(cluster, journal, plan, admission)
    journal.write_plan(plan)
    check, again = admission.check_apply, judge(cluster, journal.tables, plan)
    return execute_reset(cluster, journal, plan, again, partial=partial, done=done, check=check, requests=requests)


def verify(
    cluster: Cluster,
    journal: Journal,
    plan: ResetPlan,
    *,
    wait_s: float = 30.0,
    watch_s: float = 5.0,
    requests: OpenRequests | None = None,
) -> tuple[VerifiedPartition, ...]:
    """Settle the newest attempt at a reset: the outcome of every share partition that was sent. Where its requests
    arrived after those of later plans, these are looked at again: they are not done any more. Raises as `verify_reset`;
    OutcomeUnknown: a request was sent, and cluster or tables do not answer: it is not settled."""
    from acktrail.group_changes.execution.attempt import OpenRequests
    from acktrail.group_changes.verification import verify as verification

    with requests or OpenRequests(plan.plan_id) as sent:
        if not sent.out and _is_open(journal, plan):
            sent.out += 1
        found = verification.verify_reset(cluster, journal, plan, wait_s=wait_s, watch_s=watch_s)
        sent.out = 0
        for plan_id in verification.overtaken(journal, plan, found):
            other = load_reset(journal.tables, plan_id)
            verification.verify_reset(cluster, journal, other, wait_s=0, watch_s=0, is_overtaken=True)
    return found


def _done_before(cluster: Cluster, journal: Journal, plan: ResetPlan, admission: Admission) -> frozenset[_Key]:
    """What an earlier attempt brought to its target, of a plan that may be executed. Raises as `execute`."""
    from acktrail.group_changes.collection.changes_since_plan import other_cluster
    from acktrail.group_changes.lifecycle.plan_status import done_before
    from acktrail.group_changes.new_plans import unanswered_now

    is_done = admission.check_apply().standing is ChangeStatus.DONE
    check_not_undone(journal.tables, plan)
    # Before anything of the plan is stored: tables belong to the first cluster they see.
    other = other_cluster(plan, cluster.admin.cluster_id)
    if other is not None:
        raise PlanStale("other_cluster", other, hint="name the brokers that the plan was made for")
    if any(notice not in plan.notices for notice in unanswered_now(journal.tables, plan)):
        text = "another plan was sent to the same share partitions since, and its outcome is not known"
        raise PlanStale("unanswered_request", text, hint="make a new plan, which names it: acktrail reset plan")
    done = done_before(cluster, journal, plan)
    if is_done and any(row.key not in done for row in plan.executable(partial=True)):
        text = f"plan {plan.plan_id} was carried out, and not everything is at its target any more"
        raise ChangeRefused("plan_carried_out", text, hint="nothing was sent; make a new plan: acktrail reset plan")
    return done


def _is_open(journal: Journal, plan: Plan) -> bool:
    """Whether a request of the plan was sent, or may have been, and its outcome was not verified."""
    found = journal.standings({"plan_id": plan.plan_id})
    return any(one.standing in OPEN for one in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOutcome:
    """The broker's answers, and how each group stands after verification."""

    plan_id: str
    results: tuple[ChangeResult, ...]
    outcomes: Mapping[str, str]


def execute_change(
    cluster: Cluster, tables: TablesConfig, plan: GroupChangePlan, *, expect: str | None = None
) -> ChangeOutcome:
    """Execute a deletion or a change of configurations, verified and audited. The plan is stored first. A plan that was
    done is not sent again. `expect` is the preview's hash that a person saw: with another one nothing is sent.

    Raises:
        ChangeRefused (PlanStale when the preview is another), ChangeInProgress, RetryableError, ConfigurationError:
            nothing was sent.
        OutcomeUnknown: a request left, and its outcome is not known.
    """
    from acktrail.group_changes.execution.execute_group_change import execute_group_change

    if expect is not None and expect != plan.preview_hash:
        raise PlanStale("preview_changed", "what would be changed is not what was shown", hint="look at it again")
    journal = open_journal(tables, plan)
    check = Admission(journal=journal, plan=plan).check_apply
    journal.write_plan(plan)
    results: Sequence[ChangeResult] = ()
    if check().standing is not ChangeStatus.DONE:
        results = execute_group_change(cluster, journal, plan, check=check)
    standings = {found.group_id: found.standing.value for found in journal.standings({"plan_id": plan.plan_id})}
    return ChangeOutcome(plan_id=plan.plan_id, results=tuple(results), outcomes=standings)


def recheck_change(cluster: Cluster, tables: TablesConfig, plan: GroupChangePlan, *, is_approved: bool = False) -> None:
    """Pass when `execute_change` would send the plan now, or has nothing left to send. Raises as it would.
    `is_approved`: an approval is about to be noted."""
    from acktrail.group_changes.execution.execute_group_change import check_preview

    rule = ApprovalRule.OPTIONAL if is_approved else approval_rule()
    admission = Admission(journal=open_journal(tables, plan), plan=plan, rule=rule)
    if admission.check_apply().standing is not ChangeStatus.DONE:
        check_preview(cluster, plan)


def settle_change(cluster: Cluster, tables: TablesConfig, plan: GroupChangePlan) -> dict[str, str]:
    """Settle a change whose outcome was not noted: outcome by group. Raises as `verify`."""
    from acktrail.group_changes.execution.attempt import OpenRequests
    from acktrail.group_changes.execution.execute_group_change import settle_group_change

    journal = open_journal(tables, plan)
    with OpenRequests(plan.plan_id) as sent:
        if _is_open(journal, plan):
            sent.out += 1
        found = settle_group_change(cluster, journal, plan)
        sent.out = 0
    return found
