"""Changes of share groups, one function a step, for the command line, the DAGs and scripts: the same for every kind.

`change_kind` has what differs between kinds, and reads plans: `load_plan`, `read_plan`. `to_json_value` gives the JSON
of values. One `Cluster` is the connection for all steps of a command, one `Journal` (`open_journal`) has its tables.
Errors are those of `acktrail.errors`: besides those named here ConfigurationError and RetryableError when the cluster
or the tables do not answer, ForeignCluster and OutcomeUnknown when the tables cannot be written.

The steps: `parse_request`; `reset_planner.make_plan` or `plan_undo`, `plan_deletion`, `plan_configs`; `store_plan` (a
dry run ends here); `note_decision`; `execute`, which takes the leases, compares the cluster with the plan again and
sends; `verify`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from acktrail.change import plan_status
from acktrail.change.apply.approval import Admission
from acktrail.change.audit.journal import Journal, account
from acktrail.change.audit.plan_life import (
    OPEN,
    PLAN_AGAIN,
    ChangeStatus,
    PlanLife,
    Status,
    Step,
    status_found,
    worst_status,
)
from acktrail.change.change_kind import (
    AT_ONCE,
    ChangeOutcome,
    ChangeRun,
    Execution,
    OpenRequests,
    Pace,
    Row,
    Settled,
    check_derived,
    check_pace,
    kind_of,
    load_plan,
    new_plan,
)
from acktrail.change.cluster import Cluster
from acktrail.change.plan.change_plan import DAY_MS, ChangePlan
from acktrail.change.plan.snapshot_facts import GroupFacts
from acktrail.change.request.offsets_csv import with_named_groups
from acktrail.change.request.reset_request import ResetRequest
from acktrail.config import ApprovalRule, TablesConfig, approval_rule
from acktrail.errors import AcktrailError, GroupNotEmpty, PlanStale
from acktrail.times import new_run_id


def requested_groups(cluster: Cluster, request: ResetRequest) -> tuple[str, ...]:
    """Return the ids of the groups that a request names."""
    from acktrail.change.plan.snapshot_reader import select_groups

    return select_groups(cluster.admin, with_named_groups(request))[0]


def wait_until_empty(cluster: Cluster, groups: Sequence[str], *, timeout_s: float) -> Sequence[GroupFacts]:
    """Return the groups once none has a member, after at most `timeout_s` seconds. A killed member counts until its
    session ends. Raises GroupNotEmpty, with the members of a group that still has some."""
    from acktrail.backoff import Backoff
    from acktrail.change.plan.snapshot_reader import describe_groups

    backoff = Backoff(timeout_s)
    while True:
        found, _ = describe_groups(cluster.admin, groups)
        busy = next((group for group in found if group.members), None)
        if busy is None:
            return found
        if not backoff.wait():
            raise GroupNotEmpty(busy.group_id, members=busy.members)


def open_journal(
    tables: TablesConfig, plan: ChangePlan, *, actor: str | None = None, run_id: str | None = None
) -> Journal:
    """Open the tables of a plan's cluster for the run `run_id` (None: a new one). `actor` is the person who acts (None:
    the account)."""
    return Journal(tables, cluster_id=plan.cluster_id, run_id=run_id or new_run_id(), actor=actor or account())


def store_plan(tables: TablesConfig, plan: ChangePlan, *, run_id: str | None = None) -> None:
    """Store a new plan in the name of the person who made it, as part of the run `run_id`. Storing it again changes
    nothing. Raises PlanStale: another plan with this id is stored."""
    open_journal(tables, plan, actor=plan.created_by, run_id=run_id).write_plan(plan)


def note_decision(
    tables: TablesConfig,
    plan: ChangePlan,
    *,
    approved: bool,
    actor: str,
    note: str = "",
    expired: bool = False,
    cluster: Cluster | None = None,
) -> ChangeStatus:
    """Record in the audit that `actor` approved or rejected a plan, or (`expired`) that no answer came in time; return
    the plan's status then. `note` is the reason. A rejected or expired plan is closed: see `plan_life`. With `cluster`,
    a plan is approved only if it could be carried out now, without what its own refusals leave out.

    Raises:
        ChangeRefused: the plan is closed already, was executed or is too old to be approved; `own_approval`: its
            requester may not approve it. PlanStale and others as `recheck`.
        ChangeInProgress: it is being executed, or was not verified.
    """
    step = Step.APPROVE if approved else Step.EXPIRE if expired else Step.REJECT
    journal = open_journal(tables, plan, actor=actor)
    if cluster is not None and approved:
        recheck(cluster, tables, plan, partial=bool(plan.refusals), is_approved=True)
    with _kind_of_plan_named(plan):
        journal.write_plan(plan)
        return Admission(journal=journal, plan=plan).decide(step, actor=actor, why=note).standing


@contextmanager
def _kind_of_plan_named(plan: ChangePlan) -> Iterator[None]:
    """Wrap what may advise to make a new plan, and name the command for the plan's kind in the advice."""
    try:
        yield
    except AcktrailError as error:
        error.hint = error.hint.replace(PLAN_AGAIN, new_plan(plan.kind))
        raise


def recheck(
    cluster: Cluster,
    tables: TablesConfig,
    plan: ChangePlan,
    *,
    partial: bool = False,
    pace: Pace = AT_ONCE,
    max_age_ms: int = DAY_MS,
    is_approved: bool = False,
) -> Sequence[Row]:
    """Return what `execute` would send now, one row a part, without what is done already. `is_approved`: an approval is
    about to be recorded. Raises as `execute`; OutcomeUnknown also when a change may be the work of the plan's own
    request."""
    _check_cluster(cluster, plan)
    rule = ApprovalRule.OPTIONAL if is_approved else approval_rule()
    admission = Admission(journal=open_journal(tables, plan), plan=plan, rule=rule, longest_ms=max_age_ms)
    with _kind_of_plan_named(plan):
        try:
            return kind_of(plan).would_send(_admitted(cluster, admission, partial=partial, pace=pace))
        except PlanStale:
            life = admission.life()
            if life.standing is ChangeStatus.UNKNOWN:  # what moved may be its own work: no approval either
                life.after(Step.APPROVE)
            raise


def store_checked(
    cluster: Cluster, journal: Journal, plan: ChangePlan, *, partial: bool = False, max_age_ms: int = DAY_MS
) -> None:
    """Store a plan that a person brought as a file, unless it would be refused. Raises as `execute`."""
    if not journal.is_planned(plan):
        recheck(cluster, journal.tables, plan, partial=partial, max_age_ms=max_age_ms, is_approved=True)
    with _kind_of_plan_named(plan):
        journal.write_plan(plan)


def execute(
    cluster: Cluster,
    journal: Journal,
    plan: ChangePlan,
    *,
    partial: bool = False,
    pace: Pace = AT_ONCE,
    max_age_ms: int = DAY_MS,
    requests: OpenRequests | None = None,
) -> Execution:
    """Send a stored plan, or as much of it as `pace` says. Verify afterwards.

    Share partitions that an earlier attempt at this plan brought to their targets are left out while they are there. A
    plan that was done is not sent again. If the outcome of an earlier attempt is unknown, it is verified first.
    `requests` counts the requests whose outcome is open.

    Raises:
        ChangeRefused (PlanStale when something changed), GroupNotEmpty, ChangeInProgress, RetryableError,
            ConfigurationError: nothing was sent.
        OutcomeUnknown: a request left and its outcome is not known; or the tables may or may not have recorded a step.
    """
    _check_cluster(cluster, plan)
    admission = Admission(journal=journal, plan=plan, longest_ms=max_age_ms)
    with _kind_of_plan_named(plan):
        if not journal.is_planned(plan):
            raise PlanStale("not_stored", f"plan {plan.plan_id} is not in the audit", hint=PLAN_AGAIN)
        run = _admitted(cluster, admission, partial=partial, pace=pace, requests=requests)
        if admission.life().standing is ChangeStatus.UNKNOWN:  # its request may have arrived since somebody looked
            kind_of(plan).settle(run)
            run = _admitted(cluster, admission, partial=partial, pace=pace, requests=requests)
        return kind_of(plan).execute(run)


def _admitted(
    cluster: Cluster,
    admission: Admission,
    *,
    partial: bool,
    pace: Pace = AT_ONCE,
    requests: OpenRequests | None = None,
) -> ChangeRun[ChangePlan]:
    """Return the run of a plan that may be carried out. Raises as `Admission.check_apply`, which is called again when
    the lease is taken; InputError as `check_pace`."""
    check_pace(admission.plan, pace)
    return ChangeRun(
        cluster=cluster,
        journal=admission.journal,
        plan=admission.plan,
        requests=requests or OpenRequests(admission.plan.plan_id),
        partial=partial,
        pace=pace,
        is_done=admission.check_apply().standing is ChangeStatus.DONE,
        check=admission.check_apply,
    )


def verify(
    cluster: Cluster,
    journal: Journal,
    plan: ChangePlan,
    *,
    wait_s: float = 30.0,
    watch_s: float = 5.0,
    requests: OpenRequests | None = None,
) -> Settled:
    """Find out what became of the newest attempt at a plan and record it; `wait_s` and `watch_s` as in `ChangeRun`.
    Later plans that a late request of this one undid are verified again.

    Raises:
        ChangeInProgress: another living process executes it.
        RetryableError, ConfigurationError: the cluster cannot be asked; nothing is settled.
        OutcomeUnknown: a request was sent, and the cluster or the tables do not answer: it is not settled.
    """
    from acktrail.change.audit.sent_requests import overtaken

    with requests or OpenRequests(plan.plan_id) as sent:
        if not sent.out:  # a request of the plan may have been sent by another process
            sent.out += any(one.standing in OPEN for one in journal.standings({"plan_id": plan.plan_id}))
        run = ChangeRun(cluster=cluster, journal=journal, plan=plan, requests=sent, wait_s=wait_s, watch_s=watch_s)
        found = kind_of(plan).settle(run)
        sent.out = 0
        done = [row for row in found.partitions if Status(row["status"]).is_ok]
        for plan_id in overtaken(journal, plan.plan_id, done):
            other = load_plan(journal.tables, plan_id)
            kind_of(other).settle(replace(run, plan=other, wait_s=0.0, watch_s=0.0, is_overtaken=True))
    return found


def outcome(journal: Journal, plan: ChangePlan, settled: Settled, execution: Execution | None = None) -> ChangeOutcome:
    """Return what became of a plan that was `settled` just now, after `execution`. If the tables are unreachable, it
    has only what was settled and what was left out."""
    groups = {group: status_found(found) for group, found in settled.groups.items()}
    life = PlanLife(plan.plan_id, worst_status(groups.values()))
    partitions = [*settled.partitions, *(execution.refused if execution else ())]
    with suppress(AcktrailError):
        life = Admission(journal=journal, plan=plan).life()
        groups = {one.group_id: one.standing for one in life.groups}
        partitions = plan_status.outcomes(journal, plan, settled.partitions)
    return ChangeOutcome(
        plan_id=plan.plan_id,
        standing=life.standing,
        next=life.next(new_plan(plan.kind)).command,
        execution=execution,
        settled=settled,
        groups=groups,
        partitions=tuple(partitions),
    )


def _check_cluster(cluster: Cluster, plan: ChangePlan) -> None:
    """Raise PlanStale unless the plan is of this cluster and says what it would send. Called before anything of it is
    stored: tables belong to the first cluster that they see."""
    check_derived(plan, f"plan {plan.plan_id}")
    if cluster.admin.cluster_id != plan.cluster_id:
        text = f"the plan is of cluster {plan.cluster_id}, this is cluster {cluster.admin.cluster_id}"
        raise PlanStale("other_cluster", text, hint="use the brokers of the cluster that the plan was made for")
