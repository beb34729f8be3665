"""A plan as rows of ``reset_plans`` and ``reset_plan_partitions``."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

from acktrail.group_changes.json_values import to_json_value
from acktrail.group_changes.planning.group_change_plan import GroupChangePlan
from acktrail.group_changes.planning.notices import Notice, RefusedParts
from acktrail.group_changes.planning.plan import PartitionPlan
from acktrail.group_changes.planning.plan_file import Plan, plan_json


def plan_row(plan: Plan) -> dict[str, Any]:
    """The row of a plan of any kind."""
    row = {
        "plan_id": plan.plan_id,
        "plan_hash": plan.plan_hash,
        "kind": plan.kind.value,
        "created_at": dt.datetime.fromtimestamp(plan.created_at_ms / 1000, dt.UTC),
        "created_by": plan.created_by,
        "requested_by": plan.requested_by or None,
        "reason": plan.reason or None,
        "release": plan.release,
        "strategy": plan.strategy,
        "group_ids": list(plan.group_ids),
        "refusals": len(plan.refusals),
        "plan": plan_json(plan),
    }
    if isinstance(plan, GroupChangePlan):
        return {**row, "partitions": sum(len(part.offsets) for part in plan.parts)}
    totals = {name: getattr(plan.totals, name) for name in _TOTALS}
    return {**row, "undoes": plan.undoes, **totals}


_TOTALS: Final = (
    *("partitions", "delivered_again", "skipped", "acknowledgements_forgotten", "archived_forgotten"),
    *("in_flight_discarded", "acknowledgements_known", "archived_known"),
)


def partition_rows(plan: Plan) -> list[dict[str, Any]]:
    """One row for each share partition of a reset."""
    if isinstance(plan, GroupChangePlan):
        return []
    refused = RefusedParts(plan.refusals)
    texts = _by_part(plan.notices)
    return [_row(plan.plan_id, row, texts.get(row.key, []), is_refused=row.key in refused) for row in plan.partitions]


def _row(plan_id: str, row: PartitionPlan, notices: list[str], *, is_refused: bool) -> dict[str, Any]:
    impact = {} if row.impact is None else to_json_value(row.impact)
    return {
        "plan_id": plan_id,
        "refused": is_refused,
        "notices": notices,
        **{name: getattr(row, name) for name in _COPIED},
        **_state(row),
        **{name: impact.get(name) for name in _NUMBERS},
    }


_COPIED: Final = (
    *("group_id", "topic", "topic_id", "partition", "log_start_offset", "log_end_offset", "start_offset"),
    *("wanted_offset", "target_offset", "clamp", "first_record_ms", "last_record_ms"),
)
_NUMBERS: Final = (
    *("to_deliver", "delivered_again", "passed_again", "acknowledgements_forgotten", "archived_forgotten"),
    *("skipped", "in_flight_discarded", "acknowledgements_known", "archived_known"),
    *("passed_acknowledged", "passed_archived", "passed_unknown"),
)
_STATE: Final = ("state_partition", "effective_start_offset", "snapshot_epoch", "state_epoch")


def _state(row: PartitionPlan) -> dict[str, Any]:
    state = row.state
    if state is None:
        return {}
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    batches = [dict(zip(names, batch, strict=True)) for batch in state.batches]
    return {**{name: getattr(state, name) for name in _STATE}, "batches": batches}


def _by_part(notices: Iterable[Notice]) -> dict[tuple[str, str, int], list[str]]:
    found: dict[tuple[str, str, int], list[str]] = defaultdict(list)
    for notice in notices:
        if notice.group_id is not None and notice.topic is not None and notice.partition is not None:
            found[notice.group_id, notice.topic, notice.partition].append(f"{notice.severity.value}: {notice.text}")
    return found
