"""One attempt to carry out a plan of any kind: the leases of its groups, its requests, the audit rows around each."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from acktrail.change.audit.audit_chain import AUDIT, AuditEntry, AuditRow, Event, audit_entry
from acktrail.change.audit.journal import Journal
from acktrail.change.audit.plan_life import PARTIAL, ChangeStatus, blocking, standings
from acktrail.change.change_kind import Execution, OpenRequests
from acktrail.change.plan.change_plan import ChangePlan
from acktrail.dataclass_json import stored_object
from acktrail.errors import AcktrailError, ChangeInProgress
from acktrail.kafka.changes import ChangeResult, Outcome

_LEASE_MS: Final = 120_000
_LEASE_MS_A_GROUP: Final = 2_000


def take_leases(journal: Journal, entries: Sequence[AuditEntry], check: Callable[[], object] | None = None) -> None:
    """Record that a change begins (`lease_taken`, one entry a group), unless `check` raises (it is called again when
    another writer was first) or another change has one of the groups; that is recorded, too (`lease_refused`). Raises
    ChangeInProgress: another plan or process changes a group, or its outcome was not verified."""
    now_ms = journal.now_ms

    def check_groups(rows: list[AuditRow]) -> None:
        if check is not None:
            check()
        found = standings(rows)
        for entry in entries:
            held = blocking(found, entry.group_id or "", plan_id=entry.plan_id, now_ms=now_ms)
            if held is not None:
                hint = f"settle it first: acktrail change verify {held.plan_id}"
                if held.lease is not None and held.at(now_ms).standing is ChangeStatus.RUNNING:
                    hint = held.lease.text(now_ms)
                raise ChangeInProgress(held.group_id, plan_id=held.plan_id, hint=hint)

    try:
        journal.note(entries, check=check_groups)
    except ChangeInProgress as error:
        groups = [entry.group_id for entry in entries]
        detail = {"groups": groups, "kept_by": error.plan_id, "group": error.group_id, "hint": error.hint}
        journal.note([replace(entries[0], event=Event.LEASE_REFUSED, group_id=None, outcome=None, detail=detail)])
        raise


class Attempt:
    """The next attempt at `plan`, for `groups`."""

    def __init__(self, journal: Journal, plan: ChangePlan, groups: Sequence[str]) -> None:
        self.journal = journal
        self.number = max((row.attempt for row in journal.audit({"plan_id": plan.plan_id})), default=0) + 1
        self.entry = partial(audit_entry, plan, self.number)
        self._leased, self._plan_id = list(groups), plan.plan_id
        self._expires_at_ms = 0
        self._sending = OpenRequests(plan.plan_id)

    @contextmanager
    def take_leases(
        self, check: Callable[[], object] | None = None, requests: OpenRequests | None = None
    ) -> Iterator[None]:
        """Hold the lease of every group, all or none, around the requests, which `requests` counts. Raises as
        `take_leases`. If the block fails before a request left, the leases are released."""
        take_leases(self.journal, self._leases(self._leased), check)
        with requests or self._sending as self._sending:
            try:
                yield
            except BaseException as error:
                if not self._sending.out:
                    self._abandon(error)
                raise

    def renew_leases(self, groups: Sequence[str], request_timeout_ms: int) -> bool:
        """Renew the leases in time; return whether they last for one more request. A lease that ran out while this
        process slept, or that another process took over, is lost: others may have changed the group."""
        left = self._expires_at_ms - self.journal.now_ms
        if request_timeout_ms < left <= 2 * request_timeout_ms:
            try:
                self.journal.note(self._leases(groups), check=lambda _: self.check_lease())
            except ChangeInProgress:
                return False
        return left > request_timeout_ms

    def check_lease(self) -> None:
        """Raise ChangeInProgress where another process took the lease over: it may have found out what became of this
        attempt, and nothing may be done any more that makes that wrong."""
        plan_id = self._plan_id
        newest = self.journal.audit({"plan_id": plan_id, "event": Event.LEASE_TAKEN.value})[-1]
        pid = stored_object(newest.detail, AUDIT, "detail").get("pid")
        if (newest.attempt, newest.host, pid) != (self.number, socket.gethostname(), os.getpid()):
            hint = f"process {pid} on {newest.host} took it over"
            raise ChangeInProgress(newest.group_id or "", plan_id=plan_id, hint=hint)

    def send(
        self,
        groups: Sequence[str],
        call: Callable[[str], Sequence[ChangeResult] | AcktrailError],
        request_timeout_ms: int,
        *,
        goes_on: bool,
    ) -> Execution:
        """Make one `call` a group, in order, while the leases last; stop after a group that was not done, unless
        `goes_on`. If nothing was sent for any group, raise why the first was not sent."""
        results: list[ChangeResult] = []
        refused: dict[str, AcktrailError] = {}
        waiting, why = list(groups), "nothing was sent after a group before it was not done"
        while waiting:
            if not self.renew_leases(waiting, request_timeout_ms):
                why = "its lease was over: others may have changed the group"
                break
            answer = call(group_id := waiting.pop(0))
            if isinstance(answer, AcktrailError):
                refused[group_id] = answer
            else:
                results += answer
            is_done = not isinstance(answer, AcktrailError) and call_outcome(answer) == "done"
            if not is_done and not goes_on:
                break
        self.leave(waiting)
        if refused and not results:
            raise next(iter(refused.values()))
        not_sent = {group: error.message for group, error in refused.items()}
        not_sent |= dict.fromkeys(waiting, why)
        return Execution(plan_id=self._plan_id, attempt=self.number, results=tuple(results), not_sent=not_sent)

    def call(
        self,
        group_id: str,
        request: Mapping[str, Any],
        send: Callable[[], Sequence[ChangeResult]],
        *,
        parts: Iterable[tuple[str | None, int | None]] = ((None, None),),
        check: Callable[[], object] | None = None,
        is_partial: bool = False,
    ) -> Sequence[ChangeResult] | AcktrailError:
        """Send the request of one group between its two audit rows; return the coordinator's answers, one for each of
        `parts` (topic, partition) if it could not be sent. `check` raises if something changed right before the
        request; then return that error and release the lease. `is_partial`: the plan has more of the group, which is
        left out."""
        outcome = PARTIAL if is_partial else None
        self.journal.note([self.entry(Event.BEFORE_CALL, group_id, outcome=outcome, detail=request)])
        if check is not None:
            try:
                check()
            except AcktrailError as error:
                self.give_up({group_id: {"error": error.message, "hint": error.hint}})
                return error
        self._sending.out += 1
        try:
            results = send()
        except AcktrailError as error:
            text, advice = f"not sent: {error.message}", error.hint or "nothing was changed: run it again"
            refused = partial(ChangeResult, outcome=Outcome.REFUSED, error_code=None, error=text, advice=advice)
            results = [refused(group_id=group_id, topic=topic, partition=partition) for topic, partition in parts]
        outcome = call_outcome(results)
        if outcome == "refused":
            self._sending.out -= 1
        else:
            self._leased.remove(group_id)
        self.journal.note([self.entry(Event.AFTER_CALL, group_id, outcome=outcome, detail=answer_detail(results))])
        return results

    def give_up(self, why: Mapping[str, Mapping[str, object]]) -> None:
        """Record in one commit `why` nothing is sent to each of some groups, and release their leases."""
        self._release([*why], [self.entry(Event.REFUSED, group, detail=detail) for group, detail in why.items()])

    def leave(self, groups: Sequence[str]) -> None:
        """Record that `groups` were not reached, and release their leases."""
        self._release(groups, [self.entry(Event.AFTER_CALL, group, outcome="not_sent") for group in groups])

    def _abandon(self, error: BaseException) -> None:
        """Release the lease of every group to which nothing was sent. A lease that cannot be released ends with its
        time."""
        detail = {"error": "interrupted"}
        if isinstance(error, AcktrailError):
            detail = {"error": error.message, "hint": error.hint}
        with suppress(AcktrailError):
            self.give_up(dict.fromkeys(self._leased, detail))

    def _release(self, groups: Sequence[str], why: Sequence[AuditEntry]) -> None:
        if groups:
            leased = [group for group in groups if group in self._leased]
            self.journal.note([*why, *(self.entry(Event.LEASE_RELEASED, group) for group in leased)])
            self._leased = [group for group in self._leased if group not in groups]

    def _leases(self, groups: Sequence[str]) -> list[AuditEntry]:
        self._expires_at_ms = self.journal.now_ms + _LEASE_MS + _LEASE_MS_A_GROUP * len(groups)
        detail = {"expires_at_ms": self._expires_at_ms, "pid": os.getpid()}
        return [self.entry(Event.LEASE_TAKEN, group, detail=detail) for group in groups]


def answer_detail(results: Sequence[ChangeResult]) -> dict[str, Any]:
    """Return the detail of the audit row after a request: the broker's answer, failures one by one."""
    return {
        "done": sum(result.outcome is Outcome.DONE for result in results),
        "failed": [result for result in results if result.outcome is not Outcome.DONE],
    }


def call_outcome(results: Iterable[ChangeResult]) -> str:
    """Return one word for a whole request: ``done``, ``partly``, ``refused``, ``unknown``."""
    outcomes = {result.outcome for result in results}
    if outcomes & {Outcome.UNKNOWN, Outcome.NOT_ATTEMPTED}:
        return "unknown"
    if outcomes == {Outcome.REFUSED}:
        return "refused"
    return "partly" if Outcome.REFUSED in outcomes else "done"
