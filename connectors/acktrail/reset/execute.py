"""Carries out a plan: lease, a last look, one request a group, an audit row before and after each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.broker.changes import ChangeResult, NewStartOffset, Outcome
from acktrail.broker.state_topic import StateTopic
from acktrail.config import KafkaConfig
from acktrail.errors import AcktrailError, ChangeRefused, GroupNotEmpty, PlanStale
from acktrail.model.share_partition import state_partition_of
from acktrail.reset.again import look_again, look_once_more
from acktrail.reset.attempt import after_call, before_call, call_outcome
from acktrail.reset.audit import AuditEntry, Event
from acktrail.reset.facts import Snapshot
from acktrail.reset.gather import Found
from acktrail.reset.journal import Journal, here
from acktrail.reset.notices import Notice, RefusedParts
from acktrail.reset.plan import PartitionPlan, ResetPlan, share_partition_of
from acktrail.reset.recheck import what_moved

__all__ = ["Execution", "execute", "refusal_of", "to_send"]

_LEASE_MS: Final = 120_000
_LEASE_MS_A_GROUP: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What an attempt did. `results` are the broker's words on every share partition that was sent; `left_out` those
    that were not, because they are refused or were done before."""

    plan_id: str
    attempt: int
    results: tuple[ChangeResult, ...]
    left_out: tuple[tuple[str, str, int], ...]
    not_sent: tuple[str, ...]
    """Groups that were not reached after one before them failed."""


def execute(
    kafka: KafkaConfig,
    journal: Journal,
    plan: ResetPlan,
    *,
    partial: bool = False,
    done: frozenset[tuple[str, str, int]] = frozenset(),
) -> Execution:
    """Send what `plan` says, unless something moved since it was made. `done` are share partitions that an earlier
    attempt brought to their targets: they are left out.

    Nothing is done (attempt 0) when an earlier attempt did all of it. The lease stays until `verify` gives it back,
    except where nothing was sent. Nothing is sent when any share partition is refused, unless `partial`; nor to the
    groups after one that was not done completely.

    Raises:
        ChangeRefused: a refusal of the plan. PlanStale: something moved. GroupNotEmpty: a member joined.
        ChangeInProgress: the group is being changed by somebody else.
        RetryableError, ConfigurationError: the cluster cannot be asked; nothing was sent.
    """
    rows = tuple(row for row in plan.executable(partial=partial) if row.key not in done)
    if not rows and done:
        return Execution(plan_id=plan.plan_id, attempt=0, results=(), left_out=tuple(sorted(done)), not_sent=())
    if not rows:
        raise refusal_of(plan, partial=partial)
    attempt = _Attempt(kafka, journal, plan, rows, partial=partial)
    attempt.begin()
    try:
        attempt.look_again()
    except AcktrailError as error:
        attempt.refuse(error)
        raise
    return attempt.send()


def to_send(kafka: KafkaConfig, plan: ResetPlan, *, partial: bool, now_ms: int) -> tuple[PartitionPlan, ...]:
    """What `execute` would send now. Raises as it would; nothing is noted."""
    rows = plan.executable(partial=partial)
    if not rows:
        raise refusal_of(plan, partial=partial)
    return _unmoved(plan, rows, look_again(kafka, plan, now_ms=now_ms).snapshot, partial=partial)[0]


class _Attempt:
    """One attempt at one plan."""

    def __init__(
        self, kafka: KafkaConfig, journal: Journal, plan: ResetPlan, rows: Sequence[PartitionPlan], *, partial: bool
    ) -> None:
        self._kafka = kafka
        self._journal = journal
        self._plan = plan
        self._rows = tuple(rows)
        self._partial = partial
        before = journal.standings({"plan_id": plan.plan_id})
        self._number = max((standing.attempt for standing in before), default=0) + 1
        self._groups = tuple(dict.fromkeys(row.group_id for row in self._rows))
        self._expires_at_ms = 0
        self._found: Found | None = None

    def begin(self) -> None:
        """Take the lease of every group, all or none."""
        self._expires_at_ms = self._journal.now_ms + _LEASE_MS + _LEASE_MS_A_GROUP * len(self._groups)
        self._journal.take_lease(self._leases(self._groups))

    def look_again(self) -> None:
        """Compare with the cluster as it is now. With `partial`, what moved is left out."""
        self._found = look_again(self._kafka, self._plan, now_ms=self._journal.now_ms)
        left, moved = _unmoved(self._plan, self._rows, self._found.snapshot, partial=self._partial)
        groups = tuple(dict.fromkeys(row.group_id for row in left))
        self._give_up([group for group in self._groups if group not in groups], _told(moved))
        self._rows, self._groups = left, groups

    def refuse(self, error: AcktrailError) -> None:
        """Note why nothing is sent, and give the lease back."""
        self._give_up(self._groups, {"error": error.message, "hint": error.hint})

    def send(self) -> Execution:
        """One request a group, in order, each compared with the cluster once more right before it is sent.

        Raises:
            PlanStale, GroupNotEmpty, RetryableError, ConfigurationError: nothing was sent for any group.
        """
        results: list[ChangeResult] = []
        refused: dict[str, AcktrailError] = {}
        waiting = list(self._groups)
        with ShareGroupAdmin(self._kafka) as admin:
            while waiting and self._may_send(waiting):
                said = self._tell(admin, group_id := waiting.pop(0))
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
        sent = {(result.group_id, result.topic, result.partition) for result in results}
        return Execution(
            plan_id=self._plan.plan_id,
            attempt=self._number,
            results=tuple(results),
            left_out=tuple(row.key for row in self._plan.partitions if row.key not in sent),
            not_sent=(*refused, *waiting),
        )

    def _tell(self, admin: ShareGroupAdmin, group_id: str) -> tuple[ChangeResult, ...] | AcktrailError:
        """Send the request of one group, unless something moved: then why nothing was sent."""
        rows = [row for row in self._rows if row.group_id == group_id]
        ends = self._ends(admin, rows)
        plan, number = self._plan, self._number
        self._journal.note([before_call(plan, number, group_id, rows, ends, self._journal.now_ms)])
        offsets = [
            NewStartOffset(topic=row.topic, partition=row.partition, start_offset=row.target_offset or 0)
            for row in rows
        ]
        try:
            self._look_once_more(admin, group_id, rows)
        except AcktrailError as error:
            self._give_up([group_id], {"error": error.message, "hint": error.hint})
            return error
        try:
            results = admin.alter_offsets(group_id, offsets)
        except AcktrailError as error:
            results = tuple(_not_sent(row, error) for row in rows)
        self._journal.note([after_call(plan, number, group_id, results)])
        return results

    def _look_once_more(self, admin: ShareGroupAdmin, group_id: str, rows: Sequence[PartitionPlan]) -> None:
        """Kafka takes no condition with the request, and another process may note its change in tables of its own: the
        last thing before the request is to see that nothing moved."""
        assert self._found is not None
        now = look_once_more(self._kafka, admin, self._plan, group_id, self._found, now_ms=self._journal.now_ms)
        moved = what_moved(self._plan, rows, now)
        if moved:
            raise _stale(moved, now)

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

    def _give_up(self, groups: Sequence[str], detail: Mapping[str, object]) -> None:
        if groups:
            self._journal.note(
                [
                    *(self._entry(Event.REFUSED, group, detail=detail) for group in groups),
                    *(self._entry(Event.LEASE_RELEASED, group) for group in groups),
                ]
            )

    def _leave(self, groups: Sequence[str]) -> None:
        """Groups that are not reached: nothing was sent, the lease is given back."""
        if groups:
            self._journal.note(
                [
                    *(self._entry(Event.AFTER_CALL, group, outcome="not_sent") for group in groups),
                    *(self._entry(Event.LEASE_RELEASED, group) for group in groups),
                ]
            )

    def _leases(self, groups: Sequence[str]) -> list[AuditEntry]:
        _, pid = here()
        detail = {"expires_at_ms": self._expires_at_ms, "pid": pid}
        return [self._entry(Event.LEASE_TAKEN, group, detail=detail) for group in groups]

    def _entry(
        self, event: Event, group_id: str, *, outcome: str | None = None, detail: Mapping[str, object] | None = None
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


def refusal_of(plan: ResetPlan, *, partial: bool) -> ChangeRefused:
    """What to raise for a plan of which nothing may be sent."""
    if not plan.refusals:
        return ChangeRefused("nothing_to_reset", "the plan has no share partition")
    first = plan.refusals[0]
    more = f" (and {len(plan.refusals) - 1} more)" if len(plan.refusals) > 1 else ""
    hint = "" if partial else "nothing is sent while a rule forbids it; --partial sends the rest, if there is any"
    return ChangeRefused(first.rule, f"{first.subject}: {first.text}{more}".removeprefix(": "), hint=hint)


def _unmoved(
    plan: ResetPlan, rows: Sequence[PartitionPlan], now: Snapshot, *, partial: bool
) -> tuple[tuple[PartitionPlan, ...], tuple[Notice, ...]]:
    """The rows that may be sent, and what moved. Raises when something did, unless `partial` leaves the others."""
    moved = what_moved(plan, rows, now)
    left = tuple(row for row in rows if row.key not in RefusedParts(moved))
    if moved and not (partial and left):
        raise _stale(moved, now)
    return left, moved


def _stale(moved: Sequence[Notice], now: Snapshot) -> AcktrailError:
    first = moved[0]
    if first.rule == "group_not_empty":
        members = next(group.members for group in now.groups if group.group_id == first.group_id)
        return GroupNotEmpty(first.group_id or "", members=members)
    text = f"{first.subject}: {first.text}".removeprefix(": ")
    more = f" ({len(moved)} things moved)" if len(moved) > 1 else ""
    return PlanStale(first.rule, f"the plan is stale: {text}{more}", hint="make a new plan: acktrail reset plan")


def _told(moved: Sequence[Notice]) -> dict[str, object]:
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
