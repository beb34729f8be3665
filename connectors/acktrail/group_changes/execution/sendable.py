"""What of a plan may be sent now, or why nothing may."""

from __future__ import annotations

from collections.abc import Sequence

from acktrail.config import KafkaConfig
from acktrail.errors import AcktrailError, ChangeRefused, PlanStale
from acktrail.group_changes.collection.drift import what_moved
from acktrail.group_changes.collection.facts import Snapshot
from acktrail.group_changes.collection.second_look import look_again
from acktrail.group_changes.planning.notices import Notice, RefusedParts
from acktrail.group_changes.planning.plan import PartitionPlan, ResetPlan
from acktrail.group_changes.planning.refusals import refusal_error

__all__ = ["refusal_of", "stale", "to_send", "unmoved"]


def to_send(
    kafka: KafkaConfig,
    plan: ResetPlan,
    *,
    partial: bool,
    now_ms: int,
    done: frozenset[tuple[str, str, int]] = frozenset(),
) -> tuple[PartitionPlan, ...]:
    """What `execute.execute` would send now. Raises as it would; nothing is noted."""
    rows = tuple(row for row in plan.executable(partial=partial) if row.key not in done)
    if not rows and done:
        return ()
    if not rows:
        raise refusal_of(plan, partial=partial)
    return unmoved(plan, rows, look_again(kafka, plan, now_ms=now_ms).snapshot, partial=partial)[0]


def refusal_of(plan: ResetPlan, *, partial: bool) -> AcktrailError:
    """What to raise for a plan of which nothing may be sent."""
    if not plan.refusals:
        return ChangeRefused("nothing_to_reset", "the plan has no share partition")
    hint = "" if partial else "nothing is sent while a rule forbids it; --partial sends the rest, if there is any"
    return refusal_error(plan.refusals, plan.groups, hint=hint)


def unmoved(
    plan: ResetPlan, rows: Sequence[PartitionPlan], now: Snapshot, *, partial: bool
) -> tuple[tuple[PartitionPlan, ...], tuple[Notice, ...]]:
    """The rows that may be sent, and what moved. Raises when something did, unless `partial` leaves the others."""
    moved = what_moved(plan, rows, now)
    refused = RefusedParts(moved)
    left = tuple(row for row in rows if row.key not in refused)
    if moved and not (partial and left):
        raise stale(moved, now)
    return left, moved


def stale(moved: Sequence[Notice], now: Snapshot) -> AcktrailError:
    """What to raise for a plan of which something moved."""
    error = refusal_error(moved, now.groups, kind=PlanStale, hint="make a new plan: acktrail reset plan")
    if isinstance(error, PlanStale):
        error.message = f"the plan is stale: {error.message}"
    return error
