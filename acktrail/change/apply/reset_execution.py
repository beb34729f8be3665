"""Execution of a reset plan: leases, a comparison with the cluster, one request a group between two audit rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from acktrail.change.apply.leased_attempt import Attempt
from acktrail.change.audit.audit_chain import Event
from acktrail.change.audit.plan_life import PLAN_AGAIN, Status
from acktrail.change.audit.sent_requests import Key, request_detail
from acktrail.change.change_kind import ChangeRun, Execution, kind_of
from acktrail.change.plan.change_plan import PartitionPlan
from acktrail.change.plan.notices import Notice, RefusedParts, Severity, refusal_error
from acktrail.change.plan.reset_plan import ResetPlan, changes_since_plan
from acktrail.change.plan.snapshot_facts import Snapshot
from acktrail.change.plan.snapshot_reader import collect_again, collect_group_again, described_offsets
from acktrail.change.reset_planner import judged_again, unanswered_now
from acktrail.change.undo import check_not_undone
from acktrail.change.verify.partition_outcome import VerifiedPartition, verified_partition
from acktrail.errors import AcktrailError, ChangeRefused, OutcomeUnknown, PartlyDone, PlanStale, RetryableError
from acktrail.kafka.changes import ChangeResult, ErrorScope, NewStartOffset, Outcome, raise_unless_done
from acktrail.kafka.log_reader import StateTopic
from acktrail.model.share_partition import state_partition_of

_NO_TARGET: Final = Notice(Severity.REFUSAL, "no_target", "there is no target")
_UNCLEAR: Final = frozenset(
    {Status.UNKNOWN, Status.NOT_PERSISTED, Status.OVERWRITTEN_AFTER_RESET, Status.EPOCH_WENT_BACK}
)


class ResetAttempt:
    """The next attempt at a reset, without the share partitions that an earlier one brought to their targets. Raises as
    `_done_before`."""

    def __init__(self, run: ChangeRun[ResetPlan]) -> None:
        self.cluster, self.journal, self.plan, self.run = run.cluster, run.journal, run.plan, run
        self.done = _done_before(run)
        self.rows = _executable(run.plan, self.done, partial=run.partial)

    def rows_to_send(self) -> Sequence[PartitionPlan]:
        """Return the share partitions that `execute` would send now. Records nothing. Raises as `execute`."""
        return self._unchanged()[0]

    def execute(self) -> Execution:
        """Send what the plan holds, unless something changed since it was made; attempt 0 when all of it is done.

        The leases stay until verification releases them, except where nothing was sent. Nothing is sent when any share
        partition is refused, unless `run.partial`; nor to the groups after one that was not done completely. Raises as
        `api.execute`.
        """
        if not self.rows:
            return Execution(plan_id=self.plan.plan_id, attempt=0, results=())
        self.groups = tuple(dict.fromkeys(row.group_id for row in self.rows))
        self.attempt = Attempt(self.journal, self.plan, self.groups)
        with self.attempt.take_leases(self.run.check, self.run.requests):
            self.compare()
            return self.send()

    def compare(self) -> None:
        """Compare the cluster with the plan, and record an outcome for each share partition that a rule keeps from
        being sent. With `run.partial`, what changed is left out."""
        self.rows, changes = self._unchanged()
        self.groups = tuple(dict.fromkeys(row.group_id for row in self.rows))
        kept, refused = {row.key for row in self.rows} | self.done, RefusedParts([*self.plan.refusals, *changes])
        left_out = [(row, refused.about(row.key) or _NO_TARGET) for row in self.plan.partitions if row.key not in kept]
        self.left_out = self._record_unsent(left_out, Status.LEFT_OUT)
        moved: dict[str, list[list[str]]] = defaultdict(list)
        for row, why in left_out:
            moved[row.group_id].append([why.rule, f"{row.group_id} {row.name}", why.text])
        self.attempt.give_up({group: {"moved": why} for group, why in moved.items() if group not in self.groups})

    def _unchanged(self) -> tuple[tuple[PartitionPlan, ...], tuple[Notice, ...]]:
        """Return the rows that may be sent, and what changed or does not follow from the request any more. Raises if
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
        """Send one request a group, in order. If nothing was sent for any group, raise why the first was not sent."""
        timeout_ms = self.cluster.kafka.request_timeout_ms
        sent = self.attempt.send(self.groups, self._call, timeout_ms, goes_on=self.run.partial)
        why = {group: Notice(Severity.REFUSAL, "not_reached", text) for group, text in sent.not_sent.items()}
        rows = [(row, why[row.group_id]) for row in self.rows if row.group_id in why]
        self._record_unsent(rows, Status.NOT_ATTEMPTED)
        return replace(sent, refused=self.left_out)

    def _call(self, group_id: str) -> Sequence[ChangeResult] | AcktrailError:
        """Send the request of one group, or return the error that says what changed."""
        rows = [row for row in self.rows if row.group_id == group_id]
        offsets = [
            NewStartOffset(topic=row.topic, partition=row.partition, start_offset=row.target_offset or 0)
            for row in rows
        ]
        parts = [(row.topic, row.partition, row.target_offset) for row in rows]
        state_topic_id = self.plan.cluster.state_topic_id
        return self.attempt.call(
            group_id,
            request_detail(parts, state_topic_id, self._state_ends(rows), self.journal.now_ms),
            lambda: self.cluster.admin.alter_offsets(group_id, offsets),
            parts=[(row.topic, row.partition) for row in rows],
            check=lambda: self._compare_once_more(group_id, rows),
            is_partial=any(one["group_id"] == group_id for one in self.left_out),
        )

    def _compare_once_more(self, group_id: str, rows: Sequence[PartitionPlan]) -> None:
        """Compare again as the last thing before the request: Kafka takes no condition with it, and another process may
        record its change in other tables."""
        now = collect_group_again(self.cluster, self.plan, group_id, self.found, now_ms=self.journal.now_ms)
        changes = changes_since_plan(self.plan, rows, now)
        if changes:
            raise _stale(changes, now)

    def _state_ends(self, rows: Sequence[PartitionPlan]) -> Mapping[int, int]:
        """Return where the state partitions of `rows` end now: the effect of the request comes after."""
        if self.plan.cluster.state_reason is not None:
            return {}
        topic = StateTopic(self.cluster.admin)
        if not topic.is_present:
            return {}
        partitions = {state_partition_of(row.share_partition, topic.partition_count) for row in rows}
        return {partition: log.last_stable_offset or 0 for partition, log in topic.log_offsets(partitions).items()}

    def _record_unsent(
        self, rows: Sequence[tuple[PartitionPlan, Notice]], status: Status
    ) -> tuple[VerifiedPartition, ...]:
        """Record and return the outcome of each share partition that was not sent, with the reason."""
        found = tuple(verified_partition(row, status, f"{why.rule}: {why.text}") for row, why in rows)
        if found:
            about = {"plan_id": self.plan.plan_id, "attempt": self.attempt.number}
            self.journal.write_executions({**row, **about} for row in found)
            self.journal.note([self.attempt.entry(Event.RECORDED)])
        return found


def _executable(plan: ResetPlan, done: frozenset[Key], *, partial: bool) -> tuple[PartitionPlan, ...]:
    """Return what may be sent of `plan`; nothing when all of it is `done`. Raises when nothing may."""
    rows = tuple(row for row in plan.executable(partial=partial) if row.key not in done)
    if not rows and not done:
        if not plan.refusals:
            raise ChangeRefused("nothing_to_reset", "the plan contains no share partition")
        hint = "" if partial else kind_of(plan).if_refused
        raise refusal_error(plan.refusals, plan.groups, hint=hint)
    return rows


def _without(rows: Sequence[PartitionPlan], refusals: Sequence[Notice]) -> tuple[PartitionPlan, ...]:
    refused = RefusedParts(refusals)
    return tuple(row for row in rows if row.key not in refused)


def _stale(changes: Sequence[Notice], now: Snapshot) -> AcktrailError:
    """Return the error for a plan after `changes`."""
    error = refusal_error(changes, now.groups, kind=PlanStale, hint=PLAN_AGAIN)
    if isinstance(error, PlanStale):
        error.message = f"the plan is stale: {error.message}"
    return error


def raise_unless_ok(plan_id: str, outcomes: Sequence[Mapping[str, Any]], execution: Execution | None) -> None:
    """Raise unless every share partition is at its target; `outcomes` are JSON rows as from `plan_status.outcomes`.

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
    """Raise a refusal as the broker gave it."""
    names = ("group_id", "topic", "partition", "topic_id", "error_code", "error", "advice")
    scope = None if row["error_scope"] is None else ErrorScope(row["error_scope"])
    refused = ChangeResult(**{name: row[name] for name in names}, error_scope=scope, outcome=Outcome.REFUSED)
    raise_unless_done([refused], operation="READ")


def _done_before(run: ChangeRun[ResetPlan]) -> frozenset[Key]:
    """Return what an earlier attempt brought to its target, of a plan that may be carried out. Raises ChangeRefused:
    not everything is there any more, or another plan took it back. PlanStale: the request of another plan may still
    arrive."""
    journal, plan = run.journal, run.plan
    check_not_undone(journal.tables, plan)
    if any(notice not in plan.notices for notice in unanswered_now(journal.tables, plan)):
        text = "another plan was sent to the same share partitions after this plan, and its outcome is unknown"
        raise PlanStale("unanswered_request", text, hint=PLAN_AGAIN)
    done = _still_done(run)
    if run.is_done and any(row.key not in done for row in plan.executable(partial=True)):
        text = f"plan {plan.plan_id} was applied, but some share partitions are no longer at their target"
        raise ChangeRefused("plan_carried_out", text, hint=PLAN_AGAIN)
    return done


def _still_done(run: ChangeRun[ResetPlan]) -> frozenset[Key]:
    """Return the share partitions that an earlier attempt brought to their targets, and that are there still."""
    rows = {
        (row["group_id"], row["topic"], row["partition"]): row["target_offset"]
        for row in run.journal.executions(run.plan.plan_id)
        if Status(row["status"]).is_ok
    }
    now = described_offsets(run.cluster.admin, {group_id for group_id, _, _ in rows}) if rows else {}
    offsets = {(group, topic, part): now[group].get((topic, part)) for group, topic, part in rows}
    return frozenset(key for key, at in offsets.items() if at and at.start_offset == rows[key])
