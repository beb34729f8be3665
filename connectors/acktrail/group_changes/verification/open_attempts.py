"""Which groups of a plan are worth a look, what was asked for them, and what is noted afterwards."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from acktrail.errors import ChangeInProgress
from acktrail.group_changes.audit.audit_chain import AuditEntry, AuditRow, Event, audit_entry
from acktrail.group_changes.audit.journal import Journal, host_and_pid
from acktrail.group_changes.execution.sent_request import SentPartition, asked_in, sent_partitions
from acktrail.group_changes.lifecycle.change_status import ChangeStatus, GroupStatus, Status, standings
from acktrail.group_changes.planning.plan import ResetPlan
from acktrail.group_changes.planning.plan_file import Plan
from acktrail.group_changes.verification.partition_outcome import Place

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
    rows = journal.audit({"plan_id": plan.plan_id})
    outcomes = {(row.group_id, row.attempt): row.outcome for row in rows if row.event == Event.VERIFIED}
    found = [
        one
        for one in standings(rows)
        if one.lease is not None
        or one.standing in _UNSETTLED
        or (one.standing in _MAY_CHANGE and outcomes.get((one.group_id, one.attempt)) != "done")
    ]
    check_free(found, plan.plan_id, journal.now_ms)
    return found


def check_free(attempts: Iterable[GroupStatus], plan_id: str, now_ms: int) -> None:
    """Pass when no other living process is at one of `attempts`.

    Raises:
        ChangeInProgress: another process that may live has the lease of one.
    """
    for one in attempts:
        lease = one.lease
        if lease is None or one.newest.event == Event.AFTER_CALL or (lease.host, lease.pid) == host_and_pid():
            continue
        if lease.is_held(now_ms):
            raise ChangeInProgress(one.group_id, plan_id=plan_id, hint=lease.text(now_ms))


def sent_in_attempts(journal: Journal, plan: ResetPlan, attempts: Sequence[GroupStatus]) -> list[SentPartition]:
    """Every share partition that was sent in `attempts`; nothing where none was."""
    newest = {one.group_id: one.attempt for one in attempts}
    rows = journal.audit({"plan_id": plan.plan_id})
    own = [row for row in rows if row.group_id is not None and row.attempt == newest.get(row.group_id)]
    asked = sent_partitions(plan, own)
    now_ms = journal.now_ms
    if all(one.lease is not None and one.lease.is_held(now_ms) for one in attempts):
        return asked
    later = _later(journal, own, {one.row.group_id for one in asked})
    overwritten = _overwritten(journal.executions(plan.plan_id), newest)
    return [
        replace(one, later=later.get(one.row.key, ()), overwritten_at=overwritten.get(one.row.key)) for one in asked
    ]


def closing(
    plan: Plan, attempts: Iterable[GroupStatus], outcomes: Mapping[str, tuple[str, Mapping[str, Any]]]
) -> list[AuditEntry]:
    """For each group the outcome that was found, with its detail, and its lease given back; one that was never sent
    failed."""
    entries: list[AuditEntry] = []
    for one in attempts:
        if one.group_id in outcomes:
            outcome, detail = outcomes[one.group_id]
            entries.append(audit_entry(plan, one.attempt, Event.VERIFIED, one.group_id, outcome=outcome, detail=detail))
        elif one.standing is ChangeStatus.STARTED:
            entries.append(audit_entry(plan, one.attempt, Event.AFTER_CALL, one.group_id, outcome="not_sent"))
        if one.lease is not None:
            entries.append(audit_entry(plan, one.attempt, Event.LEASE_RELEASED, one.group_id))
    return entries


def group_outcome(one: GroupStatus, statuses: Sequence[Status]) -> tuple[str, dict[str, Any]]:
    """What became of a group by its share partitions, and the detail of the row that says so."""
    detail: dict[str, Any] = {"statuses": {each.value: statuses.count(each) for each in dict.fromkeys(statuses)}}
    if one.standing in _MAY_CHANGE:
        detail["corrects"] = one.standing.value
    if Status.OVERWRITTEN_AFTER_RESET in statuses or Status.EPOCH_WENT_BACK in statuses:
        return "overwritten", detail
    if Status.UNKNOWN in statuses:
        return "unknown", detail
    done = sum(status.is_ok for status in statuses)
    return "done" if done == len(statuses) else "partly" if done else "not_done", detail


def _later(
    journal: Journal, own: Sequence[AuditRow], groups: Iterable[str]
) -> dict[Key, list[tuple[Mapping[int, int], int]]]:
    """What other plans and attempts asked of the same groups after the rows of `own`, by share partition."""
    first = {row.group_id: row.sequence for row in own if row.event == Event.BEFORE_CALL}
    found: dict[Key, list[tuple[Mapping[int, int], int]]] = defaultdict(list)
    wanted = {"group_id": sorted(groups), "event": Event.BEFORE_CALL.value}
    for row in journal.audit(wanted, first=min(first.values(), default=0) + 1):
        if row.group_id is not None and row.sequence > first[row.group_id]:
            ends, parts = asked_in(json.loads(row.detail))
            for topic, partition, target in parts:
                found[row.group_id, topic, partition].append((ends, target))
    return found


def _overwritten(rows: Iterable[Mapping[str, Any]], newest: Mapping[str, int]) -> dict[Key, Place]:
    """By share partition, the record by which the last look found its reset overwritten. Looks of releases that did not
    note the audit beside their results took a group's own work for that: they do not count."""
    last = {
        (row["group_id"], row["topic"], row["partition"]): row
        for row in rows
        if row["attempt"] == newest.get(row["group_id"])
    }
    return {
        key: (row["evidence_state_partition"], row["evidence_offset"])
        for key, row in last.items()
        if row["status"] == Status.OVERWRITTEN_AFTER_RESET
        and None not in (row["audit_sequence"], row["evidence_state_partition"], row["evidence_offset"])
    }
