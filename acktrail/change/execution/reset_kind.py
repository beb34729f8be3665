"""Resets and undos as a kind of change: they set start offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acktrail.change.change_kind import ChangeKind, ChangeOutcome, ChangeRun, Row, Settled
from acktrail.change.execution.attempt import Execution, Key
from acktrail.change.planning.change_plan import PLAN_AGAIN
from acktrail.change.planning.reset_plan import ResetPlan
from acktrail.errors import ChangeRefused, PlanStale


class ResetChange(ChangeKind[ResetPlan]):
    """What a branch derives from whose plans are resets, too."""

    plan_type = ResetPlan
    command = "acktrail change plan reset"
    if_refused = "nothing is sent while a rule forbids it; --partial sends the rest, if there is any"
    is_undoable = True

    def would_send(self, run: ChangeRun[ResetPlan]) -> Sequence[Row]:
        from acktrail.change.execution.execute_reset import ResetAttempt

        names = ("group", "topic", "partition", "start_offset", "new_start_offset")
        rows = ResetAttempt(run, _done_before(run)).rows_now()
        return [dict(zip(names, (*row.key, row.start_offset, row.target_offset), strict=True)) for row in rows]

    def execute(self, run: ChangeRun[ResetPlan]) -> Execution:
        from acktrail.change.execution.execute_reset import ResetAttempt

        return ResetAttempt(run, _done_before(run)).execute()

    def settle(self, run: ChangeRun[ResetPlan]) -> Settled:
        from acktrail.change.verification import verify

        return verify.verify_reset(run)

    def raise_unless_done(self, outcome: ChangeOutcome) -> None:
        from acktrail.change.execution.execute_reset import raise_unless_ok

        raise_unless_ok(outcome.plan_id, outcome.partitions, outcome.execution)


def _done_before(run: ChangeRun[ResetPlan]) -> frozenset[Key]:
    """What an earlier attempt brought to its target, of a plan that may be carried out. Raises
    ChangeRefused: not everything is there any more, or another plan took it back. PlanStale: the request of another
    plan may still arrive."""
    from acktrail.change.lifecycle.plan_status import check_not_undone, done_before
    from acktrail.change.new_plans import unanswered_now

    journal, plan = run.journal, run.plan
    check_not_undone(journal.tables, plan)
    if any(notice not in plan.notices for notice in unanswered_now(journal.tables, plan)):
        text = "another plan was sent to the same share partitions since, and its outcome is not known"
        raise PlanStale("unanswered_request", text, hint=PLAN_AGAIN)
    done = done_before(run.cluster, journal, plan)
    if run.is_done and any(row.key not in done for row in plan.executable(partial=True)):
        text = f"plan {plan.plan_id} was carried out, and not everything is at its target any more"
        raise ChangeRefused("plan_carried_out", text, hint=PLAN_AGAIN)
    return done


class _Undo(ResetChange):
    command = "acktrail change undo"


RESET: ChangeKind[Any] = ResetChange()
UNDO: ChangeKind[Any] = _Undo()
