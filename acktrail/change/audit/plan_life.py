"""How a change stands and the life of a plan: two tables, for every kind of change. Pure: both follow from the audit
rows, the clock, and what other plans took back."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.resources import files
from types import MappingProxyType
from typing import Final, NamedTuple

from acktrail.change.audit.audit_chain import AUDIT, AuditRow, Event, in_order
from acktrail.dataclass_json import stored_object
from acktrail.errors import AcktrailError, ChangeInProgress, ChangeRefused, OutcomeUnknown
from acktrail.text_parsing import parse_toml
from acktrail.times import utc_text

PLAN_AGAIN: Final = "make a new plan"
"""What to do, where the kind of the plan is not known; `change_kind.new_plan` names the command."""
_NO_STEP: Final = frozenset({Event.LEASE_REFUSED, Event.RECORDED})
PARTIAL: Final = "partial"
"""The outcome of a `before_call` row whose request leaves out share partitions that the plan has in the group."""


class ChangeStatus(StrEnum):
    """The status of an attempt to change one group, or (from PLANNED on) of a whole plan only, in the order of how much
    it asks of a person.

    UNKNOWN: it was sent, or was about to be, and its outcome was not recorded. UNVERIFIED: the coordinator answered
    that it is done. OVERWRITTEN: it was done, and something changed it again while the group was empty. FAILED: nothing
    was changed. STARTED: the lease was taken and nothing was sent. STOPPED: parts were, or may have been, carried out,
    a rejection closed the rest. UNDONE: another plan took back everything that this one did.
    """

    UNKNOWN = "UNKNOWN"
    UNVERIFIED = "UNVERIFIED"
    OVERWRITTEN = "OVERWRITTEN"
    PARTLY = "PARTLY"
    FAILED = "FAILED"
    REFUSED = "REFUSED"
    RUNNING = "RUNNING"
    STARTED = "STARTED"
    DONE = "DONE"
    PLANNED = "PLANNED"
    APPROVED = "APPROVED"
    REJECTED = "REJECTED"
    EXPIRED = "EXPIRED"
    STOPPED = "STOPPED"
    UNDONE = "UNDONE"


class Status(StrEnum):
    """What became of one share partition.

    OK_EPOCH_NOT_BUMPED: done, with the same state epoch as before, as Kafka up to 4.4 does it. OK_BY_DESCRIPTION: the
    broker describes the target, the state topic was not read. FAILED: the broker refused it. NOT_ATTEMPTED: it was not
    sent, or the answer did not mention it, and it is not there. LEFT_OUT: a rule forbids it, and the rest was sent.
    NOT_PERSISTED: the broker said done, and the state topic shows nothing of it. OVERWRITTEN_AFTER_RESET: it was there,
    and something else than the group's own work changed it. EPOCH_WENT_BACK: the state epoch is lower than before,
    critical with any start offset.
    """

    OK = "OK"
    OK_EPOCH_NOT_BUMPED = "OK_EPOCH_NOT_BUMPED"
    OK_BY_DESCRIPTION = "OK_BY_DESCRIPTION"
    FAILED = "FAILED"
    NOT_ATTEMPTED = "NOT_ATTEMPTED"
    LEFT_OUT = "LEFT_OUT"
    NOT_PERSISTED = "NOT_PERSISTED"
    OVERWRITTEN_AFTER_RESET = "OVERWRITTEN_AFTER_RESET"
    EPOCH_WENT_BACK = "EPOCH_WENT_BACK"
    UNKNOWN = "UNKNOWN"

    @property
    def is_ok(self) -> bool:
        return self in (Status.OK, Status.OK_EPOCH_NOT_BUMPED, Status.OK_BY_DESCRIPTION)


_S = ChangeStatus
_NEXT: Final[Mapping[tuple[str, str | None], ChangeStatus]] = {
    (Event.LEASE_TAKEN, None): _S.STARTED,
    (Event.REFUSED, None): _S.REFUSED,
    (Event.BEFORE_CALL, None): _S.UNKNOWN,
    (Event.AFTER_CALL, "done"): _S.UNVERIFIED,
    (Event.AFTER_CALL, "refused"): _S.FAILED,
    (Event.AFTER_CALL, "not_sent"): _S.FAILED,
    (Event.AFTER_CALL, "partly"): _S.UNVERIFIED,
    (Event.AFTER_CALL, "unknown"): _S.UNKNOWN,
    (Event.VERIFIED, "done"): _S.DONE,
    (Event.VERIFIED, "partly"): _S.PARTLY,
    (Event.VERIFIED, "not_done"): _S.FAILED,
    (Event.VERIFIED, "overwritten"): _S.OVERWRITTEN,
    (Event.VERIFIED, "unknown"): _S.UNKNOWN,
    (Event.VERIFIED, "forgotten"): _S.UNKNOWN,
}
"""The standing after an event with an outcome (None: any outcome). Other events change nothing."""

_NOTHING_CHANGED: Final = frozenset({_S.FAILED, _S.REFUSED, _S.STARTED, _S.PLANNED})
_CHANGED: Final = frozenset({_S.DONE, _S.PARTLY})
OPEN: Final = frozenset({_S.UNKNOWN, _S.UNVERIFIED})
"""A request was sent, or may have been, and what became of it was not looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Who may change a group until when. `pid` and `host` name the process."""

    expires_at_ms: int
    host: str
    pid: int

    def is_held(self, now_ms: int) -> bool:
        """Return whether its holder may still send: it is in time and, if it is on this machine, alive."""
        return now_ms < self.expires_at_ms and not (self.host == socket.gethostname() and not _is_alive(self.pid))

    @property
    def is_own(self) -> bool:
        return (self.host, self.pid) == (socket.gethostname(), os.getpid())

    def text(self, now_ms: int) -> str:
        """Return who has it for how long, for people."""
        left = (self.expires_at_ms - now_ms) // 1000 + 1
        return f"process {self.pid} on {self.host} holds the lease for at most {left} s more"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """One group in the newest attempt at one plan, and the newest row about it. `group_id` is empty where the change is
    about no group: it is the whole plan then. `lease` None: it was given back, an UNKNOWN outcome was looked for.
    `is_partial`: it left out share partitions of the group. `unknown`: an earlier attempt with an UNKNOWN outcome."""

    plan_id: str
    attempt: int
    group_id: str
    newest: AuditRow
    standing: ChangeStatus = ChangeStatus.STARTED
    lease: Lease | None = None
    is_partial: bool = False
    unknown: GroupStatus | None = None

    def at(self, now_ms: int) -> GroupStatus:
        """Return the status as it counts at a moment: a group whose lease is in force is still running."""
        if self.lease is not None and self.lease.is_held(now_ms) and self.standing in {*OPEN, ChangeStatus.STARTED}:
            return replace(self, standing=ChangeStatus.RUNNING)
        return self

    def after(self, row: AuditRow) -> GroupStatus:
        """Return the status after one more row of the attempt."""
        is_partial = row.outcome == PARTIAL if row.event == Event.BEFORE_CALL else self.is_partial
        standing = _NEXT.get((row.event, row.outcome)) or _NEXT.get((row.event, None)) or self.standing
        if row.event == Event.LEASE_TAKEN and self.standing in OPEN:  # renewed, or taken over to find out what became
            standing = self.standing
        if standing is ChangeStatus.DONE and is_partial:
            standing = ChangeStatus.PARTLY
        lease = None if row.event == Event.LEASE_RELEASED else self.lease
        if row.event == Event.LEASE_TAKEN:
            detail = stored_object(row.detail, AUDIT, "detail")
            expires_at_ms, pid = int(detail.get("expires_at_ms", 0)), int(detail.get("pid", 0))
            lease = Lease(expires_at_ms=expires_at_ms, host=row.host, pid=pid)
        return replace(self, newest=row, standing=standing, lease=lease, is_partial=is_partial)

    @property
    def counted(self) -> GroupStatus:
        """The attempt that counts: one that changed nothing settles no earlier UNKNOWN one."""
        is_over = self.lease is None and self.standing in _NOTHING_CHANGED
        return self.unknown if self.unknown is not None and is_over else self


def standings(rows: Iterable[AuditRow]) -> list[GroupStatus]:
    """Return the status of every group in the newest attempt of every plan, oldest first. Decisions, and rows that
    vouch for others, are skipped."""
    found: dict[tuple[str, str], GroupStatus] = {}
    for row in in_order(rows):
        if row.event == Event.LOOKED or (row.group_id is None and (not row.attempt or row.event in _NO_STEP)):
            continue
        key = (row.plan_id, row.group_id or "")
        before = found.get(key)
        if before is None or before.attempt < row.attempt:
            unknown = before if before is None or before.standing is _S.UNKNOWN else before.unknown
            before = GroupStatus(plan_id=row.plan_id, attempt=row.attempt, group_id=key[1], newest=row, unknown=unknown)
        if before.attempt == row.attempt:
            found[key] = before.after(row)
    return [one.counted for one in found.values()]


def blocking(found: Iterable[GroupStatus], group_id: str, *, plan_id: str, now_ms: int) -> GroupStatus | None:
    """Return what keeps others from changing a group, or from carrying out a plan that has no group: a lease in force,
    or an unknown outcome that is not verified yet. If verification cannot determine the outcome, it releases the
    lease: a new plan starts from what is there now."""
    own = (one for one in found if one.group_id == group_id and (group_id or one.plan_id == plan_id))
    leased = ((one, one.lease) for one in own if one.lease is not None)
    return next((one for one, lease in leased if lease.is_held(now_ms) or one.standing is _S.UNKNOWN), None)


def status_found(outcome: str) -> ChangeStatus:
    """Return the status of a group once verification found this outcome."""
    return _NEXT[Event.VERIFIED, outcome]


def worst_status(found: Iterable[ChangeStatus]) -> ChangeStatus:
    """Return the status of a plan by those of its groups: RUNNING while one is, else what asks most of a person; PARTLY
    with one changed and one unchanged group."""
    every = frozenset(found)
    if ChangeStatus.RUNNING in every:
        return ChangeStatus.RUNNING
    worst = next((standing for standing in ChangeStatus if standing in every), ChangeStatus.PLANNED)
    return ChangeStatus.PARTLY if worst in _NOTHING_CHANGED and every & _CHANGED else worst


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


class Step(StrEnum):
    """A step that a person or a clock takes with a plan. EXPIRE: no answer came in time, or the plan became too old."""

    APPROVE = "approve"
    REJECT = "reject"
    EXPIRE = "expire"
    APPLY = "apply"
    UNDO = "undo"


class Refusal(NamedTuple):
    """The reason why a step is refused. `text` follows the plan's name; its `NextStep` says what to do instead."""

    rule: str
    text: str


class NextStep(NamedTuple):
    """What to do next with a plan, in words for the `command` line and for Airflow's `form`. `is_open`: what was sent
    is not settled; nothing else of the group may be changed before."""

    command: str
    form: str
    is_open: bool = False

    def on(self, plan_id: str, new_plan: str = PLAN_AGAIN) -> NextStep:
        """Return the words for the plan with this id; `new_plan` says how a plan of its kind is made."""
        command, form = (text.format(plan=plan_id, new_plan=new_plan) for text in (self.command, self.form))
        return NextStep(command, form, self.is_open)


_REJECTED: Final = Refusal("plan_rejected", "was rejected")
_EXPIRED: Final = Refusal("plan_expired", "has expired: it was not approved in time")
_BUSY: Final = Refusal("plan_running", "is being applied")
_OPEN: Final = Refusal("plan_unsettled", "was sent, and its outcome was not verified")
_UNCLEAR: Final = Refusal("plan_unsettled", "was sent, and its outcome is unknown")
_OVERWRITTEN: Final = Refusal("plan_overwritten", "was applied, and another change has overwritten it")
_CARRIED_OUT: Final = Refusal("plan_carried_out", "was applied already")
_UNDONE: Final = Refusal("plan_undone", "was undone")
_NOTHING: Final = Refusal("nothing_to_undo", "changed nothing: there is nothing to undo")
_Answer = ChangeStatus | Refusal
_ROWS: Final[Mapping[tuple[ChangeStatus, str | None], tuple[_Answer, ...]]] = {
    # APPROVE, REJECT, EXPIRE, APPLY, UNDO
    (_S.PLANNED, None): (_S.APPROVED, _S.REJECTED, _S.EXPIRED, _S.RUNNING, _NOTHING),
    (_S.APPROVED, None): (_S.APPROVED, _S.REJECTED, _S.EXPIRED, _S.RUNNING, _NOTHING),
    (_S.REJECTED, None): (_REJECTED, _S.REJECTED, _S.REJECTED, _REJECTED, _NOTHING),
    (_S.EXPIRED, None): (_EXPIRED, _S.REJECTED, _S.EXPIRED, _EXPIRED, _NOTHING),
    (_S.REFUSED, None): (_S.REFUSED, _S.REJECTED, _S.EXPIRED, _S.RUNNING, _NOTHING),
    (_S.STARTED, None): (_S.STARTED, _S.REJECTED, _S.EXPIRED, _S.RUNNING, _NOTHING),
    (_S.FAILED, None): (_S.FAILED, _S.REJECTED, _S.EXPIRED, _S.RUNNING, _NOTHING),
    (_S.RUNNING, None): (_BUSY, _BUSY, _S.RUNNING, _BUSY, _BUSY),
    (_S.UNKNOWN, None): (_OPEN, _OPEN, _S.UNKNOWN, _OPEN, _OPEN),
    (_S.UNKNOWN, "unknown"): (_UNCLEAR, _S.STOPPED, _S.UNKNOWN, _S.RUNNING, _UNCLEAR),
    (_S.UNKNOWN, "forgotten"): (_UNCLEAR, _S.STOPPED, _S.UNKNOWN, _UNCLEAR, _UNCLEAR),
    (_S.UNVERIFIED, None): (_OPEN, _OPEN, _S.UNVERIFIED, _OPEN, _OPEN),
    (_S.PARTLY, None): (_S.PARTLY, _S.STOPPED, _S.STOPPED, _S.RUNNING, _S.UNDONE),
    (_S.STOPPED, None): (_REJECTED, _S.STOPPED, _S.STOPPED, _REJECTED, _S.UNDONE),
    (_S.OVERWRITTEN, None): (_OVERWRITTEN, _CARRIED_OUT, _S.OVERWRITTEN, _OVERWRITTEN, _S.UNDONE),
    (_S.DONE, None): (_CARRIED_OUT, _CARRIED_OUT, _S.DONE, _S.DONE, _S.UNDONE),
    (_S.UNDONE, None): (_UNDONE, _UNDONE, _S.UNDONE, _UNDONE, _UNDONE),
}
_WORDS: Final = parse_toml(files(__package__).joinpath("next_steps.toml").read_text("utf-8"))
LIFE: Final = MappingProxyType({key: dict(zip(Step, row, strict=True)) for key, row in _ROWS.items()})
"""By status and what verification found last (None: the same in each case): the status after each step (for APPLY
while it lasts), or why it is refused."""


def life_at(status: ChangeStatus, verified: str | None = None) -> Mapping[Step, _Answer]:
    """Return the answer to each step, by the status of a plan and what verification found last."""
    return LIFE.get((status, verified)) or LIFE[status, None]


def next_step(status: ChangeStatus, verified: str | None = None) -> NextStep:
    """Return what a person does next, by the status of a plan and what verification found last."""
    words = _WORDS[status].get(verified, _WORDS[status])
    return NextStep(words["command"], words["form"], words.get("open", False))


DECIDES: Final[Mapping[str, Step]] = MappingProxyType(
    {Event.APPROVED: Step.APPROVE, Event.REJECTED: Step.REJECT, Event.EXPIRED: Step.EXPIRE}
)


class Undone(NamedTuple):
    """The plans that took some of a plan back, and whether that is all of it."""

    by: tuple[str, ...]
    is_all: bool


_NOT_UNDONE: Final = Undone((), is_all=False)


@dataclass(frozen=True, slots=True)
class PlanLife:
    """How a plan stands. `verified`: ``unknown`` where verification looked for an UNKNOWN outcome and could not find it
    out; ``forgotten`` where it never will, and sending it again may do it twice; ``refused`` where rules of the plan
    itself keep all or some of it from being sent; else None.
    `groups` is empty when nothing was attempted; `decisions` are the audit rows that say who approved or rejected it,
    or that no one did in time; `undone_by` are the plans that took it back."""

    plan_id: str
    standing: ChangeStatus
    verified: str | None = None
    groups: tuple[GroupStatus, ...] = ()
    decisions: tuple[AuditRow, ...] = ()
    undone_by: tuple[str, ...] = ()

    def next(self, new_plan: str = PLAN_AGAIN) -> NextStep:
        """Return what a person does next; `new_plan` says how a plan of its kind is made."""
        return next_step(self.standing, self.verified).on(self.plan_id, new_plan)

    def after(self, step: Step) -> ChangeStatus:
        """Return the status after `step`. Raises ChangeRefused with the rule that forbids it, ChangeInProgress when a
        process executes the plan, OutcomeUnknown when its outcome is not known."""
        answer = life_at(self.standing, self.verified)[step]
        if isinstance(answer, Refusal):
            raise self._error(answer)
        return answer

    def _error(self, refusal: Refusal) -> AcktrailError:
        if refusal is _BUSY:
            group = next(group for group in self.groups if group.standing is self.standing)
            hint = f"process {group.lease.pid} on {group.lease.host} applies it" if group.lease else "try again"
            return ChangeInProgress(group.group_id, plan_id=self.plan_id, hint=f"{refusal.text}: {hint}")
        text, data = f"plan {self.plan_id} {refusal.text}{self._by(refusal)}", {"plan": self.plan_id}
        if refusal in (_OPEN, _UNCLEAR):
            return OutcomeUnknown(text, hint=self.next().command, data=data)
        return ChangeRefused(refusal.rule, text, hint="" if refusal is _NOTHING else self.next().command, data=data)

    def _by(self, refusal: Refusal) -> str:
        if refusal is _UNDONE and self.undone_by:
            return f" by plan {', '.join(self.undone_by)}"
        event = {_REJECTED: Event.REJECTED, _EXPIRED: Event.EXPIRED}.get(refusal)
        closing = next((row for row in reversed(self.decisions) if row.event == event), None)
        if closing is None:
            return ""
        by, why = f" by {closing.actor}" if refusal is _REJECTED else "", note_of(closing)
        return f"{by} at {utc_text(closing.audited_at)}" + (f": {why}" if why else "")


def life_of(
    plan_id: str,
    rows: Iterable[AuditRow],
    *,
    now_ms: int,
    is_refused: bool = False,
    is_expired: bool = False,
    undone: Undone = _NOT_UNDONE,
) -> PlanLife:
    """Return the status of a plan by `rows` of the audit. `is_refused`: it has refusals. `is_expired`: it is too old
    now, which counts while nothing was attempted. `undone`: what other plans took back of it."""
    mine = sorted((row for row in rows if row.plan_id == plan_id), key=lambda row: row.sequence)
    groups = tuple(found.at(now_ms) for found in standings(mine))
    standing = worst_status(group.standing for group in groups)
    if standing is _S.PLANNED and is_refused:
        standing = _S.REFUSED
    found = [row.outcome for row in mine if row.event == Event.VERIFIED]
    if standing in _NOTHING_CHANGED and {"done", "partly"} & {*found}:  # an attempt before the newest one did something
        standing = ChangeStatus.PARTLY
    verified = "refused" if is_refused and standing in {*_NOTHING_CHANGED, _S.PARTLY} else None
    if standing is _S.UNKNOWN and all(group.lease is None for group in groups if group.standing in OPEN):
        verified = "forgotten" if found[-1:] == ["forgotten"] else "unknown"
    decisions = tuple(row for row in mine if row.event in DECIDES)
    steps = [DECIDES[row.event] for row in decisions]
    if is_expired and not groups and not is_refused:
        steps.append(Step.EXPIRE)
    if undone.is_all:
        steps.append(Step.UNDO)
    for step in steps:
        answer = life_at(standing, verified)[step]
        standing = standing if isinstance(answer, Refusal) else answer
    return PlanLife(plan_id, standing, verified, groups, decisions, undone.by)


def note_of(row: AuditRow) -> str:
    """Return why a decision was made; empty if no reason was given."""
    return str(stored_object(row.detail, AUDIT, "detail").get("note", ""))
