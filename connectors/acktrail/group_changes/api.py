"""Resets of start offsets, one function a step, for the command line, the DAGs and scripts.

::

    parse_request -> make_plan -> store_plan                                   a dry run ends here
    -> execute (takes the lease, compares again, sends) -> verify              undo: undo_request -> make_plan -> ...

Deletions and configurations are in `change_api`. Values are typed; `to_json_value` gives their JSON, `plan_file` the
text of plans. One `Cluster` is the connection of all steps of a command, one `Journal` (`open_journal`) its tables.
Errors are those of `acktrail.errors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acktrail import __version__
from acktrail.config import ApprovalRule, TablesConfig, approval_rule
from acktrail.errors import ChangeRefused, ConfigurationError, GroupNotEmpty, MalformedFile, PlanStale
from acktrail.group_changes.cluster import Cluster
from acktrail.group_changes.collection.facts import GroupFacts
from acktrail.group_changes.execution.attempt import OpenRequests
from acktrail.group_changes.json_values import to_json_value, with_hash
from acktrail.group_changes.lifecycle.admission import Admission, account
from acktrail.group_changes.lifecycle.change_status import ChangeStatus
from acktrail.group_changes.lifecycle.plan_life import Step
from acktrail.group_changes.lifecycle.undo import check_not_undone, read_ledger, undo_offsets, undo_request
from acktrail.group_changes.planning.notices import Notice
from acktrail.group_changes.planning.plan import PartitionPlan, ResetPlan, build_plan
from acktrail.group_changes.planning.plan_file import DAY_MS, Plan, check_age, parse_plan
from acktrail.group_changes.planning.reset_rules import notices_before
from acktrail.group_changes.request.offsets_csv import check_rows, offset_rows
from acktrail.group_changes.request.reset_request import ResetRequest, StrategyKind, parse_request, parse_topic
from acktrail.group_changes.request.target_offsets import TargetOffset, TargetOffsets, from_history
from acktrail.times import new_run_id, now_ms

if TYPE_CHECKING:
    from acktrail.group_changes.audit.journal import Journal
    from acktrail.group_changes.execution.execute_reset import Execution
    from acktrail.group_changes.verification.partition_outcome import VerifiedPartition

__all__ = [
    "approval_needed",
    "as_reset",
    "check_undo",
    "execute",
    "load_plan",
    "load_reset",
    "make_plan",
    "note_decision",
    "open_journal",
    "outcomes",
    "parse_request",
    "preflight",
    "requested_groups",
    "store_plan",
    "undo_request",
    "verify",
    "wait_until_empty",
    "would_send",
]

Key = tuple[str, str, int]
"""Group, topic, partition."""


def check_undo(tables: TablesConfig, plan: ResetPlan, *, topics: Sequence[str] = ()) -> None:
    """Pass when there is something of a plan to undo.

    Raises:
        ChangeRefused: it changed nothing, was undone before, or does not hold what `topics` names.
        ChangeInProgress: it is being executed, or was not verified.
    """
    undo_offsets(tables, plan, tuple(parse_topic(text) for text in topics), now_ms=now_ms())


def preflight(cluster: Cluster, request: ResetRequest) -> tuple[Notice, ...]:
    """What is known before share partitions are read, refusals first: release, group types, members, rights, the state
    topic.

    Raises:
        Unreachable, RetryableError, ConfigurationError: the cluster does not answer.
    """
    from acktrail.group_changes.collection.collect import take_preflight

    return notices_before(request, take_preflight(cluster, request, now_ms=now_ms()))


def requested_groups(cluster: Cluster, request: ResetRequest) -> tuple[str, ...]:
    """The ids of the groups that a request names."""
    from acktrail.group_changes.collection.collect import select_groups

    return select_groups(cluster.admin, request)[0]


def wait_until_empty(cluster: Cluster, groups: Sequence[str], *, timeout_s: float) -> Sequence[GroupFacts]:
    """The groups when none has a member, after at most `timeout_s` seconds (a killed member counts until its session
    ends).

    Raises:
        GroupNotEmpty: one still has members; it names them.
    """
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
    cluster: Cluster, request: ResetRequest, *, tables: TablesConfig | None = None, created_by: str | None = None
) -> ResetPlan:
    """The plan for a request and the cluster as it is now. `tables` are needed where offsets come from them: history,
    earlier plans.

    Raises:
        ChangeRefused, MalformedFile: a file of offsets cannot be used.
        UnknownName: there is no such earlier plan.
        Unreachable, RetryableError, ConfigurationError: cluster or tables do not answer.
    """
    from acktrail.group_changes.collection.collect import take_snapshot
    from acktrail.group_changes.collection.delivered_records import with_records, with_times
    from acktrail.group_changes.collection.records_below_start import with_passed

    targets = _targets(cluster, tables, request)
    snapshot = take_snapshot(cluster, request, now_ms=now_ms(), given=targets)
    snapshot = with_passed(cluster, tables, request, snapshot)
    plan = build_plan(
        request,
        snapshot,
        plan_id=new_run_id(snapshot.taken_at_ms),
        created_by=created_by or account(),
        acktrail_version=__version__,
        undoes=request.strategy.source if request.strategy.kind is StrategyKind.TO_SNAPSHOT else None,
    )
    if any(row.impact is not None and row.impact.to_deliver for row in plan.partitions):
        plan = with_records(cluster.admin, with_times(cluster.admin, plan))
    return with_hash(plan)


def open_journal(tables: TablesConfig, plan: Plan, *, actor: str | None = None) -> Journal:
    """The tables of a plan's cluster, for one run; `actor` (the account, if None) is who acts."""
    from acktrail.group_changes.audit.journal import Journal

    return Journal(tables, cluster_id=plan.cluster_id, run_id=new_run_id(), actor=actor or account())


def store_plan(tables: TablesConfig, plan: Plan) -> None:
    """Store a plan. Storing it again changes nothing.

    Raises:
        PlanStale: another plan with this id is stored.
        ForeignCluster, OutcomeUnknown, ConfigurationError, RetryableError: as the tables.
    """
    open_journal(tables, plan).write_plan(plan)


def load_plan(tables: TablesConfig, plan_id: str) -> Plan:
    """A stored plan of any kind.

    Raises:
        UnknownName: there is none. PlanStale, MalformedFile: what is stored was altered.
    """
    from acktrail.group_changes.audit.journal import read_plan_row

    return parse_plan(read_plan_row(tables, plan_id)["plan"], f"plan {plan_id} in reset_plans")


def load_reset(tables: TablesConfig, plan_id: str) -> ResetPlan:
    """A stored reset plan.

    Raises:
        As `load_plan` and `as_reset`.
    """
    return as_reset(load_plan(tables, plan_id))


def as_reset(plan: Plan) -> ResetPlan:
    """`plan`, which must be a reset.

    Raises:
        MalformedFile: it is a plan of another kind.
    """
    if not isinstance(plan, ResetPlan):
        raise MalformedFile("is no reset plan", file=f"plan {plan.plan_id}", hint=f"it is of kind {plan.kind.value}")
    return plan


def approval_needed(plan: Plan) -> str:
    """Who may approve a plan, in a sentence for them; empty where no approval is needed.

    Raises:
        ConfigurationError: the environment names no such rule.
    """
    if approval_rule() is not ApprovalRule.SECOND_PERSON:
        return ""
    names = dict.fromkeys(name for name in (plan.created_by, plan.requested_by) if name.strip())
    return f"A second person must approve this: {', '.join(names)} asked for it and may not."


def note_decision(
    tables: TablesConfig, plan: Plan, *, approved: bool, actor: str, note: str = "", expired: bool = False
) -> ChangeStatus:
    """Note in the audit who approved or rejected a plan (or, `expired`, that the time to answer is over); `actor` names
    the person, `note` the reason. The plan's status then. A rejected or expired plan is closed: see `plan_life`.

    Raises:
        ChangeRefused: the plan is closed already, was executed, is too old to be approved; `own_approval`: its
            requester may not approve it.
        ChangeInProgress: it is being executed, or was not verified.
        ForeignCluster, OutcomeUnknown, ConfigurationError, RetryableError: as the tables.
    """
    step = Step.APPROVE if approved else Step.EXPIRE if expired else Step.REJECT
    journal = open_journal(tables, plan, actor=actor)
    journal.write_plan(plan)
    return admission_of(journal, plan).decide(step, actor=actor, why=note).standing


def would_send(
    cluster: Cluster,
    plan: ResetPlan,
    *,
    partial: bool = False,
    tables: TablesConfig | None = None,
    max_age_ms: int = DAY_MS,
    is_approved: bool = False,
) -> tuple[PartitionPlan, ...]:
    """The share partitions that would be sent now. `execute` compares again itself. With `tables` also whether the
    plan's life allows it; what is done already is left out then. `is_approved`: an approval is about to be noted.

    Raises:
        ChangeRefused, PlanStale, GroupNotEmpty: none would be; as `execute`.
    """
    from acktrail.group_changes.execution.execute_reset import rows_to_send

    check_age(plan.created_at_ms, now_ms=now_ms(), longest_ms=max_age_ms)
    done = frozenset[Key]()
    if tables is not None:
        journal = open_journal(tables, plan)
        rule = ApprovalRule.OPTIONAL if is_approved else approval_rule()
        done = _done_before(cluster, journal, plan, admission_of(journal, plan, max_age_ms, rule))
    return rows_to_send(cluster, plan, partial=partial, now_ms=now_ms(), done=done)


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
        ChangeRefused (PlanStale when something changed), GroupNotEmpty, ChangeInProgress: nothing was sent.
        RetryableError, ConfigurationError: nothing was sent.
        OutcomeUnknown: a request left and its outcome is not known; or the tables may or may not have noted a step.
    """
    from acktrail.group_changes.execution.execute_reset import execute_reset

    admission = admission_of(journal, plan, max_age_ms)
    done = _done_before(cluster, journal, plan, admission)
    journal.write_plan(plan)
    return execute_reset(
        cluster, journal, plan, partial=partial, done=done, check=admission.check_apply, requests=requests
    )


def verify(
    cluster: Cluster,
    journal: Journal,
    plan: ResetPlan,
    *,
    wait_s: float = 30.0,
    watch_s: float = 5.0,
    requests: OpenRequests | None = None,
) -> tuple[VerifiedPartition, ...]:
    """Settle the newest attempt at a reset: the outcome of every share partition that was sent; see `verify_reset`.

    Raises:
        ChangeInProgress: another living process executes it.
        OutcomeUnknown: a request was sent, and cluster or tables do not answer: it is not settled.
        RetryableError, ConfigurationError: they do not answer, and no request was open.
    """
    from acktrail.group_changes.verification import verify as verification

    with requests or OpenRequests(plan.plan_id) as sent:
        if not sent.has_left and is_open(journal, plan):
            sent.add()
        found = verification.verify_reset(cluster, journal, plan, wait_s=wait_s, watch_s=watch_s)
        sent.settled()
    return found


def outcomes(journal: Journal, plan: ResetPlan, found: Sequence[VerifiedPartition] = ()) -> list[dict[str, Any]]:
    """The outcome of every share partition of a plan as JSON rows, the newest of all attempts, from the tables; nothing
    when nothing was ever attempted. `found` is the result of `verify` just now.

    Raises:
        ConfigurationError, RetryableError: the tables cannot be read.
    """
    from acktrail.group_changes.lifecycle.plan_status import outcomes_of

    newest = {(one.group_id, one.topic, one.partition): to_json_value(one) for one in found}
    rows = outcomes_of(journal, plan)
    return [newest.get((row["group_id"], row["topic"], row["partition"]), row) for row in rows]


def _targets(cluster: Cluster, tables: TablesConfig | None, request: ResetRequest) -> TargetOffsets | None:
    """The offsets that a file, the history or an earlier plan names; None: another strategy."""
    strategy = request.strategy
    if strategy.kind is StrategyKind.TO_SNAPSHOT:
        earlier = load_reset(_needed(tables), strategy.source or "")
        return undo_offsets(_needed(tables), earlier, request.topics, now_ms=now_ms())
    if strategy.kind is StrategyKind.FROM_FILE:
        rows = offset_rows(Path(strategy.source or ""))
        groups = requested_groups(cluster, request)
        found = check_rows(
            rows, groups, lambda: {topic.name: topic.partition_count for topic in cluster.admin.topics()}
        )
        return {group: {part: TargetOffset(offset=at) for part, at in parts.items()} for group, parts in found.items()}
    if strategy.kind is StrategyKind.TO_HISTORY:
        groups = requested_groups(cluster, request)
        return from_history(cluster.admin, _needed(tables), groups, strategy.moment_ms or 0)
    return None


def _needed(tables: TablesConfig | None) -> TablesConfig:
    if tables is None:
        raise ConfigurationError("the tables are needed for this", hint="give --tables or set ACKTRAIL_TABLES")
    return tables


def _done_before(cluster: Cluster, journal: Journal, plan: ResetPlan, admission: Admission) -> frozenset[Key]:
    """What an earlier attempt brought to its target, of a plan that may be executed. Raises as `execute`."""
    from acktrail.group_changes.collection.changes_since_plan import other_cluster
    from acktrail.group_changes.lifecycle.plan_status import done_before

    is_done = admission.check_apply().standing is ChangeStatus.DONE
    check_not_undone(journal.tables, plan)
    # Before anything of the plan is stored: tables belong to the first cluster they see.
    other = other_cluster(plan, cluster.admin.cluster_id)
    if other is not None:
        raise PlanStale("other_cluster", other, hint="name the brokers that the plan was made for")
    done = done_before(cluster, journal, plan)
    if is_done and any(row.key not in done for row in plan.executable(partial=True)):
        raise ChangeRefused(
            "plan_carried_out",
            f"plan {plan.plan_id} was carried out, and not everything is at its target any more",
            hint="nothing was sent; make a new plan: acktrail reset plan",
        )
    return done


def is_open(journal: Journal, plan: Plan) -> bool:
    """Whether a request of the plan was sent, or may have been, and its outcome was not verified."""
    found = journal.standings({"plan_id": plan.plan_id})
    return any(one.standing in (ChangeStatus.UNKNOWN, ChangeStatus.UNVERIFIED) for one in found)


def admission_of(journal: Journal, plan: Plan, longest_ms: int = DAY_MS, rule: ApprovalRule | None = None) -> Admission:
    return Admission(
        journal,
        plan,
        rule=approval_rule() if rule is None else rule,
        longest_ms=longest_ms,
        ledger=(lambda: read_ledger(journal.tables, [plan.plan_id])) if isinstance(plan, ResetPlan) else None,
    )
