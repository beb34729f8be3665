"""Carries out the plan of an expansion: looks, asks for partitions once, looks again, and waits for producers.

Each step can be done again: what the cluster has decides what is left to do, and the looks in the tables say when
producers know the count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from acktrail.broker.admin import client_of
from acktrail.broker.client.broker_client import Backoff
from acktrail.broker.client.error_codes import Outcome
from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError, OutcomeUnknown, PlanStale, RetryableError, UnknownName
from acktrail.group_changes.audit.audit_chain import Event, audit_entry
from acktrail.group_changes.audit.journal import Journal
from acktrail.group_changes.lifecycle.plan_status import Admission
from acktrail.times import new_run_id, now_ms
from acktrail_expansion.change.expansion_plan import ExpansionPlan
from acktrail_expansion.change.settling import settling
from acktrail_expansion.law.partition_ledger import expansion_id
from acktrail_expansion.looks.stored_look import take_look
from acktrail_expansion.words import counted

if TYPE_CHECKING:
    from acktrail.broker.admin import ShareGroupAdmin

_AGAIN: Final = "nothing was sent; make a new plan: acktrail expand plan"
_SPREAD_S: Final = 30.0
"""How long brokers may take to learn the count."""


class NotEverywhere(RetryableError):
    """Partitions were added, and not every broker lists them yet: producers may still get the old count from one."""

    def __init__(self, topic: str, partition_count: int, *, plan_id: str) -> None:
        super().__init__(
            f"the topic {topic!r} has {partition_count} partitions, and not every broker lists them: producers may "
            "still get the old count from one, and no fence settles",
            hint=f"apply plan {plan_id} again when all brokers answer: nothing is sent twice",
            data={"topic": topic, "partitions": partition_count, "plan": plan_id},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpansionResult:
    """The state of an expansion. `was_there`: the topic had the count before this call; `event_id` is its name in the
    tables. The others as `Settling`, which is known by then."""

    plan_id: str
    topic: str
    old_count: int
    new_count: int
    event_id: str
    was_there: bool
    has_old: bool
    settles_at_ms: int
    is_settled: bool


def is_expanded(admin: ShareGroupAdmin, plan: ExpansionPlan) -> bool:
    """Whether the topic has the plan's count already. Raises PlanStale: it is neither the topic nor the count that the
    plan is about. UnknownName: the topic is gone."""
    if admin.cluster_id != plan.cluster_id:
        text = f"the plan is for cluster {plan.cluster_id}, this is {admin.cluster_id}"
        raise PlanStale("other_cluster", text, hint="name the brokers that the plan was made for")
    return _lists_new_count(admin, plan)


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
        Admission(journal=journal, plan=plan, command="acktrail expand approve FILE").check_apply()
        take_look(admin, journal.tables, topics=[plan.topic])
        _create(admin, journal, plan)
    return replace(finish_expansion(admin, journal.tables, plan), was_there=was_there)


def finish_expansion(admin: ShareGroupAdmin, tables: TablesConfig, plan: ExpansionPlan) -> ExpansionResult:
    """The state of an expansion that was made, by one more look where it can show more: since when every broker lists
    the count, or, once producers must know it, where the fences end. Changes nothing in the cluster. Raises as
    `is_expanded` and `take_look`, and NotEverywhere."""
    is_expanded(admin, plan)
    found = settling(tables, plan)
    if found.settles_at_ms is None:
        lists_everywhere = _wait_for_count(admin, plan, everywhere=True)
        take_look(admin, tables, topics=[plan.topic])
        found = settling(tables, plan)
        if not lists_everywhere or found.settles_at_ms is None:
            raise NotEverywhere(plan.topic, plan.new_count, plan_id=plan.plan_id)
    if not found.is_settled and now_ms() >= found.settles_at_ms:
        take_look(admin, tables, topics=[plan.topic])
        found = settling(tables, plan)
    old, new = plan.old_count, plan.new_count
    return ExpansionResult(
        plan_id=plan.plan_id,
        topic=plan.topic,
        old_count=old,
        new_count=new,
        event_id=expansion_id(plan.cluster_id, plan.topic_id, old, new),
        was_there=True,
        **asdict(found),
    )


def _create(admin: ShareGroupAdmin, journal: Journal, plan: ExpansionPlan) -> None:
    """Ask whether it may be done, then for the partitions, once, between two rows of the audit."""
    from acktrail_expansion.change.partition_creation import create_partitions

    attempt = max((row.attempt for row in journal.audit({"plan_id": plan.plan_id})), default=0) + 1

    def note(event: Event, outcome: str | None = None, detail: Mapping[str, Any] | None = None) -> None:
        journal.note([audit_entry(plan, attempt, event, outcome=outcome, detail=detail)])

    checked = create_partitions(client_of(admin), plan.topic, plan.new_count, validate_only=True)
    if checked.outcome is not Outcome.DONE:
        note(Event.REFUSED, detail={"error": checked.error})
        raise checked.exception()
    if any(_answers_new_count(admin, plan, node_id) for node_id in admin.broker_ids()):
        text = f"the topic {plan.topic!r} has got {plan.new_count} partitions meanwhile"
        raise PlanStale("count_changed", text, hint="nothing was sent; apply the plan again: it looks first")
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
        counts = [_answers_new_count(admin, plan, node_id) for node_id in admin.broker_ids()]
        if all(counts) or (any(counts) and not everywhere):
            return all(counts)
        if not backoff.wait():
            if any(counts):
                return False
            raise OutcomeUnknown(f"no broker lists {plan.new_count} partitions of {plan.topic!r}")


def _answers_new_count(admin: ShareGroupAdmin, plan: ExpansionPlan, node_id: int) -> bool:
    """Whether one broker lists the plan's count; not while it does not answer."""
    try:
        return _lists_new_count(admin, plan, node_id)
    except RetryableError:
        return False


def _lists_new_count(admin: ShareGroupAdmin, plan: ExpansionPlan, node_id: int | None = None) -> bool:
    """Whether a broker (None: any) lists the plan's new count, not its old one. Raises as `is_expanded`."""
    from acktrail_expansion.looks.partition_listing import list_partitions

    listed = next(iter(list_partitions(client_of(admin), [plan.topic], node_id=node_id)), None)
    if listed is None or listed.error_code:
        raise UnknownName("topic", plan.topic)
    if listed.topic_id != plan.topic_id:
        text = f"the topic {plan.topic!r} was deleted and created again since the plan was made"
        raise PlanStale("topic_recreated", text, hint=_AGAIN)
    if listed.partition_count not in (plan.old_count, plan.new_count):
        text = f"the topic {plan.topic!r} had {counted(plan.old_count, 'partition')} and has {listed.partition_count}"
        raise PlanStale("count_changed", text, hint=_AGAIN)
    return listed.partition_count == plan.new_count


def open_expansion_journal(tables: TablesConfig, plan: ExpansionPlan, *, actor: str) -> Journal:
    """The audit of the plan's cluster, for one run; `actor` is who acts."""
    return Journal(tables, cluster_id=plan.cluster_id, run_id=new_run_id(), actor=actor)
