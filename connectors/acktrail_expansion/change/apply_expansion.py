"""Carries out the plan of an expansion: looks, asks for partitions once, looks again, and waits for producers.

Each step can be done again: what the cluster has, and what the audit has of the plan, decide what is left to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from acktrail.change.audit.audit_chain import Event, audit_entry
from acktrail.change.audit.journal import Journal
from acktrail.change.lifecycle.plan_status import Admission
from acktrail.errors import AcktrailError, OutcomeUnknown, PlanStale, RetryableError, UnknownName
from acktrail.kafka.admin import client_of
from acktrail.kafka.client.broker_client import Backoff
from acktrail_expansion.change.expansion_plan import ExpansionPlan
from acktrail_expansion.looks.stored_look import take_look
from acktrail_expansion.words import counted

if TYPE_CHECKING:
    from acktrail.kafka.admin import ShareGroupAdmin

_AGAIN: Final = "make a new plan: acktrail expand plan"
_SPREAD_S: Final = 30.0
"""How long brokers may take to learn the count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    """From `settles_at_ms` on every producer knows the count, ms since the epoch. `is_settled`: a look since then has
    the ends of all logs."""

    settles_at_ms: int
    is_settled: bool


def apply_expansion(admin: ShareGroupAdmin, journal: Journal, plan: ExpansionPlan) -> Settling:
    """Add the partitions, between two looks, unless the topic has them; its state then. Once producers must know
    the count, one more look is taken: where the fences end.

    The look before gives the fences' low ends. The one after it, as soon as every broker lists the count, is the moment
    from which on producers can learn it wherever they ask: what they may still hold back counts from there.

    Raises:
        PlanStale, ChangeRefused, NotAuthorized, InputError, ConfigurationError: nothing was changed.
        OutcomeUnknown: the request left, and the partitions do not show; apply the plan again: it looks first.
        RetryableError: nothing was changed, or the partitions are there and not every broker lists them; apply the plan
            again.
    """
    if not is_expanded(admin, plan):
        Admission(journal=journal, plan=plan, command="acktrail expand approve FILE").check_apply()
        take_look(admin, journal.tables, topics=[plan.topic])
        if not is_expanded(admin, plan):  # no one was quicker
            _create(admin, journal, plan)
    settles_at_ms = _listed_everywhere_ms(admin, journal, plan) + plan.settle_ms
    is_settled = journal.now_ms >= settles_at_ms and _look(admin, journal, plan) == {"consistent"}
    return Settling(settles_at_ms=settles_at_ms, is_settled=is_settled)


def is_expanded(admin: ShareGroupAdmin, plan: ExpansionPlan) -> bool:
    """Whether a broker lists the plan's new count. Raises PlanStale: it is neither the topic nor the count that the
    plan is about. UnknownName: the topic is gone."""
    if admin.cluster_id != plan.cluster_id:
        text = f"the plan is for cluster {plan.cluster_id}, this is {admin.cluster_id}"
        raise PlanStale("other_cluster", text, hint="name the brokers that the plan was made for")
    return any(_listing(admin, plan))


def _create(admin: ShareGroupAdmin, journal: Journal, plan: ExpansionPlan) -> None:
    """Ask for the partitions, once, between two rows of the audit."""
    from acktrail_expansion.change.partition_creation import create_partitions

    counts = {"topic": plan.topic, "topic_id": plan.topic_id, "from": plan.old_count, "to": plan.new_count}
    _note(journal, plan, Event.BEFORE_CALL, None, {"request": "CreatePartitions", **counts})
    try:
        why = create_partitions(client_of(admin), plan.topic, plan.new_count)
    except AcktrailError as error:
        _note(journal, plan, Event.AFTER_CALL, "refused", {"error": error.message})
        raise
    _note(journal, plan, Event.AFTER_CALL, "unknown" if why else "done", {"error": why, **counts})
    if not any(_wait_for_count(admin, plan)):
        why = why or "the brokers do not list the partitions"
        _note(journal, plan, Event.VERIFIED, "unknown", {"error": why})
        hint = f"apply plan {plan.plan_id} again: it looks first, and sends nothing when they are there"
        text = f"partitions of {plan.topic!r} were asked for, and it is not known whether they came: {why}"
        raise OutcomeUnknown(text, hint=hint, data={"plan": plan.plan_id, "topic": plan.topic})


def _listed_everywhere_ms(admin: ShareGroupAdmin, journal: Journal, plan: ExpansionPlan) -> int:
    """When a look had shown that every broker lists the count, which is noted once, ms since the epoch."""
    own = {"plan_id": plan.plan_id, "event": Event.VERIFIED.value, "outcome": "done"}
    while not (seen := journal.audit(own)):
        if not all(_wait_for_count(admin, plan)) or "straddles" in _look(admin, journal, plan):
            raise RetryableError(
                f"the topic {plan.topic!r} has {plan.new_count} partitions, and not every broker lists them: producers "
                "may still get the old count from one, and no fence settles",
                hint=f"apply plan {plan.plan_id} again when all brokers answer: nothing is sent twice",
                data={"topic": plan.topic, "partitions": plan.new_count, "plan": plan.plan_id},
            )
        _note(journal, plan, Event.VERIFIED, "done", {"partitions": plan.new_count})
    return int(seen[0].audited_at.timestamp() * 1000) + 1


def _look(admin: ShareGroupAdmin, journal: Journal, plan: ExpansionPlan) -> set[str]:
    """What one more look is worth."""
    rows = take_look(admin, journal.tables, topics=[plan.topic]).rows["partition_observations"]
    return {*rows["consistency"].to_pylist()}


def _wait_for_count(admin: ShareGroupAdmin, plan: ExpansionPlan) -> list[bool]:
    """Wait until every broker lists the plan's count, for half a minute; which of them do then. Raises as
    `is_expanded`."""
    backoff = Backoff(_SPREAD_S)
    while not all(found := _listing(admin, plan)) and backoff.wait():
        pass
    return found


def _listing(admin: ShareGroupAdmin, plan: ExpansionPlan) -> list[bool]:
    """Whether each broker lists the plan's new count; not while it does not answer. Raises as `is_expanded`."""
    from acktrail_expansion.looks.partition_listing import listed_by_brokers

    found = [listed.get(plan.topic) for listed in listed_by_brokers(admin, [plan.topic])]
    known = {each for each in found if each is not None and each[0] is not None}
    if not known and any(found):
        raise UnknownName("topic", plan.topic)
    if any(topic_id != plan.topic_id for topic_id, _ in known):
        text = f"the topic {plan.topic!r} was deleted and created again since the plan was made"
        raise PlanStale("topic_recreated", text, hint=_AGAIN)
    odd = [count for _, count in known if count not in (plan.old_count, plan.new_count)]
    if odd:
        text = f"the topic {plan.topic!r} had {counted(plan.old_count, 'partition')} and has {odd[0]}"
        raise PlanStale("count_changed", text, hint=_AGAIN)
    return [each is not None and each[1] == plan.new_count for each in found]


def _note(journal: Journal, plan: ExpansionPlan, event: Event, outcome: str | None, detail: dict[str, Any]) -> None:
    """One row of the audit. A request begins an attempt."""
    before = (row.attempt for row in journal.audit({"plan_id": plan.plan_id}))
    attempt = max(before, default=0) + (event is Event.BEFORE_CALL)
    journal.note([audit_entry(plan, attempt, event, outcome=outcome, detail=detail)])
