"""One attempt to carry out a plan of any kind: its leases, its requests, the audit rows before and after each."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from acktrail.change.audit.audit_chain import AuditEntry, AuditRow, Event, audit_entry
from acktrail.change.audit.journal import Journal
from acktrail.change.lifecycle.plan_life import PARTIAL, ChangeStatus, next_step
from acktrail.change.planning.change_plan import ChangePlan, PartitionPlan
from acktrail.change.planning.reset_plan import ResetPlan
from acktrail.change.verification.partition_outcome import VerifiedPartition
from acktrail.errors import AcktrailError, ChangeInProgress, OutcomeUnknown
from acktrail.kafka.changes import ChangeResult, Outcome
from acktrail.plain_data import from_json_value

Key = tuple[str, str, int]
"""Group, topic, partition."""
_LEASE_MS: Final = 120_000
_LEASE_MS_A_GROUP: Final = 2_000


class OpenRequests:
    """Around everything from the first request of a plan to its verification; it may be entered again inside itself.
    Any error that ends the block while a request is out (a broker that is gone, tables that are lost, Ctrl-C, a defect)
    becomes OutcomeUnknown, which names the plan and how to settle it."""

    def __init__(self, plan_id: str) -> None:
        self._plan_id = plan_id
        self.out = 0
        """The requests that are sent, or about to be, and whose outcome is not noted, nor that they were refused."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or not self.out or isinstance(error, GeneratorExit | ChangeInProgress):
            return
        if isinstance(error, OutcomeUnknown) and error.data.get("plan") == self._plan_id:
            return
        reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        if isinstance(error, AcktrailError | KeyboardInterrupt):
            reason = error.message if isinstance(error, AcktrailError) else "interrupted"
        raise OutcomeUnknown(
            f"plan {self._plan_id} was sent, and its outcome is not known: {reason}",
            hint=next_step(ChangeStatus.UNKNOWN).on(self._plan_id).command,
            data={"plan": self._plan_id},
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What an attempt did. `results` are the broker's answers on every part that was sent; `refused` are the outcomes
    of share partitions that a rule forbids. `not_sent`: why a group was not reached, or nothing was sent to it."""

    plan_id: str
    attempt: int
    results: tuple[ChangeResult, ...]
    not_sent: Mapping[str, str] = field(default_factory=dict)
    refused: tuple[VerifiedPartition, ...] = ()


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
        """Take the lease of every group, all or none, around the requests, which `requests` counts; raises as
        `Journal.take_lease`. Where the block fails before a request left, the leases are given back."""
        self.journal.take_lease(self._leases(self._leased), check=check)
        with requests or self._sending as self._sending:
            try:
                yield
            except BaseException as error:
                if not self._sending.out:
                    self._abandon(error)
                raise

    def renew_leases(self, groups: Sequence[str], request_timeout_ms: int) -> bool:
        """Whether the leases last for one more request; they are renewed in time. A lease that ran out while this
        process slept is lost: others may have changed the group."""
        left = self._expires_at_ms - self.journal.now_ms
        if request_timeout_ms < left <= 2 * request_timeout_ms:
            self.journal.note(self._leases(groups))
        return left > request_timeout_ms

    def send(
        self,
        groups: Sequence[str],
        call: Callable[[str], Sequence[ChangeResult] | AcktrailError],
        request_timeout_ms: int,
        *,
        goes_on: bool,
    ) -> Execution:
        """One `call` a group, in order, as long as the leases last; none after a group that was not done, unless
        `goes_on`. Raises why the first was not sent, when nothing was sent for any group."""
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
        look: Callable[[], object] | None = None,
        is_partial: bool = False,
    ) -> Sequence[ChangeResult] | AcktrailError:
        """Send the request of one group between its two audit rows; the coordinator's answers, one for each of `parts`
        (topic, partition) where it could not be sent. `look` raises when something moved right before it is sent: then
        that error, and the lease is given back. `is_partial`: the plan has more of the group, which is left out."""
        outcome = PARTIAL if is_partial else None
        self.journal.note([self.entry(Event.BEFORE_CALL, group_id, outcome=outcome, detail=request)])
        if look is not None:
            try:
                look()
            except AcktrailError as error:
                self.give_up({group_id: {"error": error.message, "hint": error.hint}})
                return error
        self._sending.out += 1
        try:
            results = send()
        except AcktrailError as error:
            results = [_not_sent(group_id, topic, partition, error) for topic, partition in parts]
        outcome = call_outcome(results)
        if outcome == "refused":
            self._sending.out -= 1
        else:
            self._leased.remove(group_id)
        self.journal.note([self.entry(Event.AFTER_CALL, group_id, outcome=outcome, detail=answer_detail(results))])
        return results

    def give_up(self, why: Mapping[str, Mapping[str, object]]) -> None:
        """Note in one commit `why` nothing is sent to each of some groups, and give their leases back."""
        self._release([*why], [self.entry(Event.REFUSED, group, detail=detail) for group, detail in why.items()])

    def leave(self, groups: Sequence[str]) -> None:
        """Note that `groups` are not reached, and give their leases back."""
        self._release(groups, [self.entry(Event.AFTER_CALL, group, outcome="not_sent") for group in groups])

    def _abandon(self, error: BaseException) -> None:
        """Give back the lease of every group, to which nothing was sent. What cannot be noted ends with its time."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SentPartition:
    """One share partition of a request: what the plan found there, what was asked, what the broker said (no answer:
    its outcome is UNKNOWN). `ends` are the state partitions' ends right before it was sent. For a look that is not the
    first: what others asked `later` (the ends then, and their target), and the record (state partition, offset) by
    which it was found `overwritten_at`. `rival`: the plan whose unanswered request asked for the same before."""

    row: PartitionPlan
    target_offset: int
    sent_at_ms: int
    ends: Mapping[int, int]
    answer: ChangeResult
    later: Sequence[tuple[Mapping[int, int], int]] = ()
    overwritten_at: tuple[int, int] | None = None
    rival: str | None = None


def request_detail(
    rows: Sequence[PartitionPlan], state_topic_id: str | None, ends: Mapping[int, int], now_ms: int
) -> dict[str, Any]:
    """The detail of the row before a request: what it asks for, and `ends`, after which its effect can be seen."""
    return {
        "request": "AlterShareGroupOffsets",
        "sent_at_ms": now_ms,
        "state_topic_id": state_topic_id,
        "ends": {str(partition): end for partition, end in sorted(ends.items())},
        "parts": [[row.topic, row.partition, row.target_offset] for row in rows],
    }


def answer_detail(results: Sequence[ChangeResult]) -> dict[str, Any]:
    """The detail of the row after it: the broker's answer, failures one by one."""
    return {
        "done": sum(result.outcome is Outcome.DONE for result in results),
        "failed": [result for result in results if result.outcome is not Outcome.DONE],
    }


def asked_in(detail: Mapping[str, Any]) -> tuple[dict[int, int], list[tuple[str, int, int]]]:
    """The ends in a `request_detail`, and what it asks for: topic, partition, target; nothing, where it is no reset."""
    ends = {int(partition): end for partition, end in detail.get("ends", {}).items()}
    return ends, [(topic, partition, target) for topic, partition, target in detail.get("parts", ())]


def sent_partitions(plan: ResetPlan, rows: Iterable[AuditRow]) -> list[SentPartition]:
    """Every share partition that was sent by `rows`, those of one attempt at each group of `plan`."""
    requests: dict[str, dict[str, Any]] = {}
    answers: dict[str, dict[str, Any]] = {}
    for row in rows:
        kept = {Event.BEFORE_CALL: requests, Event.AFTER_CALL: answers}.get(Event(row.event))
        if kept is not None:
            kept.setdefault(row.group_id or "", json.loads(row.detail))
    planned = {row.key: row for row in plan.partitions}
    found = []
    for group_id, request in requests.items():
        answer = answers.get(group_id)
        failed = [from_json_value(ChangeResult, one) for one in answer["failed"]] if answer is not None else []
        by_part = {(one.topic, one.partition): one for one in failed}
        outcome = Outcome.UNKNOWN if answer is None else Outcome.DONE
        other = ChangeResult(group_id=group_id, outcome=outcome, error_code=None)
        ends, parts = asked_in(request)
        for topic, part, target in parts:
            one = SentPartition(
                row=planned[group_id, topic, part],
                target_offset=target,
                sent_at_ms=request["sent_at_ms"],
                ends=ends,
                answer=by_part.get((topic, part), other),
            )
            found.append(one)
    return found
