"""The steps of a reset that look at a stored plan's life, and those that note or change something: see `steps`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acktrail.config import ApprovalRule, KafkaConfig, TablesConfig, approval_rule
from acktrail.errors import ChangeRefused, PlanStale
from acktrail.group_changes.execution.departure import Departure
from acktrail.group_changes.json_values import from_plain, to_plain
from acktrail.group_changes.lifecycle.approvers import account
from acktrail.group_changes.planning.plan import PartitionPlan, ResetPlan, plan_hash
from acktrail.group_changes.planning.plan_file import DAY_MS, check_age
from acktrail.times import new_run_id, now_ms

if TYPE_CHECKING:
    from acktrail.group_changes.audit.journal import Journal
    from acktrail.group_changes.lifecycle.admission import Admission

__all__ = [
    "approval_needed",
    "execute",
    "note_decision",
    "outcomes",
    "raise_unless_ok",
    "store_plan",
    "store_value",
    "value_of",
    "verify",
    "would_send",
]

Json = dict[str, Any]


def value_of(plan: Json) -> ResetPlan:
    """A plan that came from another step, checked as a file is.

    Raises:
        PlanStale, MalformedFile, InputError: it was altered.
    """
    value = from_plain(ResetPlan, plan, "plan")
    if plan_hash(value) != value.plan_hash:
        raise PlanStale("edited_plan", "the plan was changed after it was made", hint="make a new plan")
    return value


def store_plan(tables: TablesConfig, plan: Json) -> str:
    """Store a plan; its id. Storing it again changes nothing.

    Raises:
        PlanStale: another plan with this id is stored.
        ForeignCluster, OutcomeUnknown, ConfigurationError, RetryableError: as the tables say.
    """
    return store_value(tables, value_of(plan))


def store_value(tables: TablesConfig, value: ResetPlan) -> str:
    """`store_plan` for a plan that is a value already."""
    from acktrail.group_changes.planning.plan_rows import partition_rows, plan_row

    _journal(tables, value).write_plan(plan_row(value), partition_rows(value))
    return value.plan_id


def would_send(
    kafka: KafkaConfig,
    plan: Json,
    *,
    partial: bool = False,
    tables: TablesConfig | None = None,
    max_age_ms: int = DAY_MS,
    is_approved: bool = False,
) -> tuple[PartitionPlan, ...]:
    """The share partitions that would be sent now. `execute` looks again itself. With `tables` also whether the plan's
    life allows it; what is done already is not among them then. `is_approved`: an approval is about to be noted.

    Raises:
        ChangeRefused, PlanStale, GroupNotEmpty: nothing would be; as `execute`.
    """
    from acktrail.group_changes.execution.sendable import to_send

    value, done = value_of(plan), frozenset[tuple[str, str, int]]()
    check_age(value, now_ms=now_ms(), longest_ms=max_age_ms)
    if tables is not None:
        journal = _journal(tables, value)
        rule = ApprovalRule.OPTIONAL if is_approved else approval_rule()
        done = _done_before(kafka, tables, journal, value, _admission(tables, journal, value, max_age_ms, rule))
    return to_send(kafka, value, partial=partial, now_ms=now_ms(), done=done)


def approval_needed(plan: Json) -> str:
    """Who may approve a plan, in a sentence for them; empty where no approval is asked for.

    Raises:
        ConfigurationError: the environment names no such rule.
    """
    rule, value = approval_rule(), value_of(plan)
    if rule is not ApprovalRule.SECOND_PERSON:
        return ""
    names = dict.fromkeys(name for name in (value.created_by, value.request.requested_by) if name.strip())
    return f"A second person must approve this: {', '.join(names)} asked for it and may not."


def note_decision(
    tables: TablesConfig, plan: Json, *, approved: bool, actor: str, note: str = "", expired: bool = False
) -> str:
    """Note in the audit who approved or rejected a plan (or, `expired`, that nobody answered in time); `actor` says it
    for people, `note` why. How the plan stands then. A plan that is rejected or expired is closed: see `life`.

    Raises:
        ChangeRefused: the plan is closed already, was carried out, is too old to be approved; `own_approval`: its
            requester may not approve it.
        ChangeInProgress: it is being carried out, or nobody verified what became of it.
        ForeignCluster, OutcomeUnknown, ConfigurationError, RetryableError: as the tables say.
    """
    from acktrail.group_changes.lifecycle.plan_life import Step

    value = value_of(plan)
    step = Step.APPROVE if approved else Step.EXPIRE if expired else Step.REJECT
    store_value(tables, value)
    journal = _journal(tables, value, actor)
    return _admission(tables, journal, value, DAY_MS).decide(step, actor=actor, why=note).standing.value


def execute(
    kafka: KafkaConfig,
    tables: TablesConfig,
    plan: Json,
    *,
    partial: bool = False,
    max_age_ms: int = DAY_MS,
    actor: str | None = None,
    departure: Departure | None = None,
) -> Json:
    """Carry out a plan: `attempt`, `results` by share partition, `left_out`, `refused`, `not_sent`. Sends; verify
    afterwards.

    Share partitions that an earlier attempt at this plan brought to their targets, where they still are, are left out.
    A plan that was done is not sent again. `departure` learns when a request leaves.

    Raises:
        ChangeRefused (PlanStale when something moved), GroupNotEmpty, ChangeInProgress: nothing was sent.
        RetryableError, ConfigurationError: nothing was sent.
        OutcomeUnknown: a request left and its outcome is not known; or the tables may or may not have noted a step.
    """
    from acktrail.group_changes.execution.execute import execute as carry_out

    value = value_of(plan)
    journal = _journal(tables, value, actor)
    admission = _admission(tables, journal, value, max_age_ms)
    done = _done_before(kafka, tables, journal, value, admission)
    store_value(tables, value)
    check, sending = admission.check_apply, departure
    return _json(carry_out(kafka, journal, value, partial=partial, done=done, check=check, departure=sending))


def verify(
    kafka: KafkaConfig,
    tables: TablesConfig,
    plan: Json,
    *,
    wait_s: float = 30.0,
    watch_s: float = 5.0,
    actor: str | None = None,
    departure: Departure | None = None,
) -> list[Json]:
    """Settle the newest attempt at a plan: what became of every share partition that was sent; see `reset.verify`.

    Raises:
        ChangeInProgress: another living process is at it.
        OutcomeUnknown: a request was sent, and the cluster or the tables cannot be asked: it is not settled.
        RetryableError, ConfigurationError: they cannot be asked, and nothing was open.
    """
    from acktrail.group_changes.verification.verify import verify as settle

    value = value_of(plan)
    journal = _journal(tables, value, actor)
    with departure or Departure(value.plan_id) as sent:
        if not sent.has_left and _is_open(journal, value.plan_id):
            sent.left()
        found = settle(kafka, journal, value, wait_s=wait_s, watch_s=watch_s)
        sent.settled()
    return [to_plain(one) for one in found]


def outcomes(tables: TablesConfig, plan: Json, found: list[Json] | None = None) -> list[Json]:
    """What became of every share partition of a plan, by the tables: one row each, as `verify` gives them, the newest
    of all attempts; nothing, when nothing was ever attempted. `found` is what `verify` just gave.

    Raises:
        ConfigurationError, RetryableError: the tables cannot be read.
    """
    from acktrail.group_changes.lifecycle.plan_progress import outcomes_of

    newest = {(row["group_id"], row["topic"], row["partition"]): row for row in found or ()}
    rows = outcomes_of(tables, value_of(plan))
    return [newest.get((row["group_id"], row["topic"], row["partition"]), row) for row in rows]


def raise_unless_ok(plan: Json, verified: list[Json], execution: Json | None) -> None:
    """Pass when everything that was to be sent is where it should be.

    Raises:
        OutcomeUnknown, PartlyDone, GroupNotEmpty, NotAuthorized, UnknownName ...: what became of it.
    """
    from acktrail.group_changes.execution.raise_outcome import raise_unless_ok as check

    check(plan["plan_id"], verified, execution)


def _done_before(
    kafka: KafkaConfig, tables: TablesConfig, journal: Journal, value: ResetPlan, admission: Admission
) -> frozenset[tuple[str, str, int]]:
    """What an earlier attempt brought to its target, of a plan that may be carried out. Raises as `execute`."""
    from acktrail.group_changes.lifecycle.change_status import Standing
    from acktrail.group_changes.lifecycle.plan_progress import done_before
    from acktrail.group_changes.lifecycle.undo import check_not_undone

    is_done = admission.check_apply().standing is Standing.DONE
    check_not_undone(tables, value)
    _check_cluster(kafka, value)
    done = done_before(kafka, journal, value)
    if is_done and any(row.key not in done for row in value.executable(partial=True)):
        raise ChangeRefused(
            "plan_carried_out",
            f"plan {value.plan_id} was carried out, and not everything is at its target any more",
            hint="nothing was sent; make a new plan: acktrail reset plan",
        )
    return done


def _check_cluster(kafka: KafkaConfig, value: ResetPlan) -> None:
    """Refuse a plan of another cluster before anything of it is stored: tables belong to the first cluster they see."""
    from acktrail.broker.admin import ShareGroupAdmin
    from acktrail.group_changes.collection.drift import other_cluster

    with ShareGroupAdmin(kafka) as admin:
        found = other_cluster(value, admin.cluster_id)
    if found is not None:
        raise PlanStale(found.rule, found.text, hint="name the brokers that the plan was made for")


def _is_open(journal: Journal, plan_id: str) -> bool:
    """Whether a request of the plan was sent, or may have been, and nobody verified what became of it."""
    from acktrail.group_changes.lifecycle.change_status import Standing

    found = journal.standings({"plan_id": plan_id})
    return any(one.standing in (Standing.UNKNOWN, Standing.UNVERIFIED) for one in found)


def _admission(
    tables: TablesConfig, journal: Journal, value: ResetPlan, longest_ms: int, rule: ApprovalRule | None = None
) -> Admission:
    from acktrail.group_changes.lifecycle.admission import Admission
    from acktrail.group_changes.lifecycle.undo import read_ledger

    return Admission(
        journal,
        value,
        rule=approval_rule() if rule is None else rule,
        longest_ms=longest_ms,
        ledger=lambda: read_ledger(tables, [value.plan_id]),
    )


def _journal(tables: TablesConfig, value: ResetPlan, actor: str | None = None) -> Journal:
    from acktrail.group_changes.audit.journal import Journal

    run_id = new_run_id(now_ms())
    return Journal(tables, cluster_id=value.cluster.cluster_id, run_id=run_id, actor=actor or account())


def _json(value: Any) -> Json:
    found: Json = to_plain(value)
    return found
