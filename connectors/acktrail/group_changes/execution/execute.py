"""Carries out a plan: lease, a last look, one request a group, an audit row before and after each."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.broker.changes import ChangeResult, NewStartOffset, Outcome
from acktrail.broker.state.state_topic import StateTopic
from acktrail.config import KafkaConfig
from acktrail.errors import AcktrailError
from acktrail.group_changes.audit.audit_chain import AuditEntry, Event
from acktrail.group_changes.audit.journal import Journal, here
from acktrail.group_changes.collection.collect import Found
from acktrail.group_changes.collection.drift import what_moved
from acktrail.group_changes.collection.second_look import look_again, look_once_more
from acktrail.group_changes.execution.attempt import after_call, before_call, call_outcome
from acktrail.group_changes.execution.departure import Departure
from acktrail.group_changes.execution.left_out import LeftOut, execution_row, left_out, not_reached
from acktrail.group_changes.execution.sendable import refusal_of, stale, unmoved
from acktrail.group_changes.planning.notices import Notice
from acktrail.group_changes.planning.plan import PartitionPlan, ResetPlan, share_partition_of
from acktrail.group_changes.verification.partition_outcome import Status
from acktrail.model.share_partition import state_partition_of

__all__ = ["Execution", "execute"]

_LEASE_MS: Final = 120_000
_LEASE_MS_A_GROUP: Final = 2_000


_Key = tuple[str, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What an attempt did. `results` are the broker's words on every share partition that was sent; `left_out` those
    that were not, because they are refused or were done before; `refused` says of the former why."""

    plan_id: str
    attempt: int
    results: tuple[ChangeResult, ...]
    left_out: tuple[_Key, ...]
    not_sent: tuple[str, ...]
    """Groups that were not reached after one before them failed."""
    refused: tuple[LeftOut, ...] = ()


def execute(
    kafka: KafkaConfig,
    journal: Journal,
    plan: ResetPlan,
    *,
    partial: bool = False,
    done: frozenset[_Key] = frozenset(),
    check: Callable[[], object] | None = None,
    departure: Departure | None = None,
) -> Execution:
    """Send what `plan` says, unless something moved since it was made. `done` are share partitions that an earlier
    attempt brought to their targets: they are left out.

    Nothing is done (attempt 0) when an earlier attempt did all of it. The lease stays until `verify` gives it back,
    except where nothing was sent. Nothing is sent when any share partition is refused, unless `partial`; nor to the
    groups after one that was not done completely. `check` raises what forbids the attempt, within the same commit as
    the lease. `departure` learns when the first request leaves.

    Raises:
        ChangeRefused: a refusal of the plan. PlanStale: something moved. GroupNotEmpty: a member joined.
        ChangeInProgress: the group is being changed by somebody else.
        RetryableError, ConfigurationError: the cluster cannot be asked; nothing was sent.
        OutcomeUnknown: a request left, and then anything went wrong: verify.
    """
    rows = tuple(row for row in plan.executable(partial=partial) if row.key not in done)
    if not rows and done:
        return Execution(plan_id=plan.plan_id, attempt=0, results=(), left_out=tuple(sorted(done)), not_sent=())
    if not rows:
        raise refusal_of(plan, partial=partial)
    attempt = _Attempt(kafka, journal, plan, rows, done, partial=partial)
    attempt.begin(check)
    with departure or Departure(plan.plan_id) as sending:
        try:
            attempt.look_again()
            attempt.note_left_out()
            return attempt.send(sending)
        except BaseException as error:
            if not sending.has_left:
                attempt.abandon(error)
            raise


class _Attempt:
    """One attempt at one plan."""

    def __init__(
        self,
        kafka: KafkaConfig,
        journal: Journal,
        plan: ResetPlan,
        rows: Sequence[PartitionPlan],
        done: frozenset[_Key],
        *,
        partial: bool,
    ) -> None:
        self._kafka = kafka
        self._journal = journal
        self._plan = plan
        self._rows = tuple(rows)
        self._done = done
        self._partial = partial
        before = journal.standings({"plan_id": plan.plan_id})
        self._number = max((standing.attempt for standing in before), default=0) + 1
        self._groups = tuple(dict.fromkeys(row.group_id for row in self._rows))
        self._open = list(self._groups)
        """Groups whose lease is held and to which nothing was sent."""
        self._moved: tuple[Notice, ...] = ()
        self._left_out: tuple[LeftOut, ...] = ()
        self._expires_at_ms = 0
        self._found: Found | None = None

    def begin(self, check: Callable[[], object] | None) -> None:
        """Take the lease of every group, all or none."""
        self._expires_at_ms = self._journal.now_ms + _LEASE_MS + _LEASE_MS_A_GROUP * len(self._groups)
        self._journal.take_lease(self._leases(self._groups), check=check)

    def look_again(self) -> None:
        """Compare with the cluster as it is now. With `partial`, what moved is left out."""
        self._found = look_again(self._kafka, self._plan, now_ms=self._journal.now_ms)
        left, self._moved = unmoved(self._plan, self._rows, self._found.snapshot, partial=self._partial)
        groups = tuple(dict.fromkeys(row.group_id for row in left))
        self._give_up([group for group in self._groups if group not in groups], _moved_detail(self._moved))
        self._rows, self._groups = left, groups

    def note_left_out(self) -> None:
        """Note an outcome for each share partition that a rule keeps from being sent, before anything is."""
        self._left_out = left_out(self._plan, [row.key for row in self._rows], self._done, self._moved)
        self._write(self._left_out, Status.LEFT_OUT)
        known = {*self._groups, *(notice.group_id for notice in self._moved)}
        for group in dict.fromkeys(one.group_id for one in self._left_out):
            if group not in known:
                mine = [[one.rule, one.subject, one.text] for one in self._left_out if one.group_id == group]
                self._journal.note([self._entry(Event.REFUSED, group, detail={"moved": mine})])

    def abandon(self, error: BaseException) -> None:
        """Nothing was sent: note why, and give the leases back. What cannot be noted ends with the lease's time."""
        detail = {"error": "interrupted"}
        if isinstance(error, AcktrailError):
            detail = {"error": error.message, "hint": error.hint}
        with suppress(AcktrailError):
            self._give_up(self._open, detail)

    def send(self, sending: Departure) -> Execution:
        """One request a group, in order, each compared with the cluster once more right before it is sent.

        Raises:
            PlanStale, GroupNotEmpty, RetryableError, ConfigurationError: nothing was sent for any group.
        """
        results: list[ChangeResult] = []
        refused: dict[str, AcktrailError] = {}
        waiting = list(self._groups)
        with ShareGroupAdmin(self._kafka) as admin:
            while waiting and self._may_send(waiting):
                said = self._tell(admin, group_id := waiting.pop(0), sending)
                if isinstance(said, AcktrailError):
                    refused[group_id] = said
                else:
                    results += said
                is_done = not isinstance(said, AcktrailError) and call_outcome(said) == "done"
                if not is_done and not self._partial:
                    break
        self._leave(waiting)
        if refused and not results:
            raise next(iter(refused.values()))
        return self._execution(results, refused, waiting)

    def _execution(
        self, results: Sequence[ChangeResult], refused: Mapping[str, AcktrailError], waiting: Sequence[str]
    ) -> Execution:
        why = {group: error.message for group, error in refused.items()}
        why |= dict.fromkeys(waiting, "nothing was sent after a group before it was not done")
        self._write(not_reached((row for row in self._rows if row.group_id in why), why), Status.NOT_ATTEMPTED)
        sent = {(result.group_id, result.topic, result.partition) for result in results}
        return Execution(
            plan_id=self._plan.plan_id,
            attempt=self._number,
            results=tuple(results),
            left_out=tuple(row.key for row in self._plan.partitions if row.key not in sent),
            not_sent=(*refused, *waiting),
            refused=self._left_out,
        )

    def _tell(
        self, admin: ShareGroupAdmin, group_id: str, sending: Departure
    ) -> tuple[ChangeResult, ...] | AcktrailError:
        """Send the request of one group, unless something moved: then why nothing was sent."""
        rows = [row for row in self._rows if row.group_id == group_id]
        ends = self._ends(admin, rows)
        self._journal.note([self._before_call(group_id, rows, ends)])
        offsets = [
            NewStartOffset(topic=row.topic, partition=row.partition, start_offset=row.target_offset or 0)
            for row in rows
        ]
        try:
            self._look_once_more(admin, group_id, rows)
        except AcktrailError as error:
            self._give_up([group_id], {"error": error.message, "hint": error.hint})
            return error
        sending.left()
        try:
            results = admin.alter_offsets(group_id, offsets)
        except AcktrailError as error:
            results = tuple(_not_sent(row, error) for row in rows)
        if call_outcome(results) == "refused":
            sending.stayed()
        else:
            self._open.remove(group_id)
        self._journal.note([after_call(self._plan, self._number, group_id, results)])
        return results

    def _before_call(self, group_id: str, rows: Sequence[PartitionPlan], ends: Mapping[int, int]) -> AuditEntry:
        is_partial = any(one.group_id == group_id for one in self._left_out)
        now_ms = self._journal.now_ms
        return before_call(self._plan, self._number, group_id, rows, ends, now_ms, is_partial=is_partial)

    def _look_once_more(self, admin: ShareGroupAdmin, group_id: str, rows: Sequence[PartitionPlan]) -> None:
        """Kafka takes no condition with the request, and another process may note its change in tables of its own: the
        last thing before the request is to see that nothing moved."""
        assert self._found is not None
        now = look_once_more(self._kafka, admin, self._plan, group_id, self._found, now_ms=self._journal.now_ms)
        moved = what_moved(self._plan, rows, now)
        if moved:
            raise stale(moved, now)

    def _ends(self, admin: ShareGroupAdmin, rows: Sequence[PartitionPlan]) -> Mapping[int, int]:
        """Where the state topic's logs of `rows` end now: the effect of what is sent comes after."""
        if self._plan.cluster.state_reason is not None:
            return {}
        topic = StateTopic(admin)
        if not topic.is_present:
            return {}
        partitions = {state_partition_of(share_partition_of(row), topic.partition_count) for row in rows}
        return {partition: log.last_stable_offset or 0 for partition, log in topic.log_offsets(partitions).items()}

    def _may_send(self, waiting: Sequence[str]) -> bool:
        """Whether the lease holds long enough for one more request; it is renewed in time. One that ran out while this
        process slept is lost: others may have changed the group."""
        left = self._expires_at_ms - self._journal.now_ms
        if left <= self._kafka.request_timeout_ms:
            return False
        if left <= 2 * self._kafka.request_timeout_ms:
            self._expires_at_ms = self._journal.now_ms + _LEASE_MS + _LEASE_MS_A_GROUP * len(waiting)
            self._journal.note(self._leases(waiting))
        return True

    def _write(self, found: Iterable[LeftOut], status: Status) -> None:
        at = dt.datetime.fromtimestamp(self._journal.now_ms / 1000, dt.UTC)
        about = {"plan_id": self._plan.plan_id, "attempt": self._number, "verified_at": at}
        rows = [{**about, **execution_row(one, status)} for one in found]
        if rows:
            self._journal.write_executions(rows)
            self._journal.note([self._entry(Event.RECORDED, None)])

    def _give_up(self, groups: Sequence[str], detail: Mapping[str, object]) -> None:
        if groups:
            self._journal.note(
                [
                    *(self._entry(Event.REFUSED, group, detail=detail) for group in groups),
                    *(self._entry(Event.LEASE_RELEASED, group) for group in groups),
                ]
            )
            self._open = [group for group in self._open if group not in groups]

    def _leave(self, groups: Sequence[str]) -> None:
        """Groups that are not reached: nothing was sent, the lease is given back."""
        if groups:
            self._journal.note(
                [
                    *(self._entry(Event.AFTER_CALL, group, outcome="not_sent") for group in groups),
                    *(self._entry(Event.LEASE_RELEASED, group) for group in groups),
                ]
            )
            self._open = [group for group in self._open if group not in groups]

    def _leases(self, groups: Sequence[str]) -> list[AuditEntry]:
        _, pid = here()
        detail = {"expires_at_ms": self._expires_at_ms, "pid": pid}
        return [self._entry(Event.LEASE_TAKEN, group, detail=detail) for group in groups]

    def _entry(
        self,
        event: Event,
        group_id: str | None,
        *,
        outcome: str | None = None,
        detail: Mapping[str, object] | None = None,
    ) -> AuditEntry:
        return AuditEntry(
            kind=self._plan.kind.value,
            event=event,
            plan_id=self._plan.plan_id,
            plan_hash=self._plan.plan_hash,
            attempt=self._number,
            group_id=group_id,
            outcome=outcome,
            detail=detail or {},
        )


def _moved_detail(moved: Sequence[Notice]) -> dict[str, object]:
    return {"moved": [[notice.rule, notice.subject, notice.text] for notice in moved]}


def _not_sent(row: PartitionPlan, error: AcktrailError) -> ChangeResult:
    return ChangeResult(
        group_id=row.group_id,
        topic=row.topic,
        partition=row.partition,
        outcome=Outcome.REFUSED,
        error_code=None,
        error=f"not sent: {error.message}",
        advice=error.hint or "nothing was changed: run it again",
    )
