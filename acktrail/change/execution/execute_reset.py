"""Executes a reset plan: leases, a comparison with the cluster, one request a group between two audit rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from acktrail.change.audit.audit_chain import Event
from acktrail.change.change_kind import ChangeRun, kind_of
from acktrail.change.collection.collect import collect_again, collect_group_again
from acktrail.change.collection.facts import Snapshot
from acktrail.change.execution.attempt import Attempt, Execution, Key, request_detail
from acktrail.change.lifecycle.plan_life import Status
from acktrail.change.new_plans import judged_again
from acktrail.change.planning.change_plan import PLAN_AGAIN, PartitionPlan
from acktrail.change.planning.notices import Notice, RefusedParts, Severity, refusal_error
from acktrail.change.planning.reset_plan import ResetPlan, changes_since_plan
from acktrail.change.verification.partition_outcome import VerifiedPartition, verified_partition
from acktrail.errors import AcktrailError, ChangeRefused, OutcomeUnknown, PartlyDone, PlanStale, RetryableError
from acktrail.kafka.changes import ChangeResult, ErrorScope, NewStartOffset, Outcome, raise_unless_done
from acktrail.kafka.log_reader import StateTopic
from acktrail.model.share_partition import state_partition_of

_NO_TARGET: Final = Notice(Severity.REFUSAL, "no_target", "there is no target")
_UNCLEAR: Final = frozenset(
    {Status.UNKNOWN, Status.NOT_PERSISTED, Status.OVERWRITTEN_AFTER_RESET, Status.EPOCH_WENT_BACK}
)


class ResetAttempt:
    """The next attempt at a reset, without the share partitions in `done`, which an earlier one brought to their
    targets."""

    def __init__(self, run: ChangeRun[ResetPlan], done: frozenset[Key] = frozenset()) -> None:
        self.cluster, self.journal, self.plan, self.run = run.cluster, run.journal, run.plan, run
        self.done = done
        self.rows = _executable(run.plan, done, partial=run.partial)

    def rows_now(self) -> Sequence[PartitionPlan]:
        """The share partitions that `execute` would send now. Raises as it; nothing is noted."""
        return self._unchanged()[0]

    def execute(self) -> Execution:
        """Send what the plan holds, unless something changed since it was made; attempt 0 when all of it is done.

        The lease stays until verification gives it back, except where nothing was sent. Nothing is sent when any share
        partition is refused, unless `run.partial`; nor to the groups after one that was not done completely. Raises as
        `api.execute`.
        """
        if not self.rows:
            return Execution(plan_id=self.plan.plan_id, attempt=0, results=())
        self.groups = tuple(dict.fromkeys(row.group_id for row in self.rows))
        self.attempt = Attempt(self.journal, self.plan, self.groups)
        with self.attempt.take_leases(self.run.check, self.run.requests):
            self.look_again()
            return self.send()

    def look_again(self) -> None:
        """Compare with the cluster as it is now, and note an outcome for each share partition that a rule keeps from
        being sent. With `run.partial`, what changed is left out."""
        rows, changes = self._unchanged()
        groups = tuple(dict.fromkeys(row.group_id for row in rows))
        self.rows, self.groups = rows, groups
        kept, refused = {row.key for row in rows} | self.done, RefusedParts([*self.plan.refusals, *changes])
        left_out = [(row, refused.about(row.key) or _NO_TARGET) for row in self.plan.partitions if row.key not in kept]
        self.left_out = self._written(left_out, Status.LEFT_OUT)
        moved: dict[str, list[list[str]]] = defaultdict(list)
        for row, why in left_out:
            moved[row.group_id].append([why.rule, f"{row.group_id} {row.name}", why.text])
        self.attempt.give_up({group: {"moved": why} for group, why in moved.items() if group not in groups})

    def _unchanged(self) -> tuple[tuple[PartitionPlan, ...], tuple[Notice, ...]]:
        """The rows that may be sent, and what changed or does not follow from the request any more. Raises when
        something did, unless `run.partial` leaves the others."""
        now = self.found = collect_again(self.cluster, self.plan, now_ms=self.journal.now_ms)
        changes, partial = changes_since_plan(self.plan, self.rows, now), self.run.partial
        left = _without(self.rows, changes)
        if left and (partial or not changes):
            changes += judged_again(self.cluster, self.journal.tables, self.plan, now, left)
            left = _without(left, changes)
        if changes and not (partial and left):
            raise _stale(changes, now)
        return left, changes

    def send(self) -> Execution:
        """One request a group, in order. Raises why the first was not sent, when nothing was sent for any group."""
        timeout_ms = self.cluster.kafka.request_timeout_ms
        sent = self.attempt.send(self.groups, self._call, timeout_ms, goes_on=self.run.partial)
        why = {group: Notice(Severity.REFUSAL, "not_reached", text) for group, text in sent.not_sent.items()}
        rows = [(row, why[row.group_id]) for row in self.rows if row.group_id in why]
        self._written(rows, Status.NOT_ATTEMPTED)
        return replace(sent, refused=self.left_out)

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
            parts=[(row.topic, row.partition) for row in rows],
            look=lambda: self._look_once_more(group_id, rows),
            is_partial=any(one["group_id"] == group_id for one in self.left_out),
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

    def _written(self, rows: Sequence[tuple[PartitionPlan, Notice]], status: Status) -> tuple[VerifiedPartition, ...]:
        """The outcome of each share partition that was not sent, which is noted, with the reason."""
        found = tuple(verified_partition(row, status, f"{why.rule}: {why.text}") for row, why in rows)
        if found:
            about = {"plan_id": self.plan.plan_id, "attempt": self.attempt.number}
            self.journal.write_executions({**row, **about} for row in found)
            self.journal.note([self.attempt.entry(Event.RECORDED)])
        return found


def _executable(plan: ResetPlan, done: frozenset[Key], *, partial: bool) -> tuple[PartitionPlan, ...]:
    """What may be sent of `plan`; nothing when all of it is `done`. Raises when nothing may."""
    rows = tuple(row for row in plan.executable(partial=partial) if row.key not in done)
    if not rows and not done:
        raise _refusal_of(plan, partial=partial)
    return rows


def _refusal_of(plan: ResetPlan, *, partial: bool) -> AcktrailError:
    """The error for a plan that allows nothing to be sent."""
    if not plan.refusals:
        return ChangeRefused("nothing_to_reset", "the plan has no share partition")
    hint = "" if partial else kind_of(plan).if_refused
    return refusal_error(plan.refusals, plan.groups, hint=hint)


def _without(rows: Sequence[PartitionPlan], refusals: Sequence[Notice]) -> tuple[PartitionPlan, ...]:
    refused = RefusedParts(refusals)
    return tuple(row for row in rows if row.key not in refused)


def _stale(changes: Sequence[Notice], now: Snapshot) -> AcktrailError:
    """What to raise for a plan after `changes`."""
    error = refusal_error(changes, now.groups, kind=PlanStale, hint=PLAN_AGAIN)
    if isinstance(error, PlanStale):
        error.message = f"the plan is stale: {error.message}"
    return error


def raise_unless_ok(plan_id: str, outcomes: Sequence[Mapping[str, Any]], execution: Execution | None) -> None:
    """Pass when every share partition is at its target; `outcomes` are JSON rows, as `plan_status.outcomes` gives them.

    Raises:
        OutcomeUnknown: one is not where the broker's answer would have it, or the outcome is not known.
        PartlyDone: some are at their targets and others were left out, refused or not sent.
        NotAuthorized, UnknownName, GroupNotEmpty, RetryableError ...: all were refused; the first refusal says why.
    """
    bad = [row for row in outcomes if not Status(row["status"]).is_ok]
    not_sent = execution.not_sent if execution is not None else ()
    if not bad and not not_sent:
        return
    unclear = [row for row in bad if row["status"] in _UNCLEAR]
    tried = [row for row in bad if row["status"] != Status.LEFT_OUT]
    text = f"{len(bad)} of {len(outcomes)} share partitions are not at their targets"
    for row in [*unclear, *tried, *bad][:1]:
        what = f"{row['status']} ({row['error'] or ''})".removesuffix(" ()")
        text += f", first {row['topic']}:{row['partition']} of group {row['group_id']!r}: {what}"
    if unclear:
        raise OutcomeUnknown(text, data={"plan": plan_id})
    if len(bad) < len(outcomes):
        raise PartlyDone(text)
    if not bad:
        raise PartlyDone(f"group {next(iter(not_sent))!r} was not sent")
    if not tried or any(row["status"] == Status.NOT_ATTEMPTED or row["error_code"] is None for row in tried):
        raise RetryableError(text)
    _raise_refusal(tried[0])


def _raise_refusal(row: Mapping[str, Any]) -> None:
    """A refusal as the broker gave it."""
    names = ("group_id", "topic", "partition", "topic_id", "error_code", "error", "advice")
    scope = None if row["error_scope"] is None else ErrorScope(row["error_scope"])
    refused = ChangeResult(**{name: row[name] for name in names}, error_scope=scope, outcome=Outcome.REFUSED)
    raise_unless_done([refused], operation="READ")
