"""Whether a plan may be approved, rejected, carried out: its life as the tables have it, asked by every entry point."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterable
from dataclasses import replace

from acktrail.config import ApprovalRule
from acktrail.errors import ChangeRefused
from acktrail.group_changes.audit.audit_chain import audit_entry
from acktrail.group_changes.audit.journal import Journal
from acktrail.group_changes.lifecycle.plan_life import DECISIONS, LIFE, PlanLife, Refusal, Step, life_of
from acktrail.group_changes.lifecycle.undo import UndoLedger
from acktrail.group_changes.planning.plan_file import DAY_MS, Plan, check_age


class Admission:
    """The questions that one plan is asked before a step; `rule` says which approval it needs, `longest_ms` how old it
    may be. `ledger` reads what other plans took back of it; it is asked where something was done."""

    def __init__(
        self,
        journal: Journal,
        plan: Plan,
        *,
        rule: ApprovalRule,
        longest_ms: int = DAY_MS,
        ledger: Callable[[], UndoLedger] | None = None,
    ) -> None:
        self._journal = journal
        self._plan = plan
        self._asked_by = requesters(plan.created_by, plan.requested_by)
        self._rule = rule
        self._longest_ms = longest_ms
        self._ledger = ledger

    def life(self) -> PlanLife:
        """How the plan stands now."""
        plan_id = self._plan.plan_id
        rows = self._journal.audit({"plan_id": plan_id})
        found = life_of(plan_id, rows, now_ms=self._journal.now_ms, is_refused=bool(self._plan.refusals))
        if self._ledger is None or isinstance(LIFE[found.standing, Step.UNDO], Refusal):
            return found
        ledger = self._ledger()
        standing = found.after(Step.UNDO) if ledger.is_undone(plan_id) else found.standing
        return replace(found, standing=standing, undone_by=ledger.undone_by(plan_id))

    def check_apply(self) -> PlanLife:
        """Pass when the plan may be carried out now; how it stood.

        Raises:
            ChangeRefused: it was rejected, undone or overwritten, it needs an approval, (PlanStale) it is too old.
            ChangeInProgress: it is being carried out, or was not verified.
        """
        life = self.life()
        life.after(Step.APPLY)
        self._check_age()
        approved_by = [one.actor for one in life.decisions_of(Step.APPROVE, self._plan.plan_hash)]
        check_approvals(self._plan.plan_id, approved_by, self._asked_by, self._rule)
        return life

    def decide(self, step: Step, *, actor: str, why: str = "") -> PlanLife:
        """Note that `actor`, for whom the journal writes, approved (APPROVE) or rejected (REJECT) the plan, or that
        the time to answer is over (EXPIRE); the plan's status then. A decision is noted once: the same one by the same
        person again changes nothing.

        Raises:
            ChangeRefused: the plan is closed, was carried out, is too old to be approved; or `own_approval`.
            ChangeInProgress: it is being carried out, or was not verified.
        """
        before = self.life()
        before.after(step)
        if step is Step.APPROVE:
            self._check_age()
            check_approver(actor, self._asked_by, self._rule)
        if all(one.actor != actor for one in before.decisions_of(step, self._plan.plan_hash)):
            entry = audit_entry(self._plan, 0, DECISIONS[step], detail={"note": why} if why else {})
            # The life is read again: the rows that `check` is given may be those of open changes alone.
            self._journal.note([entry], check=lambda _: self.life().after(step))
        return self.life()

    def _check_age(self) -> None:
        check_age(self._plan.created_at_ms, now_ms=self._journal.now_ms, longest_ms=self._longest_ms)


def account() -> str:
    """The account that this process runs under, by the system and not by the environment, which anybody may set."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"


def requesters(created_by: str, requested_by: str) -> frozenset[str]:
    """Those who may not approve their own plan: who made it, and for whom."""
    return frozenset(_name(one) for one in (created_by, requested_by) if one.strip())


def check_approver(actor: str, asked_by: frozenset[str], rule: ApprovalRule) -> None:
    """Pass when `actor` may approve a plan that `asked_by` asked for.

    Raises:
        ChangeRefused: `own_approval`, under the rule that a second person approves.
    """
    if rule is ApprovalRule.SECOND_PERSON and _name(actor) in asked_by:
        hint = "somebody else approves it: acktrail reset approve (ACKTRAIL_RESET_APPROVAL=second-person)"
        raise ChangeRefused("own_approval", f"{actor} asked for the plan and may not approve it", hint=hint)


def check_approvals(plan_id: str, approved_by: Iterable[str], asked_by: frozenset[str], rule: ApprovalRule) -> None:
    """Pass when a plan that these people approved may be carried out.

    Raises:
        ChangeRefused: `approval_missing`.
    """
    needs_other = rule is ApprovalRule.SECOND_PERSON
    if rule is ApprovalRule.OPTIONAL or any(not needs_other or _name(one) not in asked_by for one in approved_by):
        return
    text = f"plan {plan_id} needs an approval{' by a second person' if needs_other else ''}"
    hint = f"acktrail reset approve {plan_id} (ACKTRAIL_RESET_APPROVAL={rule.value})"
    raise ChangeRefused("approval_missing", text, hint=hint)


def _name(person: str) -> str:
    return person.strip().casefold()
