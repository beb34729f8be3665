"""Which groups of a plan are worth a look, what was asked for them, and what is noted afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from acktrail.errors import ChangeInProgress
from acktrail.group_changes.audit.audit_chain import AuditEntry, AuditRow, Event, audit_entry
from acktrail.group_changes.audit.journal import Journal, host_and_pid
from acktrail.group_changes.execution.sent_request import sent_request
from acktrail.group_changes.lifecycle.change_status import ChangeStatus, GroupStatus, standings
from acktrail.group_changes.planning.plan import ResetPlan
from acktrail.group_changes.verification.partition_outcome import Place, Status, VerifiedPartition
from acktrail.group_changes.verification.state_watch import LaterRequest, SentPartition, sent_partitions

_UNSETTLED: Final = frozenset({ChangeStatus.UNKNOWN, ChangeStatus.UNVERIFIED, ChangeStatus.STARTED})
_MAY_CHANGE: Final = frozenset({ChangeStatus.FAILED, ChangeStatus.OVERWRITTEN, ChangeStatus.PARTLY})
"""Settled, and still not what was asked for: a request may arrive late."""

Key = tuple[str, str, int]
"""Group, topic, partition."""


def open_attempts(journal: Journal, plan: ResetPlan) -> list[GroupStatus]:
    """The newest attempt at each group of `plan` that is not settled, or settled as something else than done.

    Raises:
        ChangeInProgress: another process that may live has the lease of one.
    """
    now_ms = journal.now_ms
    rows = journal.audit({"plan_id": plan.plan_id})
    outcomes = {(row.group_id, row.attempt): row.outcome for row in rows if row.event == Event.VERIFIED}
    found = [
        standing
        for standing in standings(rows)
        if standing.lease is not None
        or standing.standing in _UNSETTLED
        or (standing.standing in _MAY_CHANGE and outcomes.get((standing.group_id, standing.attempt)) != "done")
    ]
    check_free(found, plan.plan_id, now_ms)
    return found


def check_free(attempts: Iterable[GroupStatus], plan_id: str, now_ms: int) -> None:
    """Pass when no other living process is at one of `attempts`.

    Raises:
        ChangeInProgress: another process that may live has the lease of one.
    """
    for standing in attempts:
        lease = standing.lease
        is_answered = standing.newest.event == Event.AFTER_CALL
        if lease is None or is_answered or not lease.is_held(now_ms) or (lease.host, lease.pid) == host_and_pid():
            continue
        left = (lease.expires_at_ms - now_ms) // 1000 + 1
        hint = f"process {lease.pid} on {lease.host} executes it, for at most {left} s more"
        raise ChangeInProgress(standing.group_id, plan_id=plan_id, hint=hint)


def sent_in_attempts(journal: Journal, plan: ResetPlan, attempts: Sequence[GroupStatus]) -> list[SentPartition]:
    """Every share partition that was sent in `attempts`; nothing where none was."""
    rows = journal.audit({"plan_id": plan.plan_id})
    newest = {standing.group_id: standing.attempt for standing in attempts}
    own = [row for row in rows if row.group_id is not None and row.attempt == newest.get(row.group_id)]
    sent = [sent_request([row for row in own if row.group_id == group]) for group in newest]
    asked = sent_partitions(plan, [request for request in sent if request is not None])
    now_ms = journal.now_ms
    if all(standing.lease is not None and standing.lease.is_held(now_ms) for standing in attempts):
        return asked
    later = _later(journal, own, {one.sent.group_id for one in asked})
    overwritten = _overwritten(journal.executions(plan.plan_id), newest)
    return [
        replace(one, later=tuple(later.get(one.row.key, ())), overwritten_at=overwritten.get(one.row.key))
        for one in asked
    ]


def closing(plan: ResetPlan, attempts: Sequence[GroupStatus], found: Sequence[VerifiedPartition]) -> list[AuditEntry]:
    """For each group what was found, and its lease given back; one that was never sent failed."""
    entries: list[AuditEntry] = []
    for standing in attempts:
        statuses = [one.status for one in found if one.group_id == standing.group_id]
        if statuses:
            entries.append(_verified(plan, standing, statuses))
        elif standing.lease is not None or standing.standing is ChangeStatus.STARTED:
            entries.append(audit_entry(plan, standing.attempt, Event.AFTER_CALL, standing.group_id, outcome="not_sent"))
        if standing.lease is not None:
            entries.append(audit_entry(plan, standing.attempt, Event.LEASE_RELEASED, standing.group_id))
    return entries


def _verified(plan: ResetPlan, standing: GroupStatus, statuses: Sequence[Status]) -> AuditEntry:
    counts = {status.value: statuses.count(status) for status in dict.fromkeys(statuses)}
    detail: dict[str, object] = {"statuses": counts}
    if standing.standing in _MAY_CHANGE:
        detail["corrects"] = standing.standing.value
    return audit_entry(
        plan, standing.attempt, Event.VERIFIED, standing.group_id, outcome=_outcome(statuses), detail=detail
    )


def _outcome(statuses: Sequence[Status]) -> str:
    if any(status in (Status.OVERWRITTEN_AFTER_RESET, Status.EPOCH_WENT_BACK) for status in statuses):
        return "overwritten"
    if Status.UNKNOWN in statuses:
        return "unknown"
    done = sum(status.is_ok for status in statuses)
    if done == len(statuses):
        return "done"
    return "partly" if done else "not_done"


def _later(journal: Journal, own: Sequence[AuditRow], groups: Iterable[str]) -> dict[Key, list[LaterRequest]]:
    """What other plans and attempts asked of the same groups after the rows of `own`, by share partition."""
    first = {row.group_id: row.sequence for row in own if row.event == Event.BEFORE_CALL}
    found: dict[Key, list[LaterRequest]] = {}
    wanted = {"group_id": sorted(groups), "event": Event.BEFORE_CALL.value}
    for row in journal.audit(wanted, first=min(first.values(), default=0) + 1):
        if row.group_id is None or row.sequence <= first[row.group_id]:
            continue
        asked = json.loads(row.detail)
        ends = {int(partition): end for partition, end in asked.get("ends", {}).items()}
        for topic, partition, target in asked.get("parts", ()):
            request = LaterRequest(ends=ends, target=target)
            found.setdefault((row.group_id, topic, partition), []).append(request)
    return found


def _overwritten(rows: Iterable[Mapping[str, Any]], newest: Mapping[str, int]) -> dict[Key, Place]:
    """By share partition, the record by which the last look found its reset overwritten. Looks of releases that did not
    note the audit beside their results took a group's own work for that: they do not count."""
    found: dict[Key, Place | None] = {}
    for row in rows:
        if row["attempt"] != newest.get(row["group_id"]):
            continue
        place = (row["evidence_state_partition"], row["evidence_offset"])
        is_sure = row["status"] == Status.OVERWRITTEN_AFTER_RESET and row["audit_sequence"] is not None
        found[row["group_id"], row["topic"], row["partition"]] = place if is_sure and None not in place else None
    return {key: place for key, place in found.items() if place is not None}
