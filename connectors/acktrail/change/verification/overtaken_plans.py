"""Plans whose work a request undid that arrived late."""

from __future__ import annotations

from collections.abc import Sequence

from acktrail.change.audit.audit_chain import Event
from acktrail.change.audit.journal import Journal
from acktrail.change.execution.other_requests import requests_after
from acktrail.change.lifecycle.plan_life import Status
from acktrail.change.planning.change_plan import ChangePlan
from acktrail.change.verification.partition_outcome import VerifiedPartition


def overtaken(journal: Journal, plan: ChangePlan, found: Sequence[VerifiedPartition]) -> list[str]:
    """The other plans that were sent after `plan` and before its requests arrived, which `found` shows: it undid what
    they did."""
    places = {
        (row["group_id"], row["topic"], row["partition"]): (row["evidence_state_partition"], row["evidence_offset"])
        for row in found
        if Status(row["status"]).is_ok and row["evidence_offset"] is not None
    }
    own = [row for row in journal.audit({"plan_id": plan.plan_id}) if row.event == Event.BEFORE_CALL]
    plans: dict[str, None] = {}
    for row, key, _, ends in requests_after(journal, own, {key[0] for key in places}) if places else ():
        partition, offset = places.get(key, (None, -1))
        if row.plan_id != plan.plan_id and partition in ends and ends[partition] <= offset:
            plans[row.plan_id] = None
    return list(plans)
