"""A plan as rows of ``reset_plans`` and ``reset_plan_partitions``."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from typing import Any, Final

from acktrail.group_changes.planning.group_change_plan import GroupChangePlan
from acktrail.group_changes.planning.notices import RefusedParts
from acktrail.group_changes.planning.plan_file import Plan, plan_json

_TOTALS: Final = (
    *("partitions", "delivered_again", "skipped", "acknowledgements_forgotten", "archived_forgotten"),
    *("in_flight_discarded", "acknowledgements_known", "archived_known"),
)
_COPIED: Final = (
    *("group_id", "topic", "topic_id", "partition", "log_start_offset", "log_end_offset", "start_offset"),
    *("wanted_offset", "target_offset", "clamp", "first_record_ms", "last_record_ms"),
)
_IMPACT: Final = (
    *("to_deliver", "delivered_again", "passed_again", "acknowledgements_forgotten", "archived_forgotten"),
    *("skipped", "in_flight_discarded", "acknowledgements_known", "archived_known"),
    *("passed_acknowledged", "passed_archived", "passed_unknown"),
)
_STATE: Final = ("state_partition", "effective_start_offset", "snapshot_epoch", "state_epoch")
_BATCH: Final = ("first_offset", "last_offset", "delivery_state", "delivery_count")


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
    return {**row, "undoes": plan.undoes, **{name: getattr(plan.totals, name) for name in _TOTALS}}


def partition_rows(plan: Plan) -> list[dict[str, Any]]:
    """One row for each share partition of a reset."""
    if isinstance(plan, GroupChangePlan):
        return []
    refused = RefusedParts(plan.refusals)
    texts: dict[tuple[str | None, str | None, int | None], list[str]] = defaultdict(list)
    for notice in plan.notices:
        texts[notice.group_id, notice.topic, notice.partition].append(f"{notice.severity.value}: {notice.text}")
    rows = []
    for part in plan.partitions:
        row = {"plan_id": plan.plan_id, "refused": part.key in refused, "notices": texts.get(part.key, [])}
        row |= {name: getattr(part, name) for name in _COPIED}
        row |= {name: getattr(part.impact, name, None) for name in _IMPACT}
        if part.state is not None:
            row |= {name: getattr(part.state, name) for name in _STATE}
            row["batches"] = [dict(zip(_BATCH, batch, strict=True)) for batch in part.state.batches]
        rows.append(row)
    return rows
