"""Carries out the plan of an expansion: looks, asks for partitions once, looks again, and waits for producers.

Each step can be done again: what the cluster has decides what is left to do, and the looks in the tables say when
producers know the count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from acktrail.broker.admin import client_of
from acktrail.broker.client.broker_client import Backoff
from acktrail.broker.client.error_codes import Outcome
from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError, NotEverywhere, OutcomeUnknown, PlanStale, RetryableError, UnknownName
from acktrail.group_changes.audit.audit_chain import Event, audit_entry
from acktrail.group_changes.audit.journal import Journal
from acktrail.group_changes.lifecycle.plan_status import Admission
from acktrail.group_changes.planning.notices import refusal_error
from acktrail.model.expansion.expansion_texts import counted
from acktrail.model.expansion.partition_ledger import ExpansionStatus, FenceGap, PartitionExpansion
from acktrail.times import new_run_id, now_ms
from acktrail.topic_expansion.expansion_plan import ExpansionPlan
from acktrail.topic_expansion.ledger_reading import stored_expansion
from acktrail.topic_expansion.stored_look import take_look

if TYPE_CHECKING:
    from acktrail.broker.admin import ShareGroupAdmin
    from acktrail.broker.ledger.partition_listing import ListedTopic

_AGAIN: Final = "nothing was sent; make a new plan: acktrail expand plan"
_SPREAD_S: Final = 30.0
"""How long brokers may take to learn the count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceWidth:
    """Between which offsets the last record from before the expansion lies. `width` is how many offsets are in
    question; None: a fence is not known, or not yet."""

    partition: int
    low: int | None
    high: int | None
    width: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpansionResult:
    """The state of an expansion. `was_there`: the topic had the count before this call. `settles_at_ms`: from then on
    every producer knows the count; None: no look shows yet that every broker does. `event_id` names the expansion in
    the tables; None: no look shows it yet."""

    plan_id: str
    topic: str
    old_count: int
    new_count: int
    was_there: bool
    is_settled: bool
    settles_at_ms: int | None
    event_id: str | None
    fences: tuple[FenceWidth, ...]


def is_expanded(admin: ShareGroupAdmin, plan: ExpansionPlan) -> bool:
    """Whether the topic has the plan's count already. Raises PlanStale: it is neither the topic nor the count that the
    plan is about. UnknownName: the topic is gone. ChangeRefused: the plan was refused."""
    if plan.refusals:
        raise refusal_error(plan.refusals, (), operation="ALTER", hint=_AGAIN)
    if admin.cluster_id != plan.cluster_id:
        text = f"the plan is for cluster {plan.cluster_id}, this is {admin.cluster_id}"
        raise PlanStale("other_cluster", text, hint="name the brokers that the plan was made for")
    return _checked_count(plan, _listed(admin, plan.topic)) == plan.new_count


def apply_expansion(admin: ShareGroupAdmin, journal: Journal, plan: ExpansionPlan) -> ExpansionResult:
    """Add the partitions, between two looks, unless the topic has them; its state then.

    The look before gives the fences' low ends. The one after it, as soon as every broker lists the count, is the moment
    from which on producers can learn it wherever they ask: what they may still hold back counts from there.

    Raises:
        PlanStale, ChangeRefused, NotAuthorized, InputError, RetryableError, ConfigurationError: nothing was changed.
        OutcomeUnknown: the request left, and the partitions do not show; apply the plan again: it looks first.
        NotEverywhere: the partitions are there, and not every broker lists them; apply the plan again.
    """
    was_there = is_expanded(admin, plan)
    if not was_there:
        Admission(journal=journal, plan=plan).check_apply()
        take_look(admin, journal.tables, topics=[plan.topic])
        _create(admin, journal, plan)
    found = stored_expansion(journal.tables, plan)
    if found is None or found.settles_at_ms is None:
        found = _look_everywhere(admin, journal.tables, plan)
    return expansion_result(plan, found, was_there=was_there)


def _look_everywhere(admin: ShareGroupAdmin, tables: TablesConfig, plan: ExpansionPlan) -> PartitionExpansion | None:
    """The expansion by a look at a time when every broker lists the count; None: none has the old count. Raises
    NotEverywhere."""
    lists_everywhere = _wait_for_count(admin, plan, everywhere=True)
    take_look(admin, tables, topics=[plan.topic])
    found = stored_expansion(tables, plan)
    if not lists_everywhere or (found is not None and found.settles_at_ms is None):
        raise NotEverywhere(plan.topic, plan.new_count, plan_id=plan.plan_id)
    return found


def finish_expansion(admin: ShareGroupAdmin, tables: TablesConfig, plan: ExpansionPlan) -> ExpansionResult:
    """Look once more where producers must know the count by now and no look since shows it; the state then.
    Changes nothing in the cluster. Raises as `is_expanded` and `take_look`, and NotEverywhere."""
    was_there = is_expanded(admin, plan)
    found = stored_expansion(tables, plan)
    if found is None:
        return expansion_result(plan, found, was_there=was_there)
    if found.settles_at_ms is None:
        found = _look_everywhere(admin, tables, plan)
    elif now_ms() >= found.settles_at_ms and _has_open_fence(found):
        take_look(admin, tables, topics=[plan.topic])
        found = stored_expansion(tables, plan)
    return expansion_result(plan, found, was_there=was_there)


def _has_open_fence(found: PartitionExpansion) -> bool:
    """Whether a look at this time may give a high fence that is not known yet."""
    return found.status is ExpansionStatus.SETTLING or FenceGap.NOT_SEEN_AFTER in found.gaps


def expansion_result(plan: ExpansionPlan, found: PartitionExpansion | None, *, was_there: bool) -> ExpansionResult:
    """The state of the expansion that `plan` is about, by the looks."""
    fences = () if found is None else found.fences
    return ExpansionResult(
        plan_id=plan.plan_id,
        topic=plan.topic,
        old_count=plan.old_count,
        new_count=plan.new_count,
        was_there=was_there,
        is_settled=found is not None and found.status is ExpansionStatus.SETTLED,
        settles_at_ms=None if found is None else found.settles_at_ms,
        event_id=None if found is None else found.event_id,
        fences=tuple(
            FenceWidth(
                partition=number,
                low=fence.low,
                high=fence.high,
                width=None if fence.low is None or fence.high is None else fence.high - fence.low,
            )
            for number, fence in enumerate(fences)
        ),
    )


def _create(admin: ShareGroupAdmin, journal: Journal, plan: ExpansionPlan) -> None:
    """Ask whether it may be done, then for the partitions, once, between two rows of the audit."""
    from acktrail.broker.ledger.partition_creation import create_partitions

    attempt = max((row.attempt for row in journal.audit({"plan_id": plan.plan_id})), default=0) + 1

    def note(event: Event, outcome: str | None = None, detail: Mapping[str, Any] | None = None) -> None:
        journal.note([audit_entry(plan, attempt, event, outcome=outcome, detail=detail)])

    checked = create_partitions(client_of(admin), plan.topic, plan.new_count, validate_only=True)
    if checked.outcome is not Outcome.DONE:
        note(Event.REFUSED, detail={"error": checked.error})
        raise checked.exception()
    for node_id in admin.broker_ids():
        _check_not_begun(admin, plan, node_id)
    counts = {"topic": plan.topic, "topic_id": plan.topic_id, "from": plan.old_count, "to": plan.new_count}
    note(Event.BEFORE_CALL, detail={"request": "CreatePartitions", **counts})
    try:
        answer = create_partitions(client_of(admin), plan.topic, plan.new_count)
    except AcktrailError as error:
        note(Event.AFTER_CALL, "not_sent", {"error": error.message})
        raise
    note(Event.AFTER_CALL, answer.outcome.value, {"error": answer.error})
    if answer.outcome is Outcome.REFUSED:
        raise answer.exception()
    _verify(admin, plan, note, answer.error)


def _verify(admin: ShareGroupAdmin, plan: ExpansionPlan, note: Callable[..., None], error: str | None) -> None:
    """See by the brokers' lists what became of the request, before anything else is done."""
    why = error or "the brokers do not list the partitions"
    try:
        _wait_for_count(admin, plan, everywhere=False)
    except AcktrailError as failure:
        if isinstance(failure, OutcomeUnknown):
            note(Event.VERIFIED, "unknown", {"error": why})
        hint = f"apply plan {plan.plan_id} again: it looks first, and sends nothing when they are there"
        text = f"partitions of {plan.topic!r} were asked for, and it is not known whether they came: {why}"
        raise OutcomeUnknown(text, hint=hint, data={"plan": plan.plan_id, "topic": plan.topic}) from failure
    note(Event.VERIFIED, "done", {"partitions": plan.new_count})


def _wait_for_count(admin: ShareGroupAdmin, plan: ExpansionPlan, *, everywhere: bool) -> bool:
    """Wait until a broker, or every one (`everywhere`), lists the plan's count; whether every one does. Raises
    OutcomeUnknown: none does in half a minute. PlanStale: the topic is another one."""
    backoff = Backoff(_SPREAD_S)
    while True:
        counts = [_lists_new_count(admin, plan, node_id) for node_id in admin.broker_ids()]
        if all(counts) or (any(counts) and not everywhere):
            return all(counts)
        if not backoff.wait():
            if any(counts):
                return False
            raise OutcomeUnknown(f"no broker lists {plan.new_count} partitions of {plan.topic!r}")


def _check_not_begun(admin: ShareGroupAdmin, plan: ExpansionPlan, node_id: int) -> None:
    """Pass when a broker lists the old count, or does not answer: no other count lies between it and the new one.
    Raises PlanStale, UnknownName."""
    if _lists_new_count(admin, plan, node_id):
        text = f"the topic {plan.topic!r} has got {plan.new_count} partitions meanwhile"
        raise PlanStale("count_changed", text, hint="nothing was sent; apply the plan again: it looks first")


def _lists_new_count(admin: ShareGroupAdmin, plan: ExpansionPlan, node_id: int) -> bool:
    """Whether one broker lists the plan's count; not while it does not answer."""
    try:
        return _checked_count(plan, _listed(admin, plan.topic, node_id=node_id)) == plan.new_count
    except RetryableError:
        return False


def _listed(admin: ShareGroupAdmin, topic: str, *, node_id: int | None = None) -> ListedTopic | None:
    from acktrail.broker.ledger.partition_listing import list_partitions

    return next(
        (each for each in list_partitions(client_of(admin), [topic], node_id=node_id) if each.name == topic), None
    )


def _checked_count(plan: ExpansionPlan, listed: ListedTopic | None) -> int:
    """How many partitions the topic has: the plan's old count or its new one. Raises as `is_expanded`."""
    if listed is None or listed.error_code:
        raise UnknownName("topic", plan.topic)
    if listed.topic_id != plan.topic_id:
        text = f"the topic {plan.topic!r} was deleted and created again since the plan was made"
        raise PlanStale("topic_recreated", text, hint=_AGAIN)
    if listed.partition_count not in (plan.old_count, plan.new_count):
        text = f"the topic {plan.topic!r} had {counted(plan.old_count, 'partition')} and has {listed.partition_count}"
        raise PlanStale("count_changed", text, hint=_AGAIN)
    return listed.partition_count


def open_expansion_journal(tables: TablesConfig, plan: ExpansionPlan, *, actor: str) -> Journal:
    """The audit of the plan's cluster, for one run; `actor` is who acts."""
    return Journal(tables, cluster_id=plan.cluster_id, run_id=new_run_id(), actor=actor)
