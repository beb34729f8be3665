"""Executes a reset plan: leases, a comparison with the cluster, one request a group between two audit rows."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from acktrail.broker.changes import ChangeResult, NewStartOffset
from acktrail.broker.state.state_topic import StateTopic
from acktrail.errors import AcktrailError, ChangeRefused, PlanStale
from acktrail.group_changes.audit.audit_chain import Event
from acktrail.group_changes.audit.journal import Journal
from acktrail.group_changes.cluster import Cluster
from acktrail.group_changes.collection.changes_since_plan import changes_since_plan
from acktrail.group_changes.collection.collect import Collected
from acktrail.group_changes.collection.collect_again import collect_again, collect_group_again
from acktrail.group_changes.collection.facts import Snapshot
from acktrail.group_changes.execution.attempt import Attempt, OpenRequests, call_outcome
from acktrail.group_changes.execution.sent_request import answer_detail, request_detail
from acktrail.group_changes.json_values import to_json_value
from acktrail.group_changes.lifecycle.change_status import Status
from acktrail.group_changes.planning.notices import Notice, RefusedParts, refusal_error, refusals_among
from acktrail.group_changes.planning.plan import PartitionPlan, ResetPlan
from acktrail.model.share_partition import state_partition_of

Key = tuple[str, str, int]
"""Group, topic, partition."""


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
        return {**row, "status": status.value, "error": error}


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
    cluster: Cluster, plan: ResetPlan, *, partial: bool, now_ms: int, done: frozenset[Key] = frozenset()
) -> tuple[PartitionPlan, ...]:
    """The share partitions that `execute_reset` would send now. Raises as it would; nothing is noted."""
    rows = _executable(plan, done, partial=partial)
    return _unchanged(plan, rows, collect_again(cluster, plan, now_ms=now_ms).snapshot, partial=partial)[0]


def execute_reset(
    cluster: Cluster,
    journal: Journal,
    plan: ResetPlan,
    *,
    partial: bool = False,
    done: frozenset[Key] = frozenset(),
    check: Callable[[], object] | None = None,
    requests: OpenRequests | None = None,
) -> Execution:
    """Send what `plan` holds, unless something changed since it was made. `done` are share partitions that an earlier
    attempt brought to their targets: they are left out.

    Nothing is done (attempt 0) when an earlier attempt did all of it. The lease stays until verification gives it back,
    except where nothing was sent. Nothing is sent when any share partition is refused, unless `partial`; nor to the
    groups after one that was not done completely. `check` raises what forbids the attempt, in the same commit as the
    lease.

    Raises:
        ChangeRefused: a refusal of the plan. PlanStale: something changed. GroupNotEmpty: a member joined.
        ChangeInProgress: another process changes the group.
        RetryableError, ConfigurationError: the cluster does not answer; nothing was sent.
        OutcomeUnknown: a request left, and then anything went wrong: verify.
    """
    rows = _executable(plan, done, partial=partial)
    if not rows:
        return Execution(plan_id=plan.plan_id, attempt=0, results=(), left_out=tuple(sorted(done)), not_sent=())
    reset = _ResetAttempt(cluster, journal, plan, rows, done, partial=partial)
    with reset.attempt.take_leases(check, requests):
        reset.look_again()
        return reset.send()


class _ResetAttempt:
    """One attempt at one reset plan."""

    def __init__(
        self,
        cluster: Cluster,
        journal: Journal,
        plan: ResetPlan,
        rows: tuple[PartitionPlan, ...],
        done: frozenset[Key],
        *,
        partial: bool,
    ) -> None:
        self._cluster = cluster
        self._journal = journal
        self._plan = plan
        self._rows = rows
        self._done = done
        self._partial = partial
        self._groups = tuple(dict.fromkeys(row.group_id for row in rows))
        self._left_out: tuple[LeftOut, ...] = ()
        self._found: Collected | None = None
        self.attempt = Attempt(journal, plan, self._groups)

    def look_again(self) -> None:
        """Compare with the cluster as it is now, and note an outcome for each share partition that a rule keeps from
        being sent. With `partial`, what changed is left out."""
        self._found = collect_again(self._cluster, self._plan, now_ms=self._journal.now_ms)
        rows, changes = _unchanged(self._plan, self._rows, self._found.snapshot, partial=self._partial)
        groups = tuple(dict.fromkeys(row.group_id for row in rows))
        moved = [[notice.rule, notice.subject, notice.text] for notice in changes]
        self.attempt.give_up([group for group in self._groups if group not in groups], {"moved": moved})
        self._rows, self._groups = rows, groups
        self._left_out = _left_out(self._plan, {row.key for row in rows} | self._done, changes)
        self._write(self._left_out, Status.LEFT_OUT)
        known = {*groups, *(notice.group_id for notice in changes)}
        unknown: dict[str, list[list[str]]] = defaultdict(list)
        for one in self._left_out:
            if one.group_id not in known:
                subject = f"{one.group_id} {one.topic}:{one.partition}"
                unknown[one.group_id].append([one.rule, subject, one.text])
        for group, why in unknown.items():
            self._journal.note([self.attempt.entry(Event.REFUSED, group, detail={"moved": why})])

    def send(self) -> Execution:
        """One request a group, in order, each compared with the cluster once more right before it is sent.

        Raises:
            PlanStale, GroupNotEmpty, RetryableError, ConfigurationError: nothing was sent for any group.
        """
        results: list[ChangeResult] = []
        refused: dict[str, AcktrailError] = {}
        waiting = list(self._groups)
        timeout_ms = self._cluster.kafka.request_timeout_ms
        while waiting and self.attempt.renew_leases(waiting, timeout_ms):
            answer = self._call(group_id := waiting.pop(0))
            if isinstance(answer, AcktrailError):
                refused[group_id] = answer
            else:
                results += answer
            is_done = not isinstance(answer, AcktrailError) and call_outcome(answer) == "done"
            if not is_done and not self._partial:
                break
        self.attempt.leave(waiting)
        if refused and not results:
            raise next(iter(refused.values()))
        why = {group: error.message for group, error in refused.items()}
        why |= dict.fromkeys(waiting, "nothing was sent after a group before it was not done")
        rows = [row for row in self._rows if row.group_id in why]
        self._write([_not_sent(row, "not_reached", why[row.group_id]) for row in rows], Status.NOT_ATTEMPTED)
        sent = {(result.group_id, result.topic, result.partition) for result in results}
        return Execution(
            plan_id=self._plan.plan_id,
            attempt=self.attempt.number,
            results=tuple(results),
            left_out=tuple(row.key for row in self._plan.partitions if row.key not in sent),
            not_sent=(*refused, *waiting),
            refused=self._left_out,
        )

    def _call(self, group_id: str) -> Sequence[ChangeResult] | AcktrailError:
        """Send the request of one group, unless something changed: then that error."""
        rows = [row for row in self._rows if row.group_id == group_id]
        offsets = [
            NewStartOffset(topic=row.topic, partition=row.partition, start_offset=row.target_offset or 0)
            for row in rows
        ]
        state_topic_id = self._plan.cluster.state_topic_id
        return self.attempt.call(
            group_id,
            request_detail(rows, state_topic_id, self._state_ends(rows), self._journal.now_ms),
            lambda: self._cluster.admin.alter_offsets(group_id, offsets),
            detail_of=answer_detail,
            parts=[(row.topic, row.partition) for row in rows],
            look=lambda: self._look_once_more(group_id, rows),
            is_partial=any(one.group_id == group_id for one in self._left_out),
        )

    def _look_once_more(self, group_id: str, rows: Sequence[PartitionPlan]) -> None:
        """Kafka takes no condition with the request, and another process may note its change in tables of its own: the
        last thing before the request is to compare again."""
        assert self._found is not None
        now = collect_group_again(self._cluster, self._plan, group_id, self._found, now_ms=self._journal.now_ms)
        changes = changes_since_plan(self._plan, rows, now)
        if changes:
            raise _stale(changes, now)

    def _state_ends(self, rows: Sequence[PartitionPlan]) -> Mapping[int, int]:
        """Where the state partitions of `rows` end now: the effect of what is sent comes after."""
        if self._plan.cluster.state_reason is not None:
            return {}
        topic = StateTopic(self._cluster.admin)
        if not topic.is_present:
            return {}
        partitions = {state_partition_of(row.share_partition, topic.partition_count) for row in rows}
        return {partition: log.last_stable_offset or 0 for partition, log in topic.log_offsets(partitions).items()}

    def _write(self, found: Sequence[LeftOut], status: Status) -> None:
        if found:
            at = dt.datetime.fromtimestamp(self._journal.now_ms / 1000, dt.UTC)
            about = {"plan_id": self._plan.plan_id, "attempt": self.attempt.number, "verified_at": at}
            self._journal.write_executions({**about, **one.outcome(status)} for one in found)
            self._journal.note([self.attempt.entry(Event.RECORDED)])


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
    plan: ResetPlan, rows: Sequence[PartitionPlan], now: Snapshot, *, partial: bool
) -> tuple[tuple[PartitionPlan, ...], tuple[Notice, ...]]:
    """The rows that may be sent, and what changed. Raises when something did, unless `partial` leaves the others."""
    changes = changes_since_plan(plan, rows, now)
    refused = RefusedParts(changes)
    left = tuple(row for row in rows if row.key not in refused)
    if changes and not (partial and left):
        raise _stale(changes, now)
    return left, changes


def _stale(changes: Sequence[Notice], now: Snapshot) -> AcktrailError:
    """What to raise for a plan after `changes`."""
    error = refusal_error(changes, now.groups, kind=PlanStale, hint="make a new plan: acktrail reset plan")
    if isinstance(error, PlanStale):
        error.message = f"the plan is stale: {error.message}"
    return error


def _left_out(plan: ResetPlan, kept: Collection[Key], moved: Sequence[Notice]) -> tuple[LeftOut, ...]:
    """Every share partition of `plan` but those `kept`, with the first refusal about it, its topic, its group or the
    whole plan: of those that the plan has, then of those in `moved`."""
    refusals: dict[tuple[str | None, str | None, int | None], Notice] = {}
    for notice in refusals_among([*plan.refusals, *moved]):
        refusals.setdefault((notice.group_id, notice.topic, notice.partition), notice)
    found = []
    for row in plan.partitions:
        if row.key not in kept:
            places = (row.key, (None, row.topic, None), (row.group_id, None, None), (None, None, None))
            why = next((refusals[place] for place in places if place in refusals), None)
            rule, text = ("no_target", "there is no target") if why is None else (why.rule, why.text)
            found.append(_not_sent(row, rule, text))
    return tuple(found)


def _not_sent(row: PartitionPlan, rule: str, text: str) -> LeftOut:
    return LeftOut(
        group_id=row.group_id,
        topic=row.topic,
        topic_id=row.topic_id,
        partition=row.partition,
        target_offset=row.target_offset,
        rule=rule,
        text=text,
    )
