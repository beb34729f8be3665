"""Resets, undos and migrations as a kind of change: they set start offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from acktrail.change.change_kind import ChangeKind, ChangeOutcome, ChangeRun, Row, Settled
from acktrail.change.collection.facts import CarriedState, sum_known
from acktrail.change.execution.attempt import Execution, Key
from acktrail.change.planning.change_plan import PartitionPlan
from acktrail.change.planning.notices import RefusedParts
from acktrail.change.planning.reset_plan import ResetKind, ResetPlan
from acktrail.errors import ChangeRefused, PlanStale
from acktrail.plain_tables import table

_ROWS_SHOWN: Final = 60
_HEADERS: Final = (
    *("GROUP", "SOURCE", "PARTITION", "SOURCE-START", "TARGET", "NEW-OFFSET"),
    *("SOURCE-DONE", "ACKS-LOST", "SOURCE-ARCHIVED", "IN-FLIGHT", "NOTE"),
)


class _ResetChange(ChangeKind[ResetPlan]):
    plan_type = ResetPlan
    if_refused = "nothing is sent while a rule forbids it; --partial sends the rest, if there is any"
    is_undoable = True

    def text(self, plan: ResetPlan) -> str:
        return carried_text(plan) if plan.kind == ResetKind.MIGRATION else ""

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
    from acktrail.change.lifecycle.plan_status import done_before
    from acktrail.change.lifecycle.undo import check_not_undone
    from acktrail.change.new_plans import unanswered_now

    journal, plan = run.journal, run.plan
    check_not_undone(journal.tables, plan)
    if any(notice not in plan.notices for notice in unanswered_now(journal.tables, plan)):
        text = "another plan was sent to the same share partitions since, and its outcome is not known"
        raise PlanStale("unanswered_request", text, hint="make a new plan, which names it: acktrail change plan reset")
    done = done_before(run.cluster, journal, plan)
    if run.is_done and any(row.key not in done for row in plan.executable(partial=True)):
        text = f"plan {plan.plan_id} was carried out, and not everything is at its target any more"
        raise ChangeRefused("plan_carried_out", text, hint="nothing was sent: acktrail change plan reset")
    return done


def carried_text(plan: ResetPlan) -> str:
    """A table of the first share partitions, and the sums of those that are not refused."""
    rows = [_row(row, row.carried) for row in plan.partitions if row.carried is not None]
    more = [f"... {len(rows) - _ROWS_SHOWN} more; every one is in --json"] if len(rows) > _ROWS_SHOWN else []
    return "\n".join([table(_HEADERS, rows[:_ROWS_SHOWN]), *more, _sums(plan)])


def _row(row: PartitionPlan, carried: CarriedState) -> tuple[object, ...]:
    target = "refused" if row.target_offset is None else row.target_offset
    again = _number(carried.delivered_again, carried.delivered_again_most)
    counts = (carried.acknowledged, carried.archived, carried.in_flight)
    return (
        *(row.group_id, carried.topic, row.partition, carried.start_offset, row.topic, target, again, *counts),
        carried.reason or "",
    )


def _number(exact: int | None, most: int | None) -> object:
    return exact if exact is not None or most is None else f"<={most}"


def _sums(plan: ResetPlan) -> str:
    """Over the share partitions that are not refused; unknown where one of them is."""
    refused = RefusedParts(plan.refusals)
    known = [row.carried for row in plan.partitions if row.carried is not None and row.key not in refused]
    again, most = (
        sum_known(getattr(one, name) for one in known) for name in ("delivered_again", "delivered_again_most")
    )
    inexact = sum(one.delivered_again is None for one in known)
    names = ("acknowledged", "archived", "in_flight")
    acknowledged, archived, in_flight = (_text(sum_known(getattr(one, name) for one in known)) for name in names)
    unknown = f" (not known exactly of {inexact})" if inexact else ""
    lines = (
        f"carried: {len(known)} start offset(s)",
        f"finished on the source, delivered again: {_text(_number(again, most))}{unknown}",
        f"  acknowledged on the source:            {acknowledged}",
        f"  archived on the source:                {archived}",
        f"in flight on the source, counts dropped: {in_flight}",
    )
    return "\n".join(lines)


def _text(number: object) -> str:
    return "unknown" if number is None else str(number)


RESET: ChangeKind[Any] = _ResetChange()
