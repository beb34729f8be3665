"""Resets and undos as a kind of change: they set start offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acktrail.change.change_kind import ChangeKind, ChangeOutcome, ChangeRun, Execution, Row, Settled
from acktrail.change.plan.reset_plan import ResetPlan


class ResetChange(ChangeKind[ResetPlan]):
    """The kind of resets. Kinds whose plans are resets, too, derive from it."""

    plan_type = ResetPlan
    command = "acktrail change plan reset"
    if_refused = "nothing is sent while a rule forbids it; --partial sends the rest, if there is any"
    is_undoable = True

    def would_send(self, run: ChangeRun[ResetPlan]) -> Sequence[Row]:
        from acktrail.change.apply.reset_execution import ResetAttempt

        names = ("group", "topic", "partition", "start_offset", "new_start_offset")
        rows = ResetAttempt(run).rows_to_send()
        return [dict(zip(names, (*row.key, row.start_offset, row.target_offset), strict=True)) for row in rows]

    def execute(self, run: ChangeRun[ResetPlan]) -> Execution:
        from acktrail.change.apply.reset_execution import ResetAttempt

        return ResetAttempt(run).execute()

    def settle(self, run: ChangeRun[ResetPlan]) -> Settled:
        from acktrail.change.verify import reset_verification

        return reset_verification.verify_reset(run)

    def raise_unless_done(self, outcome: ChangeOutcome) -> None:
        from acktrail.change.apply.reset_execution import raise_unless_ok

        raise_unless_ok(outcome.plan_id, outcome.partitions, outcome.execution)


class _Undo(ResetChange):
    command = "acktrail change undo"


RESET: ChangeKind[Any] = ResetChange()
UNDO: ChangeKind[Any] = _Undo()
