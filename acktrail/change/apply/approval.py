"""Whether a plan may be approved, rejected or carried out now: its status, its age, and who approved it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from acktrail.change.audit.audit_chain import Event, audit_entry
from acktrail.change.audit.journal import Journal
from acktrail.change.audit.plan_life import DECIDES, PlanLife, Step, life_of
from acktrail.change.plan.change_plan import DAY_MS, ChangePlan, check_age
from acktrail.change.undo import UndoLedger, read_ledger
from acktrail.config import ApprovalRule, approval_rule
from acktrail.errors import ChangeRefused


def approval_needed(plan: ChangePlan) -> str:
    """Return a sentence about who may approve a plan; empty if no approval is needed."""
    if approval_rule() is not ApprovalRule.SECOND_PERSON:
        return ""
    names = dict.fromkeys(name for name in (plan.created_by, plan.requested_by) if name.strip())
    return f"A second person must approve this: {', '.join(names)} asked for it and may not."


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Checks of one plan before a step. `rule` is the approval that it needs, `longest_ms` the highest age, in ms."""

    journal: Journal
    plan: ChangePlan
    rule: ApprovalRule = field(default_factory=approval_rule)
    longest_ms: int = DAY_MS

    def _is_requester(self, person: str) -> bool:
        """Return whether a person made the plan or brought its file, or it was made for them. With the rule of a second
        person they may not approve it."""
        rows = self.journal.audit({"plan_id": self.plan.plan_id, "event": Event.PLANNED.value})
        people = (self.plan.created_by, self.plan.requested_by, *(row.actor for row in rows))
        return _name(person) in {_name(one) for one in people} - {""}

    def life(self) -> PlanLife:
        """Return the present status of the plan."""
        plan_id, rows = self.plan.plan_id, self.journal.audit({"plan_id": self.plan.plan_id})
        may_be_undone = any(row.event == Event.VERIFIED for row in rows)
        ledger = read_ledger(self.journal.tables, [plan_id]) if may_be_undone else UndoLedger()
        is_refused, undone = bool(self.plan.refusals), ledger.undone(plan_id)
        return life_of(plan_id, rows, now_ms=self.journal.now_ms, is_refused=is_refused, undone=undone)

    def check_apply(self) -> PlanLife:
        """Return the status of the plan, which may be carried out now. Raises as `PlanLife.after`; ChangeRefused if an
        approval is missing; PlanStale if it is too old."""
        life = self.life()
        life.after(Step.APPLY)
        self._check_age()
        self.check_approvals(self._decided_by(life, Step.APPROVE))
        return life

    def check_approvals(self, approved_by: Iterable[str]) -> None:
        """Raise ChangeRefused (`approval_missing`) unless the approvals of these people suffice to carry the plan
        out."""
        needs_other = self.rule is ApprovalRule.SECOND_PERSON
        if self.rule is ApprovalRule.OPTIONAL or any(
            not (needs_other and self._is_requester(one)) for one in approved_by
        ):
            return
        text = f"plan {self.plan.plan_id} needs an approval{' by a second person' if needs_other else ''}"
        hint = f"acktrail change approve {self.plan.plan_id} (ACKTRAIL_RESET_APPROVAL={self.rule.value})"
        raise ChangeRefused("approval_missing", text, hint=hint)

    def decide(self, step: Step, *, actor: str, why: str = "") -> PlanLife:
        """Record that `actor` approved or rejected the plan, or that the time to answer is over (EXPIRE); return the
        plan's status then. The same decision by the same person is recorded once. Raises as `PlanLife.after`;
        PlanStale: too old to be approved; ChangeRefused: `own_approval`."""
        before = self.life()
        before.after(step)
        if step is Step.APPROVE:
            self._check_age()
            if self.rule is ApprovalRule.SECOND_PERSON and self._is_requester(actor):
                hint = "another person must approve it (ACKTRAIL_RESET_APPROVAL=second-person)"
                raise ChangeRefused("own_approval", f"{actor} requested the plan, and so may not approve it", hint=hint)
        if actor not in self._decided_by(before, step):
            event = next(event for event, decided in DECIDES.items() if decided is step)
            entry = audit_entry(self.plan, 0, Event(event), detail={"note": why} if why else {})
            # The life is read again: the rows that `check` is given may be only those of open changes.
            self.journal.note([entry], check=lambda _: self.life().after(step))
        return self.life()

    def _decided_by(self, life: PlanLife, step: Step) -> list[str]:
        """Return who took this decision about the plan with exactly this hash."""
        mine = [row for row in life.decisions if row.plan_hash == self.plan.plan_hash]
        return [row.actor for row in mine if DECIDES[row.event] is step]

    def _check_age(self) -> None:
        check_age(self.plan.created_at_ms, now_ms=self.journal.now_ms, longest_ms=self.longest_ms)


def _name(person: str) -> str:
    return person.strip().casefold()
