"""One attempt to carry out a plan of any kind: its leases, its requests, and the audit rows before and after each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from acktrail.broker.changes import ChangeResult, Outcome
from acktrail.errors import AcktrailError
from acktrail.group_changes.audit.audit_chain import AuditEntry, Event, audit_entry
from acktrail.group_changes.audit.journal import Journal, host_and_pid
from acktrail.group_changes.execution.open_requests import OpenRequests
from acktrail.group_changes.lifecycle.change_status import PARTIAL
from acktrail.group_changes.planning.plan_file import Plan

_LEASE_MS: Final = 120_000
_LEASE_MS_A_GROUP: Final = 2_000


class Attempt:
    """The next attempt at `plan`, for `groups`. `abandon` gives back the lease of every group to which nothing was
    sent."""

    def __init__(self, journal: Journal, plan: Plan, groups: Sequence[str]) -> None:
        self.journal = journal
        self.plan = plan
        before = journal.standings({"plan_id": plan.plan_id})
        self.number = max((standing.attempt for standing in before), default=0) + 1
        self._leased = list(groups)
        self._expires_at_ms = 0

    def take_leases(self, check: Callable[[], object] | None = None) -> None:
        """Take the lease of every group, all or none. `check` raises what forbids the attempt, in the same commit.

        Raises:
            ChangeInProgress: another plan or process changes a group, or left it unverified.
        """
        self.journal.take_lease(self._leases(self._leased), check=check)

    def renew_leases(self, groups: Sequence[str], request_timeout_ms: int) -> bool:
        """Whether the leases last for one more request; they are renewed in time. A lease that ran out while this
        process slept is lost: others may have changed the group."""
        left = self._expires_at_ms - self.journal.now_ms
        if left <= request_timeout_ms:
            return False
        if left <= 2 * request_timeout_ms:
            self.journal.note(self._leases(groups))
        return True

    def call(
        self,
        group_id: str,
        request: Mapping[str, Any],
        send: Callable[[], Sequence[ChangeResult]],
        sending: OpenRequests,
        *,
        detail_of: Callable[[Sequence[ChangeResult]], Mapping[str, Any]],
        look: Callable[[], object] | None = None,
        is_partial: bool = False,
    ) -> Sequence[ChangeResult] | AcktrailError:
        """Send the request of one group between its two audit rows; the coordinator's answers. `look` raises when
        something moved right before it is sent: then that error, and the lease is given back.

        `is_partial`: the plan has more of the group, which is left out.
        """
        outcome = PARTIAL if is_partial else None
        self.journal.note([self.entry(Event.BEFORE_CALL, group_id, outcome=outcome, detail=request)])
        if look is not None:
            try:
                look()
            except AcktrailError as error:
                self.give_up([group_id], {"error": error.message, "hint": error.hint})
                return error
        sending.add()
        results = send()
        outcome = call_outcome(results)
        if outcome == "refused":
            sending.remove()
        else:
            self._leased.remove(group_id)
        self.journal.note([self.entry(Event.AFTER_CALL, group_id, outcome=outcome, detail=detail_of(results))])
        return results

    def give_up(self, groups: Sequence[str], detail: Mapping[str, object]) -> None:
        """Note why nothing is sent to `groups`, and give their leases back."""
        self._release(groups, [self.entry(Event.REFUSED, group, detail=detail) for group in groups])

    def leave(self, groups: Sequence[str]) -> None:
        """Note that `groups` are not reached, and give their leases back."""
        self._release(groups, [self.entry(Event.AFTER_CALL, group, outcome="not_sent") for group in groups])

    def abandon(self, error: BaseException) -> None:
        """Nothing was sent: note why, and give the leases back. What cannot be noted ends with the lease's time."""
        detail = {"error": "interrupted"}
        if isinstance(error, AcktrailError):
            detail = {"error": error.message, "hint": error.hint}
        with suppress(AcktrailError):
            self.give_up(self._leased, detail)

    def entry(
        self,
        event: Event,
        group_id: str | None = None,
        *,
        outcome: str | None = None,
        detail: Mapping[str, object] | None = None,
    ) -> AuditEntry:
        return audit_entry(self.plan, self.number, event, group_id, outcome=outcome, detail=detail)

    def _release(self, groups: Sequence[str], why: Sequence[AuditEntry]) -> None:
        if groups:
            self.journal.note([*why, *(self.entry(Event.LEASE_RELEASED, group) for group in groups)])
            self._leased = [group for group in self._leased if group not in groups]

    def _leases(self, groups: Sequence[str]) -> list[AuditEntry]:
        self._expires_at_ms = self.journal.now_ms + _LEASE_MS + _LEASE_MS_A_GROUP * len(groups)
        _, pid = host_and_pid()
        detail = {"expires_at_ms": self._expires_at_ms, "pid": pid}
        return [self.entry(Event.LEASE_TAKEN, group, detail=detail) for group in groups]


def call_outcome(results: Iterable[ChangeResult]) -> str:
    """One word for a whole request: ``done``, ``partly``, ``refused``, ``unknown``."""
    outcomes = {result.outcome for result in results}
    if outcomes & {Outcome.UNKNOWN, Outcome.NOT_ATTEMPTED}:
        return "unknown"
    if outcomes == {Outcome.REFUSED}:
        return "refused"
    return "partly" if Outcome.REFUSED in outcomes else "done"
