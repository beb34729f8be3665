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
    """What is asked of a plan. EXPIRE: time passed, no answer came or the plan became too old."""

    APPROVE = "approve"
    REJECT = "reject"
    EXPIRE = "expire"
    APPLY = "apply"
    VERIFY = "verify"
    UNDO = "undo"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a step is refused. `text` follows the plan's name."""

    rule: str
    text: str
    hint: str = ""


_AGAIN: Final = "make a new plan: acktrail reset plan"
_REJECTED: Final = Refusal("plan_rejected", "was rejected", _AGAIN)
_EXPIRED: Final = Refusal("plan_expired", "has expired: it was not approved in time", _AGAIN)
_BUSY: Final = Refusal("plan_running", "is being carried out")
_OPEN: Final = Refusal("plan_unsettled", "was sent and is not verified")
_OVERWRITTEN: Final = Refusal(
    "plan_overwritten",
    "was carried out, and something else is there now",
    "keep the group stopped; acktrail reset verify looks again; then make a new plan",
)
_CARRIED_OUT: Final = Refusal(
    "plan_carried_out", "was carried out", "acktrail reset undo takes it back, start offsets only"
)
_UNDONE: Final = Refusal("plan_undone", "was taken back", _AGAIN)
_NOTHING: Final = Refusal("nothing_to_undo", "changed nothing: there is nothing to take back")

_S = ChangeStatus
_ROWS: Final[Mapping[ChangeStatus, tuple[ChangeStatus | Refusal, ...]]] = MappingProxyType(
    {
        # APPROVE, REJECT, EXPIRE, APPLY, VERIFY, UNDO
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
LIFE: Final[Mapping[tuple[ChangeStatus, Step], ChangeStatus | Refusal]] = MappingProxyType(
    {(standing, step): answer for standing, row in _ROWS.items() for step, answer in zip(Step, row, strict=True)}
)
"""The standing after a step (for APPLY while it lasts; for VERIFY the least that it leaves), or why it is refused."""

DECISIONS: Final = MappingProxyType(
    {Step.APPROVE: Event.APPROVED, Step.REJECT: Event.REJECTED, Step.EXPIRE: Event.EXPIRED}
)
_DECIDES: Final[Mapping[str, Step]] = {event: step for step, event in DECISIONS.items()}


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

    def decisions_of(self, step: Step, plan_hash: str) -> list[Decision]:
        """Those about the very plan that has this hash."""
        return [one for one in self.decisions if one.step is step and one.plan_hash == plan_hash]

    def _error(self, refusal: Refusal) -> AcktrailError:
        if refusal in (_BUSY, _OPEN):
            group = next(group for group in self.groups if group.standing is self.standing)
            hint = f"acktrail reset verify {self.plan_id}"
            if refusal is _BUSY:
                hint = f"process {group.lease.pid} on {group.lease.host} has it" if group.lease else "try again"
            return ChangeInProgress(group.group_id, plan_id=self.plan_id, hint=f"{refusal.text}: {hint}")
        text = f"plan {self.plan_id} {refusal.text}{self._by(refusal)}"
        return ChangeRefused(refusal.rule, text, hint=refusal.hint, data={"plan": self.plan_id})

    def _by(self, refusal: Refusal) -> str:
        if refusal is _UNDONE and self.undone_by:
            return f" by plan {', '.join(self.undone_by)}"
        step = {_REJECTED: Step.REJECT, _EXPIRED: Step.EXPIRE}.get(refusal)
        closing = next((one for one in reversed(self.decisions) if one.step is step), None)
        if closing is None:
            return ""
        by = f" by {closing.actor}" if step is Step.REJECT else ""
        return f"{by} at {utc_text(closing.at)}" + (f": {closing.why}" if closing.why else "")


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
    """How the plan stands by `rows` of the audit. `is_refused`: a rule forbids it since it was made. `is_expired`: it
    is too old now, which counts while nothing was attempted. `undone_by`: plans that took some of it back,
    `is_undone`: all of it."""
    mine = sorted((row for row in rows if row.plan_id == plan_id), key=lambda row: row.sequence)
    groups = tuple(found.at(now_ms) for found in standings(mine))
    standing = worst_status(group.standing for group in groups)
    if standing is ChangeStatus.PLANNED and is_refused:
        standing = ChangeStatus.REFUSED
    # Any attempt may have brought a share partition to its target, and the newest one failed at the rest.
    if standing in NOTHING_CHANGED and any(
        row.event == Event.VERIFIED and row.outcome in ("done", "partly") for row in mine
    ):
        standing = ChangeStatus.PARTLY
    decisions = tuple(_decision(row) for row in mine if row.event in _DECIDES)
    steps = [one.step for one in decisions]
    if is_expired and not groups and not is_refused:
        steps.append(Step.EXPIRE)
    for step in [*steps, Step.UNDO] if is_undone else steps:
        answer = LIFE[standing, step]
        standing = standing if isinstance(answer, Refusal) else answer
    return PlanLife(plan_id=plan_id, standing=standing, groups=groups, decisions=decisions, undone_by=tuple(undone_by))


def _decision(row: AuditRow) -> Decision:
    why = str(json.loads(row.detail).get("note", ""))
    return Decision(step=_DECIDES[row.event], actor=row.actor, at=row.audited_at, plan_hash=row.plan_hash, why=why)
