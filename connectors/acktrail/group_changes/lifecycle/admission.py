"""Whether a plan may be approved, rejected, carried out: its life as the tables have it, asked by every entry point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from acktrail.config import ApprovalRule
from acktrail.group_changes.audit.audit_chain import AuditEntry, AuditRow, Event
from acktrail.group_changes.audit.journal import Journal
from acktrail.group_changes.lifecycle.approvers import check_approvals, check_approver, requesters
from acktrail.group_changes.lifecycle.plan_life import LIFE, PlanLife, Refusal, Step, life_of
from acktrail.group_changes.lifecycle.undo import UndoLedger
from acktrail.group_changes.other_plan import OtherPlan
from acktrail.group_changes.planning.plan import ResetPlan
from acktrail.group_changes.planning.plan_file import DAY_MS, check_age

__all__ = ["Admission", "Subject"]

_EVENT = {Step.APPROVE: Event.APPROVED, Step.REJECT: Event.REJECTED, Step.EXPIRE: Event.EXPIRED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What of a plan of any kind its life depends on."""

    plan_id: str
    plan_hash: str
    kind: str
    created_at_ms: int
    asked_by: frozenset[str]
    is_refused: bool

    @classmethod
    def of(cls, plan: ResetPlan | OtherPlan) -> Self:
        """The subject of a reset or of another change."""
        requested_by = plan.request.requested_by if isinstance(plan, ResetPlan) else plan.requested_by
        return cls(
            plan_id=plan.plan_id,
            plan_hash=plan.plan_hash,
            kind=plan.kind.value,
            created_at_ms=plan.created_at_ms,
            asked_by=requesters(plan.created_by, requested_by),
            is_refused=bool(plan.refusals),
        )


class Admission:
    """The questions that one plan is asked before a step; `rule` says which approval it needs, `longest_ms` how old it
    may be. `ledger` reads what other plans took back of it; it is asked where something was done."""

    def __init__(
        self,
        journal: Journal,
        plan: ResetPlan | OtherPlan,
        *,
        rule: ApprovalRule,
        longest_ms: int = DAY_MS,
        ledger: Callable[[], UndoLedger] | None = None,
    ) -> None:
        self._journal = journal
        self._subject = Subject.of(plan)
        self._rule = rule
        self._longest_ms = longest_ms
        self._ledger = ledger

    def life(self) -> PlanLife:
        """How the plan stands now."""
        subject, now_ms = self._subject, self._journal.now_ms
        rows = self._journal.audit({"plan_id": subject.plan_id})
        found = life_of(subject.plan_id, rows, now_ms=now_ms, is_refused=subject.is_refused)
        if self._ledger is None or isinstance(LIFE[found.standing, Step.UNDO], Refusal):
            return found
        ledger = self._ledger()
        return replace(
            found,
            standing=found.after(Step.UNDO) if ledger.is_undone(subject.plan_id) else found.standing,
            undone_by=ledger.undone_by(subject.plan_id),
        )

    def check_apply(self) -> PlanLife:
        """Pass when the plan may be carried out now; how it stood.

        Raises:
            ChangeRefused: it was rejected, undone or overwritten, it needs an approval, (PlanStale) it is too old.
            ChangeInProgress: it is being carried out, or nobody verified what became of it.
        """
        life = self.life()
        life.after(Step.APPLY)
        self._check_age()
        approved_by = [one.actor for one in life.approvals(self._subject.plan_hash)]
        check_approvals(self._subject.plan_id, approved_by, self._subject.asked_by, self._rule)
        return life

    def decide(self, step: Step, *, actor: str, why: str = "") -> PlanLife:
        """Note that `actor`, for whom the journal writes, approved (APPROVE) or rejected (REJECT) the plan, or that
        nobody answered in time (EXPIRE); how the plan stands then. A decision is noted once: the same one by the same
        person again changes nothing.

        Raises:
            ChangeRefused: the plan is closed, was carried out, is too old to be approved; or `own_approval`.
            ChangeInProgress: it is being carried out, or nobody verified what became of it.
        """
        before = self.life()
        before.after(step)
        if step is Step.APPROVE:
            self._check_age()
            check_approver(actor, self._subject.asked_by, self._rule)
        if not self._is_noted(before, step, actor):

            def check(_: list[AuditRow]) -> None:
                self.life().after(step)  # read anew: the rows at hand may be those of open changes alone

            self._journal.note([self._entry(step, why)], check=check)
        return self.life()

    def _is_noted(self, life: PlanLife, step: Step, actor: str) -> bool:
        same = (step, actor, self._subject.plan_hash)
        return any((one.step, one.actor, one.plan_hash) == same for one in life.decisions)

    def _check_age(self) -> None:
        check_age(self._subject, now_ms=self._journal.now_ms, longest_ms=self._longest_ms)

    def _entry(self, step: Step, why: str) -> AuditEntry:
        return AuditEntry(
            kind=self._subject.kind,
            event=_EVENT[step],
            plan_id=self._subject.plan_id,
            plan_hash=self._subject.plan_hash,
            attempt=0,
            detail={"note": why} if why else {},
        )
