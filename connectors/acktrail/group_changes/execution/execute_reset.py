"""Executes a reset plan: leases, a comparison with the cluster, one request a group between two audit rows."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from acktrail.broker.changes import ChangeResult, ErrorScope, NewStartOffset, Outcome, raise_unless_done
from acktrail.broker.state.state_topic import StateTopic
from acktrail.errors import AcktrailError, ChangeRefused, OutcomeUnknown, PartlyDone, PlanStale, RetryableError
from acktrail.group_changes.audit.audit_chain import Event
from acktrail.group_changes.audit.journal import Journal
from acktrail.group_changes.cluster import Cluster
from acktrail.group_changes.collection.changes_since_plan import changes_since_plan
from acktrail.group_changes.collection.collect import collect_again, collect_group_again
from acktrail.group_changes.collection.facts import Snapshot
from acktrail.group_changes.execution.attempt import Attempt, OpenRequests, answer_detail, call_outcome, request_detail
from acktrail.group_changes.json_values import to_json_value
from acktrail.group_changes.lifecycle.plan_life import Status
from acktrail.group_changes.planning.notices import Notice, RefusedParts, Severity, refusal_error
from acktrail.group_changes.planning.plan import PartitionPlan, ResetPlan
from acktrail.model.share_partition import state_partition_of

Key = tuple[str, str, int]
"""Group, topic, partition."""
Judge = Callable[[Snapshot, Sequence[PartitionPlan]], Sequence[Notice]]
"""What is wrong with these share partitions of a plan, by a snapshot."""
_UNCLEAR: Final = frozenset(
    {Status.UNKNOWN, Status.NOT_PERSISTED, Status.OVERWRITTEN_AFTER_RESET, Status.EPOCH_WENT_BACK}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """One share partition that was not sent. `rule` forbids it (`not_reached`: another group failed before), `text`
    says why."""

    group_id: str
    topic: str
    topic_id: str | None
    partition: int
    target_offset: int | None
    rule: str
    text: str

    def outcome(self, status: Status) -> dict[str, Any]:
        """Its row of ``reset_executions``, without attempt and time."""
        row = to_json_value(self)
        error = f"{row.pop('rule')}: {row.pop('text')}"
        return {**row, "status": status.value, "error": error, "error_code": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What an attempt did. `results` are the broker's answers on every share partition that was sent; `left_out` those
    that were not, because they are refused or were done before; `refused` gives the reason for the former. `not_sent`:
    groups that were not reached after one before them failed."""

    plan_id: str
    attempt: int
    results: tuple[ChangeResult, ...]
    left_out: tuple[Key, ...]
    not_sent: tuple[str, ...]
    refused: tuple[LeftOut, ...] = ()


def rows_to_send(
    cluster: Cluster, plan: ResetPlan, judge: Judge, *, partial: bool, now_ms: int, done: frozenset[Key] = frozenset()
) -> tuple[PartitionPlan, ...]:
    """The share partitions that `execute_reset` would send now. Raises as it would; nothing is noted."""
    rows = _executable(plan, done, partial=partial)
    return _unchanged(plan, rows, collect_again(cluster, plan, now_ms=now_ms), judge, partial=partial)[0]


def execute_reset(
    cluster: Cluster,
    journal: Journal,
    plan: ResetPlan,
    judge: Judge,
    *,
    partial: bool = False,
    done: frozenset[Key] = frozenset(),
    check: Callable[[], object] | None = None,
    requests: OpenRequests | None = None,
) -> Execution:
    """Send what `plan` holds, unless something changed since it was made, without the share partitions in `done`, which
    an earlier attempt brought to their targets; attempt 0 when that is all of it.

    The lease stays until verification gives it back, except where nothing was sent. Nothing is sent when any share
    partition is refused, unless `partial`; nor to the groups after one that was not done completely. `check` raises
    what forbids the attempt, in the same commit as the lease. Raises as `api.execute`.
    """
    rows = _executable(plan, done, partial=partial)
    if not rows:
        return Execution(plan_id=plan.plan_id, attempt=0, results=(), left_out=tuple(sorted(done)), not_sent=())
    reset = _ResetAttempt(
        cluster=cluster, journal=journal, plan=plan, judge=judge, rows=rows, done=done, partial=partial
    )
    with reset.attempt.take_leases(check, requests):
        reset.look_again()
        return reset.send()


@dataclass(kw_only=True)
class _ResetAttempt:
    """One attempt at the share partitions `rows` of one reset plan; those in `done` are left out."""

    cluster: Cluster
    journal: Journal
    plan: ResetPlan
    judge: Judge
    rows: Sequence[PartitionPlan]
    done: frozenset[Key]
    partial: bool

    def __post_init__(self) -> None:
        self.groups = tuple(dict.fromkeys(row.group_id for row in self.rows))
        self.attempt = Attempt(self.journal, self.plan, self.groups)

    def look_again(self) -> None:
        """Compare with the cluster as it is now, and note an outcome for each share partition that a rule keeps from
        being sent. With `partial`, what changed is left out."""
        self.found = collect_again(self.cluster, self.plan, now_ms=self.journal.now_ms)
        rows, changes = _unchanged(self.plan, self.rows, self.found, self.judge, partial=self.partial)
        groups = tuple(dict.fromkeys(row.group_id for row in rows))
        moved = [[notice.rule, notice.subject, notice.text] for notice in changes]
        self.attempt.give_up([group for group in self.groups if group not in groups], {"moved": moved})
        self.rows, self.groups = rows, groups
        kept, refused = {row.key for row in rows} | self.done, RefusedParts([*self.plan.refusals, *changes])
        left_out = [row for row in self.plan.partitions if row.key not in kept]
        self.left_out = tuple(_not_sent(row, refused.about(row.key)) for row in left_out)
        self._write(self.left_out, Status.LEFT_OUT)
        known = {*groups, *(notice.group_id for notice in changes)}
        unknown: dict[str, list[list[str]]] = defaultdict(list)
        for one in self.left_out:
            if one.group_id not in known:
                subject = f"{one.group_id} {one.topic}:{one.partition}"
                unknown[one.group_id].append([one.rule, subject, one.text])
        for group, why in unknown.items():
            self.journal.note([self.attempt.entry(Event.REFUSED, group, detail={"moved": why})])

    def send(self) -> Execution:
        """One request a group, in order. Raises why the first was not sent, when nothing was sent for any group."""
        results: list[ChangeResult] = []
        refused: dict[str, AcktrailError] = {}
        waiting = list(self.groups)
        timeout_ms = self.cluster.kafka.request_timeout_ms
        while waiting and self.attempt.renew_leases(waiting, timeout_ms):
            answer = self._call(group_id := waiting.pop(0))
            if isinstance(answer, AcktrailError):
                refused[group_id] = answer
            else:
                results += answer
            is_done = not isinstance(answer, AcktrailError) and call_outcome(answer) == "done"
            if not is_done and not self.partial:
                break
        self.attempt.leave(waiting)
        if refused and not results:
            raise next(iter(refused.values()))
        why = dict.fromkeys(waiting, "nothing was sent after a group before it was not done")
        why |= {group: error.message for group, error in refused.items()}
        notices = {g: Notice(severity=Severity.REFUSAL, rule="not_reached", text=text) for g, text in why.items()}
        rows = [row for row in self.rows if row.group_id in why]
        self._write([_not_sent(row, notices[row.group_id]) for row in rows], Status.NOT_ATTEMPTED)
        sent = {(result.group_id, result.topic, result.partition) for result in results}
        return Execution(
            plan_id=self.plan.plan_id,
            attempt=self.attempt.number,
            results=tuple(results),
            left_out=tuple(row.key for row in self.plan.partitions if row.key not in sent),
            not_sent=(*refused, *waiting),
            refused=self.left_out,
        )

    def _call(self, group_id: str) -> Sequence[ChangeResult] | AcktrailError:
        """Send the request of one group, unless something changed: then that error."""
        rows = [row for row in self.rows if row.group_id == group_id]
        offsets = [
            NewStartOffset(topic=row.topic, partition=row.partition, start_offset=row.target_offset or 0)
            for row in rows
        ]
        state_topic_id = self.plan.cluster.state_topic_id
        return self.attempt.call(
            group_id,
            request_detail(rows, state_topic_id, self._state_ends(rows), self.journal.now_ms),
            lambda: self.cluster.admin.alter_offsets(group_id, offsets),
            detail_of=answer_detail,
            parts=[(row.topic, row.partition) for row in rows],
            look=lambda: self._look_once_more(group_id, rows),
            is_partial=any(one.group_id == group_id for one in self.left_out),
        )

    def _look_once_more(self, group_id: str, rows: Sequence[PartitionPlan]) -> None:
        """Kafka takes no condition with the request, and another process may note its change in tables of its own: the
        last thing before the request is to compare again."""
        now = collect_group_again(self.cluster, self.plan, group_id, self.found, now_ms=self.journal.now_ms)
        changes = changes_since_plan(self.plan, rows, now)
        if changes:
            raise _stale(changes, now)

    def _state_ends(self, rows: Sequence[PartitionPlan]) -> Mapping[int, int]:
        """Where the state partitions of `rows` end now: the effect of what is sent comes after."""
        if self.plan.cluster.state_reason is not None:
            return {}
        topic = StateTopic(self.cluster.admin)
        if not topic.is_present:
            return {}
        partitions = {state_partition_of(row.share_partition, topic.partition_count) for row in rows}
        return {partition: log.last_stable_offset or 0 for partition, log in topic.log_offsets(partitions).items()}

    def _write(self, found: Sequence[LeftOut], status: Status) -> None:
        if found:
            at = dt.datetime.fromtimestamp(self.journal.now_ms / 1000, dt.UTC)
            about = {"plan_id": self.plan.plan_id, "attempt": self.attempt.number, "verified_at": at}
            self.journal.write_executions({**about, **one.outcome(status)} for one in found)
            self.journal.note([self.attempt.entry(Event.RECORDED)])


def _executable(plan: ResetPlan, done: frozenset[Key], *, partial: bool) -> tuple[PartitionPlan, ...]:
    """What may be sent of `plan`; nothing when all of it is `done`. Raises when nothing may."""
    rows = tuple(row for row in plan.executable(partial=partial) if row.key not in done)
    if not rows and not done:
        raise refusal_of(plan, partial=partial)
    return rows


def refusal_of(plan: ResetPlan, *, partial: bool) -> AcktrailError:
    """The error for a plan that allows nothing to be sent."""
    if not plan.refusals:
        return ChangeRefused("nothing_to_reset", "the plan has no share partition")
    hint = "" if partial else "nothing is sent while a rule forbids it; --partial sends the rest, if there is any"
    return refusal_error(plan.refusals, plan.groups, hint=hint)


def _unchanged(
    plan: ResetPlan, rows: Sequence[PartitionPlan], now: Snapshot, judge: Judge, *, partial: bool
) -> tuple[tuple[PartitionPlan, ...], tuple[Notice, ...]]:
    """The rows that may be sent, and what changed or is not as `judge` has it. Raises when something did, unless
    `partial` leaves the others."""
    changes = changes_since_plan(plan, rows, now)
    left = _without(rows, changes)
    if left and (partial or not changes):
        changes += tuple(judge(now, left))
        left = _without(left, changes)
    if changes and not (partial and left):
        raise _stale(changes, now)
    return left, changes


def _without(rows: Sequence[PartitionPlan], refusals: Sequence[Notice]) -> tuple[PartitionPlan, ...]:
    refused = RefusedParts(refusals)
    return tuple(row for row in rows if row.key not in refused)


def _stale(changes: Sequence[Notice], now: Snapshot) -> AcktrailError:
    """What to raise for a plan after `changes`."""
    error = refusal_error(changes, now.groups, kind=PlanStale, hint="make a new plan: acktrail reset plan")
    if isinstance(error, PlanStale):
        error.message = f"the plan is stale: {error.message}"
    return error


def _not_sent(row: PartitionPlan, why: Notice | None) -> LeftOut:
    rule, text = ("no_target", "there is no target") if why is None else (why.rule, why.text)
    names = ("group_id", "topic", "topic_id", "partition", "target_offset")
    return LeftOut(**{name: getattr(row, name) for name in names}, rule=rule, text=text)


def raise_unless_ok(plan_id: str, outcomes: Sequence[Mapping[str, Any]], execution: Execution | None) -> None:
    """Pass when every share partition is at its target; `outcomes` are JSON rows, as `plan_status.outcomes` gives them.

    Raises:
        OutcomeUnknown: one is not where the broker's answer would have it, or the outcome is not known.
        PartlyDone: some are at their targets and others were left out, refused or not sent.
        NotAuthorized, UnknownName, GroupNotEmpty, RetryableError ...: all were refused; the first refusal says why.
    """
    known = {(row["group_id"], row["topic"], row["partition"]) for row in outcomes}
    left_out = [] if execution is None else [one.outcome(Status.LEFT_OUT) for one in execution.refused]
    rows = [*outcomes, *(row for row in left_out if (row["group_id"], row["topic"], row["partition"]) not in known)]
    bad = [row for row in rows if not Status(row["status"]).is_ok]
    not_sent = execution.not_sent if execution is not None else ()
    if not bad and not not_sent:
        return
    unclear = [row for row in bad if row["status"] in _UNCLEAR]
    tried = [row for row in bad if row["status"] != Status.LEFT_OUT]
    text = f"{len(bad)} of {len(rows)} share partitions are not at their targets"
    for row in [*unclear, *tried, *bad][:1]:
        what = f"{row['status']} ({row['error'] or ''})".removesuffix(" ()")
        text += f", first {row['topic']}:{row['partition']} of group {row['group_id']!r}: {what}"
    if unclear:
        hint = f"see acktrail reset show {plan_id}; acktrail reset verify {plan_id} looks again"
        raise OutcomeUnknown(text, hint=hint, data={"plan": plan_id})
    if len(bad) < len(rows):
        hint = f"acktrail reset show {plan_id} lists them; the same plan may be applied again: what is done is left out"
        raise PartlyDone(text, hint=hint)
    if not bad:
        raise PartlyDone(f"group {not_sent[0]!r} was not sent", hint="the same plan may be applied again")
    if not tried or any(row["status"] == Status.NOT_ATTEMPTED or row["error_code"] is None for row in tried):
        hint = "nothing was changed there, verification says; the same plan may be applied again"
        raise RetryableError(text, hint=hint)
    _raise_refusal(tried[0])


def _raise_refusal(row: Mapping[str, Any]) -> None:
    """A refusal as the broker gave it."""
    names = ("group_id", "topic", "partition", "topic_id", "error_code", "error", "advice")
    scope = None if row["error_scope"] is None else ErrorScope(row["error_scope"])
    refused = ChangeResult(**{name: row[name] for name in names}, error_scope=scope, outcome=Outcome.REFUSED)
    raise_unless_done([refused], operation="READ")
