"""The phase after a plan that made share partitions wait: they are set to where they begin."""

from __future__ import annotations

from collections import defaultdict

from acktrail.config import TablesConfig
from acktrail.errors import ChangeRefused
from acktrail.group_changes.collection.facts import TargetOffset, TargetOffsets
from acktrail.group_changes.lifecycle.plan_life import ChangeStatus
from acktrail.group_changes.lifecycle.plan_status import plan_status
from acktrail.group_changes.planning.plan import ResetPlan
from acktrail.group_changes.request.reset_request import ResetRequest, StrategyKind, parse_request


def next_phase_request(plan: ResetPlan, *, reason: str = "", requested_by: str = "") -> ResetRequest:
    """The reset of the share partitions that `plan` made wait, for the groups that have some. Raises ChangeRefused
    (`no_next_phase`): none waits."""
    groups = [order.group_id for order in plan.orders or () if order.waiting]
    if not groups:
        text = f"plan {plan.plan_id} made no share partition wait"
        raise ChangeRefused("no_next_phase", text, hint="acktrail reset plan --phases makes plans with phases")
    return parse_request(
        {
            "groups": dict.fromkeys(groups),
            "strategies": {StrategyKind.NEXT_PHASE.value: plan.plan_id},
            "ordering": plan.request.ordering,
            "reason": reason or plan.reason,
            "requested_by": requested_by,
        }
    )


def waiting_offsets(tables: TablesConfig, plan: ResetPlan) -> TargetOffsets:
    """Where each share partition that waits is to begin. Raises ChangeRefused (`phase_not_done`): the plan that made
    them wait was not carried out."""
    standing = plan_status(tables, plan.plan_id)["standing"]
    if standing != ChangeStatus.DONE:
        text = f"plan {plan.plan_id} is the phase before, and {standing}"
        raise ChangeRefused("phase_not_done", text, hint=f"acktrail reset apply {plan.plan_id} --execute")
    found: dict[str, dict[tuple[str, int], TargetOffset]] = defaultdict(dict)
    for order in plan.orders or ():
        for each in order.waiting:
            found[order.group_id][order.topic, each.partition] = TargetOffset(
                offset=each.offset, topic_id=order.topic_id
            )
    return found
