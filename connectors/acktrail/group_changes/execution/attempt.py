"""One attempt to carry out a plan of any kind: its leases, its requests, and the audit rows before and after each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Final, Self

from acktrail.broker.changes import ChangeResult, Outcome
from acktrail.errors import AcktrailError, ChangeInProgress, OutcomeUnknown
from acktrail.group_changes.audit.audit_chain import AuditEntry, Event, audit_entry
from acktrail.group_changes.audit.journal import Journal, host_and_pid
from acktrail.group_changes.lifecycle.change_status import PARTIAL
from acktrail.group_changes.planning.plan_file import Plan

_LEASE_MS: Final = 120_000
_LEASE_MS_A_GROUP: Final = 2_000


class OpenRequests:
    """Around everything from the first request of a plan to its verification, as a context manager; it may be entered
    again inside itself.

    Any error that ends the block while a request is out (a broker that is gone, tables that are lost, Ctrl-C, a defect)
    becomes OutcomeUnknown, which names the plan and how to settle it. Before that nothing is changed.
    """

    def __init__(self, plan_id: str) -> None:
        self._plan_id = plan_id
        self._out = 0

    @property
    def has_left(self) -> bool:
        """Whether the outcome of some request is open."""
        return self._out > 0

    def add(self) -> None:
        """A request is about to be sent."""
        self._out += 1

    def remove(self) -> None:
        """It was not sent after all, or the coordinator refused all of it: nothing was changed by it."""
        self._out -= 1

    def settled(self) -> None:
        """What became of every request is known, and noted."""
        self._out = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or not self.has_left or isinstance(error, GeneratorExit | ChangeInProgress):
            return
        if isinstance(error, OutcomeUnknown) and error.data.get("plan") == self._plan_id:
            return
        reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        if isinstance(error, AcktrailError | KeyboardInterrupt):
            reason = error.message if isinstance(error, AcktrailError) else "interrupted"
        raise OutcomeUnknown(
            f"plan {self._plan_id} was sent, and its outcome is not known: {reason}",
            hint=f"change nothing else of the group; acktrail reset verify {self._plan_id} settles it",
            data={"plan": self._plan_id},
        ) from error


class Attempt:
    """The next attempt at `plan`, for `groups`."""

    def __init__(self, journal: Journal, plan: Plan, groups: Sequence[str]) -> None:
        self.journal = journal
        self.plan = plan
        before = journal.standings({"plan_id": plan.plan_id})
        self.number = max((standing.attempt for standing in before), default=0) + 1
        self._leased = list(groups)
        self._expires_at_ms = 0
        self._sending = OpenRequests(plan.plan_id)

    @contextmanager
    def take_leases(
        self, check: Callable[[], object] | None = None, requests: OpenRequests | None = None
    ) -> Iterator[None]:
        """Take the lease of every group, all or none, around the requests, which `requests` counts. `check` raises what
        forbids the attempt, in the same commit. Where the block fails before a request left, the leases are given back.

        Raises:
            ChangeInProgress: another plan or process changes a group, or left it unverified.
        """
        self.journal.take_lease(self._leases(self._leased), check=check)
        with requests or self._sending as self._sending:
            try:
                yield
            except BaseException as error:
                if not self._sending.has_left:
                    self._abandon(error)
                raise

    def renew_leases(self, groups: Sequence[str], request_timeout_ms: int) -> bool:
        """Whether the leases last for one more request; they are renewed in time. A lease that ran out while this
        process slept is lost: others may have changed the group."""
        left = self._expires_at_ms - self.journal.now_ms
        if request_timeout_ms < left <= 2 * request_timeout_ms:
            self.journal.note(self._leases(groups))
        return left > request_timeout_ms

    def call(
        self,
        group_id: str,
        request: Mapping[str, Any],
        send: Callable[[], Sequence[ChangeResult]],
        *,
        detail_of: Callable[[Sequence[ChangeResult]], Mapping[str, Any]],
        parts: Iterable[tuple[str | None, int | None]] = ((None, None),),
        look: Callable[[], object] | None = None,
        is_partial: bool = False,
    ) -> Sequence[ChangeResult] | AcktrailError:
        """Send the request of one group between its two audit rows; the coordinator's answers, one for each of `parts`
        (topic, partition) where it could not be sent. `look` raises when something moved right before it is sent: then
        that error, and the lease is given back. `is_partial`: the plan has more of the group, which is left out.
        """
        outcome = PARTIAL if is_partial else None
        self.journal.note([self.entry(Event.BEFORE_CALL, group_id, outcome=outcome, detail=request)])
        if look is not None:
            try:
                look()
            except AcktrailError as error:
                self.give_up([group_id], {"error": error.message, "hint": error.hint})
                return error
        self._sending.add()
        try:
            results = send()
        except AcktrailError as error:
            results = [_not_sent(group_id, topic, partition, error) for topic, partition in parts]
        outcome = call_outcome(results)
        if outcome == "refused":
            self._sending.remove()
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

    def entry(
        self,
        event: Event,
        group_id: str | None = None,
        *,
        outcome: str | None = None,
        detail: Mapping[str, object] | None = None,
    ) -> AuditEntry:
        return audit_entry(self.plan, self.number, event, group_id, outcome=outcome, detail=detail)

    def _abandon(self, error: BaseException) -> None:
        """Give back the lease of every group, to which nothing was sent. What cannot be noted ends with its time."""
        detail = {"error": "interrupted"}
        if isinstance(error, AcktrailError):
            detail = {"error": error.message, "hint": error.hint}
        with suppress(AcktrailError):
            self.give_up(self._leased, detail)

    def _release(self, groups: Sequence[str], why: Sequence[AuditEntry]) -> None:
        if groups:
            self.journal.note([*why, *(self.entry(Event.LEASE_RELEASED, group) for group in groups)])
            self._leased = [group for group in self._leased if group not in groups]

    def _leases(self, groups: Sequence[str]) -> list[AuditEntry]:
        self._expires_at_ms = self.journal.now_ms + _LEASE_MS + _LEASE_MS_A_GROUP * len(groups)
        detail = {"expires_at_ms": self._expires_at_ms, "pid": host_and_pid()[1]}
        return [self.entry(Event.LEASE_TAKEN, group, detail=detail) for group in groups]


def call_outcome(results: Iterable[ChangeResult]) -> str:
    """One word for a whole request: ``done``, ``partly``, ``refused``, ``unknown``."""
    outcomes = {result.outcome for result in results}
    if outcomes & {Outcome.UNKNOWN, Outcome.NOT_ATTEMPTED}:
        return "unknown"
    if outcomes == {Outcome.REFUSED}:
        return "refused"
    return "partly" if Outcome.REFUSED in outcomes else "done"


def _not_sent(group_id: str, topic: str | None, partition: int | None, error: AcktrailError) -> ChangeResult:
    return ChangeResult(
        group_id=group_id,
        topic=topic,
        partition=partition,
        outcome=Outcome.REFUSED,
        error_code=None,
        error=f"not sent: {error.message}",
        advice=error.hint or "nothing was changed: run it again",
    )
