"""The expansion of a topic as a kind of change: a look, one request, and looks until all brokers list the partitions.

A look before the request gives the fences' low ends. The one after it, as soon as every broker lists the count, is the
moment from which on producers can learn it wherever they ask: what they may still hold back counts from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, Final

from kafka.protocol.admin.topics import CreatePartitionsRequest

from acktrail.backoff import Backoff
from acktrail.change.apply.leased_attempt import Attempt
from acktrail.change.audit.audit_chain import Event
from acktrail.change.audit.plan_life import OPEN, PLAN_AGAIN
from acktrail.change.change_kind import ChangeKind, ChangeRun, Execution, Row, Settled
from acktrail.change.verify.reset_verification import note_found, unsettled
from acktrail.errors import AcktrailError, ConfigurationError, InputError, PlanStale, RetryableError, UnknownName
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.kafka.changes import ChangeResult, Outcome
from acktrail.kafka.client.broker_client import BrokerClient, NoResponse
from acktrail.kafka.client.error_codes import (
    THROTTLING_QUOTA_EXCEEDED,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    error_for,
    error_text,
)
from acktrail.model.acls import Acl, each
from acktrail.text_tables import printable, table
from acktrail.times import instant_text
from acktrail.view.wording import counted
from acktrail_expansion.change.expansion_plan import ExpansionPlan
from acktrail_expansion.observations.ledger_connector import listed_by_brokers, take_look

_SPREAD_S: Final = 30.0
"""How long brokers may take to learn the count."""
_COLUMNS: Final = ("GROUP", "TYPE", "ORDERED", "OPEN", "NOT KNOWN", "OPEN IN PARTITIONS")
_SHOWN: Final = 50


class _Expansion(ChangeKind[ExpansionPlan]):
    plan_type = ExpansionPlan
    command = "acktrail expand plan"
    no_undo = "partitions cannot be taken away: move the readers to a new topic with fewer"

    def rights(self, plan: ExpansionPlan) -> Sequence[Acl]:
        return each("ALTER", "topic", [plan.topic])

    def text(self, plan: ExpansionPlan) -> str:
        rows = _reader_rows(plan)
        more = [f"... {len(rows) - _SHOWN} more; all of them are in --json"] if len(rows) > _SHOWN else []
        readers = table(_COLUMNS, rows[:_SHOWN]) if rows else "no group has a position in the topic"
        about = f"topic {printable(plan.topic)} ({plan.topic_id}): {key_line(plan)}"
        return "\n".join([about, "", readers, *more, "partitions cannot be taken away again"])

    def would_send(self, run: ChangeRun[ExpansionPlan]) -> Sequence[Row]:
        if run.is_done:
            return ()
        plan = run.plan
        _check_count(run.cluster.admin, plan)
        return [{"topic": plan.topic, "partitions": plan.old_count, "new_partitions": plan.new_count}]

    def execute(self, run: ChangeRun[ExpansionPlan]) -> Execution:
        plan, admin = run.plan, run.cluster.admin
        if run.is_done:
            return Execution(plan_id=plan.plan_id, attempt=0, results=())
        _check_count(admin, plan)
        attempt, refused = Attempt(run.journal, plan, [""]), list[AcktrailError]()
        counts = {"topic": plan.topic, "topic_id": plan.topic_id, "from": plan.old_count, "to": plan.new_count}

        def look() -> None:
            take_look(admin, run.journal.tables, topics=[plan.topic])
            _check_count(admin, plan)

        def call(group_id: str) -> Sequence[ChangeResult] | AcktrailError:
            request = {"request": "CreatePartitions", **counts}
            return attempt.call(group_id, request, partial(_send, admin, plan, refused), check=look)

        with attempt.take_leases(run.check, run.requests):
            done = attempt.send([""], call, run.cluster.kafka.request_timeout_ms, goes_on=False)
            if refused:
                raise refused[0]
        return done

    def settle(self, run: ChangeRun[ExpansionPlan]) -> Settled:
        """`done` once every broker lists the count; `unknown` where none does: the request may still arrive."""
        found = unsettled(run)
        outcomes: dict[str, tuple[str, dict[str, Any]]] = {
            one.group_id: (_outcome(run), {}) for one in found if one.standing in OPEN
        }
        return _with_wait(run, note_found(run, found, (), outcomes))


EXPANSION: Final[ChangeKind[Any]] = _Expansion()


def _send(admin: ShareGroupAdmin, plan: ExpansionPlan, refused: list[AcktrailError]) -> Sequence[ChangeResult]:
    """Ask for the partitions, once. Raises why that is `refused`, which is kept."""
    try:
        why = create_partitions(client_of(admin), plan.topic, plan.new_count)
    except AcktrailError as error:
        refused.append(error)
        raise
    outcome = Outcome.UNKNOWN if why else Outcome.DONE
    return (ChangeResult(group_id="", topic=plan.topic, topic_id=plan.topic_id, outcome=outcome, error=why),)


def _outcome(run: ChangeRun[ExpansionPlan]) -> str:
    """Whether the partitions came. Raises RetryableError: only some of the brokers list them."""
    plan, backoff = run.plan, Backoff(_SPREAD_S)
    while not all(found := _listing(run.cluster.admin, plan)) and backoff.wait():
        pass
    if all(found) and "straddles" not in _look(run):
        return "done"
    if any(found):
        raise RetryableError(
            f"the topic {plan.topic!r} has {plan.new_count} partitions, and not every broker lists them: producers may "
            "still get the old count from such a broker, and no fence can be determined",
            hint=f"acktrail change verify {plan.plan_id} when all brokers answer",
            data={"topic": plan.topic, "partitions": plan.new_count, "plan": plan.plan_id},
        )
    return "unknown"


def _with_wait(run: ChangeRun[ExpansionPlan], settled: Settled) -> Settled:
    """With what producers may still do. Once they must know the count, one more look is taken: where fences end."""
    plan = run.plan
    seen = run.journal.audit({"plan_id": plan.plan_id, "event": Event.VERIFIED.value, "outcome": "done"})
    if not seen:
        return settled
    until_ms = int(seen[0].audited_at.timestamp() * 1000) + 1 + plan.settle_ms
    counts, at = f"expanded from {plan.old_count} to {plan.new_count} partitions", instant_text(until_ms)
    if run.journal.now_ms >= until_ms and _look(run) == {"consistent"}:
        return replace(settled, note=f"{counts}; producers know the count since {at}")
    note = (
        f"{counts}; producers may use the old count until {at}, provided that metadata.max.age.ms, max.block.ms, "
        "delivery.timeout.ms and twice the request.timeout.ms of each are less than "
        f"{plan.settle_ms / 1000:g} s together (ACKTRAIL_SETTLE); then: acktrail expand check {printable(plan.topic)}"
    )
    return replace(settled, note=note, open_until_ms=until_ms)


def _look(run: ChangeRun[ExpansionPlan]) -> set[str]:
    """What one more look is worth."""
    look = take_look(run.cluster.admin, run.journal.tables, topics=[run.plan.topic])
    return {*look.rows["partition_observations"]["consistency"].to_pylist()}


def _check_count(admin: ShareGroupAdmin, plan: ExpansionPlan) -> None:
    """Raise PlanStale where a broker lists another count than the old one; and as `_listing`."""
    if any(_listing(admin, plan)):
        text = f"the topic {plan.topic!r} has {counted(plan.new_count, 'partition')} already, not by this plan"
        raise PlanStale("count_changed", text, hint="nothing is left to do")


def _listing(admin: ShareGroupAdmin, plan: ExpansionPlan) -> list[bool]:
    """Whether each broker lists the plan's new count; not while it does not answer. Raises PlanStale: it is neither the
    topic nor the count that the plan is about. UnknownName: the topic is gone."""
    found = [listed.get(plan.topic) for listed in listed_by_brokers(admin, [plan.topic])]
    known = {each for each in found if each is not None and each[0] is not None}
    if not known and any(found):
        raise UnknownName("topic", plan.topic)
    if any(topic_id != plan.topic_id for topic_id, _ in known):
        text = f"the topic {plan.topic!r} was deleted and created again since the plan was made"
        raise PlanStale("topic_recreated", text, hint=PLAN_AGAIN)
    odd = [count for _, count in known if count not in (plan.old_count, plan.new_count)]
    if odd:
        text = f"the topic {plan.topic!r} had {counted(plan.old_count, 'partition')} and has {odd[0]}"
        raise PlanStale("count_changed", text, hint=PLAN_AGAIN)
    return [each is not None and each[1] == plan.new_count for each in found]


def key_line(plan: ExpansionPlan) -> str:
    """What the expansion does to keys."""
    counts = f"{plan.old_count} to {plan.new_count} partitions; key mapping {plan.key_mapping}"
    if plan.moving is None:
        return f"{counts}: it is not known which keys move"
    where = "and between those that are there already" if plan.moves_between_existing else "alone"
    which = "every old one" if plan.step == 1 else f"old ones that are equal to it modulo {plan.step}"
    share = f"{plan.moving} of all keys move ({float(Fraction(plan.moving)):.1%})"
    return f"{counts}: {share}, to new partitions {where}; a partition gets keys of {which}"


def _reader_rows(plan: ExpansionPlan) -> list[tuple[object, ...]]:
    """A row for each group that reads the topic."""
    rows: list[tuple[object, ...]] = []
    for group in plan.readers:
        rest = group.open_records - sum(count for _, count in group.most_open)
        where = [f"{partition}: {count}" for partition, count in group.most_open] + [f"others: {rest}"] * bool(rest)
        ordered = "yes" if group.is_ordered else "no"
        known = (group.group_id, group.group_type, ordered, group.open_records, group.unknown)
        rows.append((*known, ", ".join(where) or "-"))
    return rows


_TRY_LATER: Final = frozenset({41, 60, THROTTLING_QUOTA_EXCEEDED})
"""NOT_CONTROLLER, REASSIGNMENT_IN_PROGRESS, and a quota."""
_WRONG: Final = frozenset({37, 44})
"""INVALID_PARTITIONS, POLICY_VIOLATION."""
_FEW_BROKERS: Final = 38
"""INVALID_REPLICATION_FACTOR."""
_OTHERS: Final = frozenset({UNKNOWN_TOPIC_OR_PARTITION, 17, TOPIC_AUTHORIZATION_FAILED, 35, 39, 42})
"""After every code that is not here it may have been done (``ReplicationControlManager.createPartitions``)."""


def create_partitions(client: BrokerClient, topic: str, partition_count: int) -> str | None:
    """Ask once that `topic` has `partition_count` partitions in all; the controller chooses their brokers. None: they
    are made; else why that is not known. The topic is named, not its id: see afterwards which one it was.

    Raises InputError, NotAuthorized, ConfigurationError, RetryableError: nothing was changed.
    """
    own = CreatePartitionsRequest
    row = own.CreatePartitionsTopic(name=topic, count=partition_count, assignments=None)
    timeout_ms = int(client.request_timeout_s * 500)  # an answer comes before this client gives up
    reply = client.send_once(own(topics=[row], timeout_ms=timeout_ms, validate_only=False))
    if isinstance(reply, NoResponse):
        error = client.explain(reply)
        if not reply.may_have_arrived:
            raise error
        return error.message
    (found,) = reply.results
    if found.error_code in _TRY_LATER | _WRONG | _OTHERS | {_FEW_BROKERS}:
        raise _refusal(topic, found.error_code, found.error_message)
    return error_text(found.error_code, found.error_message)


def _refusal(topic: str, code: int, message: str | None) -> AcktrailError:
    text, data = f"topic {topic!r} was not expanded: {error_text(code, message)}", {"topic": topic, "error_code": code}
    if code in _TRY_LATER:
        return RetryableError(text, hint="nothing was changed: run it again", data=data)
    if code == _FEW_BROKERS:
        return ConfigurationError(
            text, hint="the cluster needs as many live brokers as the topic has replicas", data=data
        )
    if code in _WRONG:
        return InputError(text, hint="nothing was changed: make another plan", data=data)
    return error_for(code, message, operation="ALTER", kind="topic", name=topic)
