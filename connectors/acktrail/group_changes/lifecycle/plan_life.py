"""The life of a plan as one table: what each step does to a plan that stands so, or why it is refused. Pure.

Every entry point (command line, DAGs, module functions) asks this table, for resets, undos, deletions and changes of
configurations alike. A plan's standing follows from its audit rows alone, the clock, and what other plans took back.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from acktrail.errors import AcktrailError, ChangeInProgress, ChangeRefused
from acktrail.group_changes.audit.audit_chain import AuditRow, Event
from acktrail.group_changes.lifecycle.change_status import (
    NOTHING_CHANGED,
    ChangeStatus,
    GroupStatus,
    standings,
    worst_status,
)
from acktrail.times import utc_text


class Step(StrEnum):
    """What is asked of a plan."""

    APPROVE = "approve"
    REJECT = "reject"
    EXPIRE = "expire"
    """Time passed: no answer came, or the plan became too old."""
    APPLY = "apply"
    VERIFY = "verify"
    UNDO = "undo"


class Because(StrEnum):
    """What a refusal asks of the caller."""

    CLOSED = "closed"
    """Nothing more comes of this plan."""
    BUSY = "busy"
    """Wait: a process executes it."""
    OPEN = "open"
    """Verify first: the outcome of a request is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a step is refused. `text` follows the plan's name."""

    rule: str
    text: str
    because: Because
    hint: str = ""


_REJECTED: Final = Refusal(
    rule="plan_rejected", text="was rejected", because=Because.CLOSED, hint="make a new plan: acktrail reset plan"
)
_EXPIRED: Final = Refusal(
    rule="plan_expired",
    text="has expired: it was not approved in time",
    because=Because.CLOSED,
    hint="make a new plan: acktrail reset plan",
)
_STOPPED: Final = Refusal(
    rule="plan_stopped",
    text="was carried out in part, and the rest was rejected or not approved in time",
    because=Because.CLOSED,
    hint="acktrail reset undo takes back what was done; for the rest make a new plan",
)
_BUSY: Final = Refusal(rule="plan_running", text="is being carried out", because=Because.BUSY)
_OPEN: Final = Refusal(rule="plan_unsettled", text="was sent and is not verified", because=Because.OPEN)
_OVERWRITTEN: Final = Refusal(
    rule="plan_overwritten",
    text="was carried out, and something else is there now",
    because=Because.CLOSED,
    hint="keep the group stopped; acktrail reset verify looks again; then make a new plan",
)
_CARRIED_OUT: Final = Refusal(
    rule="plan_carried_out",
    text="was carried out",
    because=Because.CLOSED,
    hint="acktrail reset undo takes it back, start offsets only",
)
_UNDONE: Final = Refusal(
    rule="plan_undone", text="was taken back", because=Because.CLOSED, hint="make a new plan: acktrail reset plan"
)
_NOTHING: Final = Refusal(
    rule="nothing_to_undo", text="changed nothing: there is nothing to take back", because=Because.CLOSED
)

_S = ChangeStatus
_Row = tuple[ChangeStatus | Refusal, ...]
# fmt: off
_ROWS: Final[Mapping[ChangeStatus, _Row]] = MappingProxyType(
    {
        #                APPROVE        REJECT         EXPIRE          APPLY          VERIFY          UNDO
        _S.PLANNED: (_S.APPROVED, _S.REJECTED, _S.EXPIRED, _S.RUNNING, _S.PLANNED, _NOTHING),
        _S.APPROVED: (_S.APPROVED, _S.REJECTED, _S.EXPIRED, _S.RUNNING, _S.APPROVED, _NOTHING),
        _S.REJECTED: (_REJECTED, _S.REJECTED, _S.REJECTED, _REJECTED, _S.REJECTED, _NOTHING),
        _S.EXPIRED: (_EXPIRED, _S.REJECTED, _S.EXPIRED, _EXPIRED, _S.EXPIRED, _NOTHING),
        _S.REFUSED: (_S.REFUSED, _S.REJECTED, _S.EXPIRED, _S.RUNNING, _S.REFUSED, _NOTHING),
        _S.STARTED: (_S.STARTED, _S.REJECTED, _S.EXPIRED, _S.RUNNING, _S.FAILED, _NOTHING),
        _S.FAILED: (_S.FAILED, _S.REJECTED, _S.EXPIRED, _S.RUNNING, _S.FAILED, _NOTHING),
        _S.RUNNING: (_BUSY, _BUSY, _S.RUNNING, _BUSY, _S.RUNNING, _BUSY),
        _S.UNKNOWN: (_OPEN, _OPEN, _S.UNKNOWN, _OPEN, _S.UNKNOWN, _OPEN),
        _S.UNVERIFIED: (_OPEN, _OPEN, _S.UNVERIFIED, _OPEN, _S.UNVERIFIED, _OPEN),
        _S.PARTLY: (_S.PARTLY, _S.STOPPED, _S.STOPPED, _S.RUNNING, _S.PARTLY, _S.UNDONE),
        _S.STOPPED: (_REJECTED, _S.STOPPED, _S.STOPPED, _REJECTED, _S.STOPPED, _S.UNDONE),
        _S.OVERWRITTEN: (_OVERWRITTEN, _CARRIED_OUT, _S.OVERWRITTEN, _OVERWRITTEN, _S.OVERWRITTEN, _S.UNDONE),
        _S.DONE: (_CARRIED_OUT, _CARRIED_OUT, _S.DONE, _S.DONE, _S.DONE, _S.UNDONE),
        _S.UNDONE: (_UNDONE, _UNDONE, _S.UNDONE, _UNDONE, _S.UNDONE, _UNDONE),
    }
)
# fmt: on
LIFE: Final[Mapping[tuple[ChangeStatus, Step], ChangeStatus | Refusal]] = MappingProxyType(
    {(standing, step): answer for standing, row in _ROWS.items() for step, answer in zip(Step, row, strict=True)}
)
"""The standing after a step (for APPLY while it lasts; for VERIFY the least that it leaves), or why it is refused."""

_DECIDES: Final[Mapping[str, Step]] = MappingProxyType(
    {Event.APPROVED.value: Step.APPROVE, Event.REJECTED.value: Step.REJECT, Event.EXPIRED.value: Step.EXPIRE}
)
_CLOSES: Final = frozenset({Step.REJECT, Step.EXPIRE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Who approved or rejected a plan, when and why; or that no one did in time."""

    step: Step
    actor: str
    at: dt.datetime
    plan_hash: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLife:
    """How a plan stands. `groups` is empty when nothing was attempted; `undone_by` are the plans that took it back."""

    plan_id: str
    standing: ChangeStatus
    groups: tuple[GroupStatus, ...] = ()
    decisions: tuple[Decision, ...] = ()
    undone_by: tuple[str, ...] = ()

    def after(self, step: Step) -> ChangeStatus:
        """The standing after `step`.

        Raises:
            ChangeRefused: the table refuses the step; with the rule's name.
            ChangeInProgress: a process executes it, or it was not verified.
        """
        answer = LIFE[self.standing, step]
        if isinstance(answer, Refusal):
            raise self._error(answer)
        return answer

    def approvals(self, plan_hash: str) -> tuple[Decision, ...]:
        """Those of the very plan that has this hash."""
        return tuple(one for one in self.decisions if one.step is Step.APPROVE and one.plan_hash == plan_hash)

    def _error(self, refusal: Refusal) -> AcktrailError:
        text = f"plan {self.plan_id} {refusal.text}{self._by(refusal)}"
        if refusal.because in (Because.BUSY, Because.OPEN):
            group = self._open_group()
            hint = _busy_hint(group) if refusal.because is Because.BUSY else f"acktrail reset verify {self.plan_id}"
            return ChangeInProgress(group.group_id, plan_id=self.plan_id, hint=f"{refusal.text}: {hint}")
        return ChangeRefused(refusal.rule, text, hint=refusal.hint, data={"plan": self.plan_id})

    def _by(self, refusal: Refusal) -> str:
        if refusal is _UNDONE:
            return f" by plan {', '.join(self.undone_by)}" if self.undone_by else ""
        step = Step.REJECT if refusal is _REJECTED else Step.EXPIRE
        closing = next((one for one in reversed(self.decisions) if one.step is step), None)
        if closing is None or refusal not in (_REJECTED, _EXPIRED):
            return ""
        at = utc_text(closing.at)
        by = f" by {closing.actor}" if step is Step.REJECT else ""
        return f"{by} at {at}" + (f": {closing.why}" if closing.why else "")

    def _open_group(self) -> GroupStatus:
        return next(group for group in self.groups if group.standing is self.standing)


def life_of(
    plan_id: str,
    rows: Iterable[AuditRow],
    *,
    now_ms: int,
    is_refused: bool = False,
    is_expired: bool = False,
    undone_by: Sequence[str] = (),
    is_undone: bool = False,
) -> PlanLife:
    """How the plan stands by `rows`, its rows of the audit.

    `is_refused`: a rule forbids it since it was made. `is_expired`: it is too old now, which counts while nothing was
    attempted. `undone_by`: plans that took some of it back, `is_undone`: all of it.
    """
    mine = sorted((row for row in rows if row.plan_id == plan_id), key=lambda row: row.sequence)
    groups = tuple(found.at(now_ms) for found in standings(mine))
    standing = worst_status(group.standing for group in groups)
    if standing is ChangeStatus.PLANNED and is_refused:
        standing = ChangeStatus.REFUSED
    if standing in NOTHING_CHANGED and _was_changed(mine):
        standing = ChangeStatus.PARTLY
    decisions = tuple(_decision(row) for row in mine if row.event in _DECIDES)
    steps = [one.step for one in decisions]
    steps += [Step.EXPIRE] if is_expired and not groups and not is_refused else []
    for step in [*steps, *([Step.UNDO] if is_undone else [])]:
        answer = LIFE[standing, step]
        standing = standing if isinstance(answer, Refusal) else answer
    return PlanLife(plan_id=plan_id, standing=standing, groups=groups, decisions=decisions, undone_by=tuple(undone_by))


def _was_changed(rows: Iterable[AuditRow]) -> bool:
    """Whether any attempt brought a share partition to its target: the newest one may have failed at the rest."""
    return any(row.event == Event.VERIFIED and row.outcome in ("done", "partly") for row in rows)


def _decision(row: AuditRow) -> Decision:
    return Decision(
        step=_DECIDES[row.event],
        actor=row.actor,
        at=row.audited_at,
        plan_hash=row.plan_hash,
        why=str(json.loads(row.detail).get("note", "")),
    )


def _busy_hint(group: GroupStatus) -> str:
    return f"process {group.lease.pid} on {group.lease.host} has it" if group.lease is not None else "try again"
